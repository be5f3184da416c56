--- Staging a checkpoint: from the hub into a copy, every file checked, the marker last.
--
--     local report = stage.run { model = hub:pin "owner/name", copy = copy, job = "stage-weights" }
--
-- What is there already is not moved again. How much of it can be trusted is decided file by file:
--   known     the journal of an earlier run, or the manifest of another revision, lists these bytes
--   claimed   its upload was begun for this SHA-256, and an upload is only ever completed once its
--             bytes were checked; read back where a run was interrupted, for the digests of its parts
--   unknown   somebody else put it there: it counts when its size is right, and small files, or all
--             of them with verify, are read back
-- An upload that was under way is continued; its file is read back once it is whole, since the bytes
-- of its earlier parts went by another process.

local errors   = require "nc.errors"
local json     = require "nc.json"
local log      = require "nc.log"
local marker   = require "nc.marker"
local owners   = require "nc.owner"
local sys      = require "nc.core.sys"
local task     = require "nc.task"
local text     = require "nc.core.text"
local transfer = require "nc.transfer"
local units    = require "nc.units"

local stage = {}

local OPTIONS <const> = {
    "allow", "copy", "every", "ignore", "job", "memory", "model", "parallel", "part_size", "soft_cap",
    "stall", "verify", "wait",
}
local LOOK_EVERY <const> = "5s"   -- at a stage of somebody else's
local JOURNAL_EVERY_S <const> = 5 -- and later where the journal is large
local HEADS_AT_ONCE <const> = 16
local CLOCK_SLACK_S <const> = 5

local function iso(seconds)
    return os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(seconds))
end

local function total(files)
    local bytes = 0
    for _, f in ipairs(files) do bytes = bytes + f.size end
    return bytes
end

local function by_path(files)
    local map = {}
    for _, f in ipairs(files) do map[f.path] = f end
    return map
end

-- The same content, as far as both sides say: the hub gives a SHA-256 or a git blob name.
local function same_content(known, file)
    if known.size ~= file.size then return false end
    if file.sha256 then return known.sha256 == file.sha256 end
    return known.blob ~= nil and known.blob == file.blob
end

-- ---- before anything moves ----

local function all_there(files, there)
    for _, f in ipairs(files) do
        if not there[f.path] or there[f.path].size ~= f.size then return false end
    end
    return true
end

local function read_manifest(copy)
    local body = copy:read_marker(marker.COMPLETE)
    if not body then return nil end
    local ok, manifest = pcall(marker.decode_complete, body)
    if ok then return manifest end
    log.warn(copy.location .. marker.COMPLETE .. ": " .. tostring(manifest) .. "; the copy is looked at anew")
    return { files = {} }
end

local function covers(manifest, files)
    local listed = by_path(manifest.files)
    for _, f in ipairs(files) do
        local known = listed[f.path]
        if not known or known.size ~= f.size or (f.sha256 and known.sha256 ~= f.sha256) then return false end
    end
    return true
end

-- A complete copy of this very commit.
local function is_complete(manifest, model, files, there)
    if not manifest or not all_there(files, there) then return false end
    return manifest.bare or (manifest.commit == model.commit and covers(manifest, files))
end

local function describe_stage(s, age)
    return ("%s stages it: %s of %s, heartbeat %s old"):format(owners.describe(s.owner),
        units.format_size(s.bytes_done), units.format_size(s.bytes_total), units.format_duration(age))
end

-- The heartbeat of a stage that is (or was) at work here, once it is over, dead or gone.
local function wait_for_others(copy, me, wait_s)
    local began, said = sys.now(), nil
    while true do
        local body, age = copy:read_marker(marker.STAGING)
        if not body then return nil end
        local s = marker.decode_staging(body)
        if s.ended or age >= marker.FRESH_S or owners.is_gone(s.owner, me) then return s end
        local line = describe_stage(s, age)
        if copy:read_marker(marker.COMPLETE) then return s, true end
        if sys.now() - began > wait_s then
            error(errors.new {
                code = "Busy",
                message = ("%s: %s; gave up after %s: stop that job, or allow a longer wait="):format(
                    copy.location, line, units.format_duration(wait_s)),
            }, 0)
        end
        if not said or sys.now() - said > 60 then
            log.info(copy.location .. ": " .. line .. "; waiting, so that nothing is downloaded twice")
            said = sys.now()
        end
        task.sleep(LOOK_EVERY)
    end
end

-- Asks for the digests of many files, a few at a time.
local function digests_of(copy, paths)
    local digests, next_one = {}, 0
    local function work()
        while next_one < #paths do
            next_one = next_one + 1
            local path = paths[next_one]
            digests[path] = copy:digest_of(path)
        end
    end
    local workers = {}
    for i = 1, math.min(HEADS_AT_ONCE, #paths) do workers[i] = work end
    task.all(workers)
    return digests
end

---@class nc.stage.Plan
---@field kept table[]   entries of the manifest already certain
---@field check table[]  files to read back
---@field move table[]   files to fetch

local function known_entry(file, known)
    return {
        path = file.path, size = file.size, sha256 = known.sha256, blob = file.blob,
        part_size = known.part_size, parts = known.parts,
    }
end

-- Files that are there with the right size but that nothing vouches for.
local function sort_unvouched(plan, files, copy, verify, interrupted)
    local paths = {}
    for i, f in ipairs(files) do paths[i] = f.path end
    local digests = digests_of(copy, paths)
    local by_size = 0
    for _, f in ipairs(files) do
        local claimed = digests[f.path]
        if claimed and f.sha256 and claimed ~= f.sha256 then
            plan.move[#plan.move + 1] = f
        elseif verify or f.blob or interrupted then
            plan.check[#plan.check + 1] = f
        else
            by_size = by_size + (claimed and 0 or 1)
            plan.kept[#plan.kept + 1] = {
                path = f.path, size = f.size, sha256 = claimed, verified = claimed and "upload" or "size",
            }
        end
    end
    if by_size > 0 then
        log.warn(("%d files were there before, put by another tool: taken by their size, not verified; "
            .. "verify=yes reads them back"):format(by_size))
    end
end

--- What to keep, to read back and to fetch.
local function make_plan(files, there, copy, earlier, manifest, verify)
    local plan, unvouched = { kept = {}, check = {}, move = {} }, {}
    local listed = manifest and manifest.files and by_path(manifest.files) or {}
    local done = earlier and earlier.done or {}
    local doubtful = earlier and earlier.unverified or {}
    for _, f in ipairs(files) do
        local present = there[f.path] and there[f.path].size == f.size
        local known = done[f.path] or listed[f.path]
        if not present then
            plan.move[#plan.move + 1] = f
        elseif doubtful[f.path] then
            plan.check[#plan.check + 1] = f
        elseif known and same_content(known, f) and not verify then
            plan.kept[#plan.kept + 1] = known_entry(f, known)
        elseif known and f.sha256 and known.sha256 ~= f.sha256 then
            plan.move[#plan.move + 1] = f -- another revision's bytes, of the same size
        else
            unvouched[#unvouched + 1] = f
        end
    end
    sort_unvouched(plan, unvouched, copy, verify, earlier ~= nil and #plan.move > 0)
    return plan
end

-- ---- unfinished uploads ----

-- Ours: for a file of this stage, begun since the first of the runs whose heartbeat lies here.
local function our_uploads(copy, files, since)
    local wanted, list = by_path(files), {}
    if not since then return list end
    for _, upload in ipairs(copy:uploads()) do
        local begun = upload.initiated or math.huge
        if wanted[upload.path] and begun >= since - CLOCK_SLACK_S then list[#list + 1] = upload end
    end
    return list
end

-- The parts of an upload as etags by number, and their size; nil where they are not the parts of
-- such a file.
local function usable_parts(parts, file)
    if not parts or #parts == 0 then return nil end
    local part_size = parts[1].number * 0 + parts[1].size
    for _, p in ipairs(parts) do part_size = math.max(part_size, p.size) end
    if part_size < 5 << 20 then return nil end
    local count = (file.size + part_size - 1) // part_size
    local etags = {}
    for _, p in ipairs(parts) do
        local want = p.number == count and file.size - (count - 1) * part_size or part_size
        if p.number < 1 or p.number > count or p.size ~= want then return nil end
        etags[p.number] = p.etag
    end
    return count > 1 and etags or nil, part_size, #parts
end

-- Gives each file the upload that has most of its parts; the others are aborted.
local function continue_uploads(plan, copy, uploads)
    local moving, continued = by_path(plan.move), {}
    for _, upload in ipairs(uploads) do
        local file = moving[upload.path]
        local etags, part_size, count = nil, nil, 0
        if file then etags, part_size, count = usable_parts(copy:parts(upload), file) end
        if etags and count > (file.continued_parts or 0) then
            if file.upload_id then copy:abort { path = file.path, upload_id = file.upload_id } end
            file.upload_id, file.etags, file.part_size = upload.upload_id, etags, part_size
            file.continued_parts = count
            continued[file.path] = file
        else
            copy:abort(upload)
        end
    end
    local list = {}
    for path in pairs(continued) do list[#list + 1] = path end
    table.sort(list)
    return list
end

local function sweep_uploads(copy, files, since)
    for _, upload in ipairs(our_uploads(copy, files, since)) do copy:abort(upload) end
end

-- ---- the heartbeat and its journal ----

---@class nc.stage.Journal
local Journal = {}
Journal.__index = Journal

function Journal:text(ended)
    return marker.encode_staging {
        owner = self.owner, repository = self.model.repository, commit = self.model.commit,
        started = self.since, ended = ended, journal = { done = self.done, unverified = self:doubts() },
    }
end

function Journal:doubts()
    local list = json.array {}
    for path in pairs(self.unverified) do list[#list + 1] = path end
    table.sort(list)
    return list
end

function Journal:add(entry)
    self.done[entry.path] = {
        size = entry.size, sha256 = entry.sha256, blob = entry.blob,
        part_size = entry.part_size, parts = entry.parts and json.array(entry.parts),
    }
    self.unverified[entry.path] = nil
    self.changed = true
end

-- Writes what has changed, at most every few seconds and more rarely when it has grown large.
function Journal:flush()
    if not self.changed or sys.now() < self.due then return end
    local body = self:text()
    self.beat:set(body, true)
    self.changed = false
    self.due = sys.now() + JOURNAL_EVERY_S + #body / 1e6
end

-- However the stage ends, the last heartbeat says so, unless `.complete` has the last word.
function Journal:__close()
    if self.completed then
        self.beat:stop(false)
    else
        self.beat:set(self:text(task.stopped_by() and "stopped" or "failed"), false)
        self.beat:stop(true)
    end
end

local function open_journal(o, copy, model, plan, continued, earlier, since)
    local journal = setmetatable({
        owner = o.owner, model = model, since = iso(since), due = 0,
        done = {}, unverified = earlier and earlier.unverified or {},
    }, Journal)
    for _, entry in ipairs(plan.kept) do
        if entry.sha256 and not entry.verified then journal:add(entry) end
    end
    for _, path in ipairs(continued) do journal.unverified[path] = true end
    journal.beat = copy:heartbeat(journal:text(), o.every)
    journal.changed = false
    return journal
end

-- ---- moving and checking ----

local function entry_of(f, file)
    return {
        path = f.path, size = f.size, sha256 = f.sha256, blob = file.blob,
        part_size = f.part_size, parts = f.parts,
    }
end

-- Runs one transfer; files whose every byte went by us here are entries of the manifest, those that
-- were continued have to be read back.
local function run_transfer(o, journal, label, source, sink, files)
    local wanted, entries, doubtful = by_path(files), {}, {}
    local result = transfer.run {
        label = label, source = source, sink = sink, files = files, heartbeat = journal.beat,
        memory = o.memory, parallel = o.parallel, part_size = o.part_size, stall = o.stall,
        on_files = function(list)
            for _, f in ipairs(list) do
                if not f.error and not f.continued then
                    local entry = entry_of(f, wanted[f.path])
                    entries[#entries + 1] = entry
                    journal:add(entry)
                elseif not f.error then
                    doubtful[#doubtful + 1] = wanted[f.path]
                end
            end
            journal:flush()
        end,
    }
    return result, entries, doubtful
end

local function plain(file)
    return { path = file.path, size = file.size, sha256 = file.sha256, blob = file.blob }
end

local function append(list, more)
    table.move(more, 1, #more, #list + 1, list)
end

-- Moves what is missing, reads back what is doubtful, and fetches anew what turns out to be wrong.
local function move_and_check(o, journal, plan, files)
    local model, copy = o.model, o.copy
    local wanted = by_path(files)
    local entries = plan.kept
    local report = { moved = 0, bytes = 0, seconds = 0, retries = 0, checked = #plan.check, failed = {} }
    local function add(result)
        report.bytes, report.retries = report.bytes + result.bytes, report.retries + result.retries
        report.seconds = report.seconds + result.seconds
    end
    local check, again = {}, {}
    for _, f in ipairs(plan.check) do check[#check + 1] = plain(f) end
    if #plan.move > 0 then
        local result, done, doubtful = run_transfer(o, journal, "stage", model:source(), copy:sink(), plan.move)
        add(result)
        append(entries, done)
        append(report.failed, result.failed)
        report.moved = #result.files
        for _, f in ipairs(doubtful) do check[#check + 1] = plain(f) end
    end
    if #check > 0 then
        log.info(("reading back %d files (%s) that an earlier run or another tool has put there"):format(
            #check, units.format_size(total(check))))
        local result, done = run_transfer(o, journal, "check", copy:source(), { kind = "none" }, check)
        append(entries, done)
        for _, f in ipairs(result.failed) do again[#again + 1] = plain(wanted[f.path]) end
    end
    if #again > 0 then
        log.warn(("%d files in the copy are not the published ones: fetched anew"):format(#again))
        local result, done = run_transfer(o, journal, "stage again", model:source(), copy:sink(), again)
        add(result)
        append(entries, done)
        append(report.failed, result.failed)
        report.moved = report.moved + #result.files
    end
    return entries, report
end

local function refuse_failed(failed, location)
    if #failed == 0 then return end
    local names = {}
    for i = 1, math.min(3, #failed) do names[i] = failed[i].path end
    local more = #failed > 3 and (" and %d more"):format(#failed - 3) or ""
    error(errors.new {
        code = "SomeFailed",
        message = ("%s: %d files failed (%s%s), so the copy is not marked complete; the reasons are above, "
            .. "and running it again moves only what is missing"):format(location, #failed, table.concat(names, ", "), more),
    }, 0)
end

-- The last look before the marker: every file is listed with its size.
local function check_sizes(copy, files)
    local there = copy:list()
    for _, f in ipairs(files) do
        local size = there[f.path] and there[f.path].size
        if size ~= f.size then
            error(errors.new {
                code = "SizeMismatch",
                message = ("%s%s: %s where %d bytes belong; the copy is not marked complete, run it again"):format(
                    copy.location, f.path, size and size .. " bytes are listed" or "nothing is listed", f.size),
            }, 0)
        end
    end
end

local function check_space(copy, plan)
    local space, need = copy:space(), total(plan.move)
    if space and need > space then
        error(errors.new {
            code = "ENOSPC",
            message = ("%s: %s are still to be written and %s are free: make room, or use another volume"):format(
                copy.location, units.format_size(need), units.format_size(space)),
        }, 0)
    end
end

local function warn_of_cap(copy, plan, cap)
    if not cap then return end
    local after = copy:bytes_of_all() + total(plan.move)
    if after > cap then
        log.warn(("with this copy the models in the bucket are %s, over the soft cap of %s"):format(
            units.format_size(after), units.format_size(cap)))
    end
end

local function write_complete(o, entries, report)
    table.sort(entries, function(a, b) return a.path < b.path end)
    o.copy:write_marker(marker.COMPLETE, marker.encode_complete {
        repository = o.model.repository, commit = o.model.commit, files = entries,
        finished = iso(o.copy:clock()), by = sys.versions()[1],
    })
    report.entries = entries
end

local function seconds_of(started)
    return started and text.iso_date(started)
end

--- Stages a model; returns when `.complete` is written, or raises the reason why it is not.
---
--- model: of nc.hub. copy: of nc.copy. job: the owner's name in the heartbeat. allow, ignore: lists of
--- patterns. wait: seconds to wait for another stage of the same copy. verify: read back whatever was
--- there before. every: seconds between heartbeats. parallel, part_size, memory, stall:
--- of the transfer.
---@return { already: boolean, files: integer, total: integer, moved: integer, bytes: integer,
---  seconds: number, retries: integer }
function stage.run(options)
    local o = errors.check_options(options, OPTIONS)
    local model, copy = o.model, o.copy
    local files = model:files { allow = o.allow, ignore = o.ignore }
    if #files == 0 then
        error(errors.new {
            code = "NotFound",
            message = ("%s at %s: no file matches; check the revision and the patterns"):format(
                model.repository, model.commit:sub(1, 8)),
        }, 0)
    end
    marker.check_paths(files)
    o.owner = owners.here(o.job)

    local function report_of(r)
        r.files, r.total = #files, total(files)
        return r
    end
    local there, manifest = copy:list(), read_manifest(copy)
    if is_complete(manifest, model, files, there) and not o.verify then
        return report_of { already = true, moved = 0, bytes = 0, seconds = 0, retries = 0 }
    end
    local earlier, finished = wait_for_others(copy, o.owner, o.wait)
    if earlier then
        there, manifest = copy:list(), read_manifest(copy)
        if finished and is_complete(manifest, model, files, there) then
            return report_of { already = true, moved = 0, bytes = 0, seconds = 0, retries = 0 }
        end
        if earlier.commit ~= model.commit then
            earlier = { done = earlier.done, unverified = earlier.unverified }
        end
    end
    local since = seconds_of(earlier and earlier.started)

    local plan = make_plan(files, there, copy, earlier, manifest, o.verify)
    check_space(copy, plan)
    warn_of_cap(copy, plan, o.soft_cap)
    if manifest then copy:remove_marker(marker.COMPLETE) end
    local continued = continue_uploads(plan, copy, our_uploads(copy, files, since))
    since = since or copy:clock()
    local entries, report
    do
        local journal <close> = open_journal(o, copy, model, plan, continued, earlier, since)
        entries, report = move_and_check(o, journal, plan, files)
        refuse_failed(report.failed, copy.location)
        check_sizes(copy, files)
        sweep_uploads(copy, files, since)
        journal.completed = true
    end
    write_complete(o, entries, report)
    return report_of(report)
end

return stage
