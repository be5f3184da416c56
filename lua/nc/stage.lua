--- Staging a checkpoint: from the hub into a copy, every file checked, the marker last.
--
--     local report = stage.run { model = hub:pin "owner/name", copy = copy, job = "stage-weights" }
--
-- What is there already is not moved again (nc.stage.plan says how that is decided), and a run that
-- was killed is gone on with (nc.stage.journal, nc.stage.uploads).
-- An upload that was under way is continued; its file is read back once it is whole, since the bytes
-- of its earlier parts went by another process.

local errors   = require "nc.errors"
local journals = require "nc.stage.journal"
local log      = require "nc.log"
local marker   = require "nc.marker"
local owners   = require "nc.owner"
local plans    = require "nc.stage.plan"
local sys      = require "nc.core.sys"
local task     = require "nc.task"
local transfer = require "nc.transfer"
local units    = require "nc.units"
local uploads  = require "nc.stage.uploads"

local stage = {}

local OPTIONS <const> = {
    "allow", "copy", "every", "ignore", "job", "limit_rate", "memory", "model", "parallel", "part_size", "soft_cap",
    "stall", "verify", "wait",
}
local LOOK_EVERY <const> = "5s" -- at a stage of somebody else's

local function iso(seconds)
    return os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(seconds))
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

-- A file that was taken by its size is listed without a digest.
local function covers(manifest, files)
    local listed = plans.by_path(manifest.files)
    for _, f in ipairs(files) do
        local known = listed[f.path]
        if not known or known.size ~= f.size or plans.differ(known, f) then return false end
    end
    return true
end

-- A complete copy of this very commit.
local function is_complete(manifest, model, files, there)
    if not manifest or not all_there(files, there) then return false end
    return manifest.bare or (manifest.commit == model.commit and covers(manifest, files))
end

local function describe_stage(s, age)
    return ("%s stages it: %s of %s, heartbeat %s old"):format(
        s.owner.job and owners.describe(s.owner) or "somebody (the heartbeat can't be read)",
        units.format_size(s.bytes_done), units.format_size(s.bytes_total), units.format_duration(age))
end

local function busy(location, line, wait_s)
    return errors.new {
        code = "Busy",
        message = ("%s: %s; gave up after %s: stop that job, or allow a longer wait="):format(
            location, line, units.format_duration(wait_s)),
    }
end

-- The heartbeat (and its ETag) of a stage that is or was at work here, once it is over, dead or gone,
-- or once is_done() says that there is nothing left to do.
local function wait_for_others(copy, me, wait_s, is_done)
    local began, said = sys.now(), nil
    while true do
        local body, age, etag = copy:read_marker(marker.STAGING)
        if not body then return nil end
        local s = marker.decode_staging(body)
        if s.ended or age >= marker.FRESH_S or owners.is_gone(s.owner, me, age) or is_done() then
            return s, etag
        end
        local line = describe_stage(s, age)
        if sys.now() - began > wait_s then error(busy(copy.location, line, wait_s), 0) end
        if not said or sys.now() - said > 60 then
            log.info(copy.location .. ": " .. line .. "; waiting, so that nothing is downloaded twice")
            said = sys.now()
        end
        task.sleep(LOOK_EVERY)
    end
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
    local wanted, entries, doubtful = plans.by_path(files), {}, {}
    local result = transfer.run {
        label = label, source = source, sink = sink, files = files, heartbeat = journal.beat, sha256 = true,
        memory = o.memory, parallel = o.parallel, part_size = o.part_size, stall = o.stall,
        limit_rate = o.limit_rate,
        on_files = function(list)
            for _, f in ipairs(list) do
                journal.orphans[f.path] = f.orphans or nil
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
    local wanted = plans.by_path(files)
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
            #check, units.format_size(plans.total(check))))
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
            .. "and running it again moves only what is missing"):format(
                location, #failed, table.concat(names, ", "), more),
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
    local space, need = copy:space(), plans.total(plan.move)
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
    local after = copy:bytes_of_all() + plans.total(plan.move)
    if after > cap then
        log.warn(("with this copy the models in the bucket are %s, over the soft cap of %s"):format(
            units.format_size(after), units.format_size(cap)))
    end
end

local function write_complete(o, entries, report)
    table.sort(entries, function(a, b) return a.path < b.path end)
    o.copy:write_marker(marker.COMPLETE, marker.encode_complete {
        repository = o.model.repository, commit = o.model.commit, files = entries,
        finished = iso(o.copy:clock()), by = sys.versions()[1], allow = o.allow, ignore = o.ignore,
    })
    report.entries = entries
end

-- Takes the copy. What an earlier run has left under way is listed before, so that the first heartbeat
-- names the files whose bytes will not all go by here. Returns nil where somebody was quicker.
local function claim(o, plan, files, earlier, seen)
    local strangers = earlier and earlier.strangers or uploads.strangers(o.copy)
    local same = earlier and earlier.commit == o.model.commit
    local left = earlier and uploads.ours(o.copy, plans.by_path(files), strangers) or {}
    local moving = same and plans.by_path(plan.move) or {}
    local unverified = earlier and earlier.unverified or {}
    for _, upload in ipairs(left) do
        if moving[upload.path] then unverified[upload.path] = true end
    end
    local journal = journals.open {
        owner = o.owner, model = o.model, copy = o.copy, every = o.every, kept = plan.kept,
        started = same and earlier.started or iso(o.copy:clock()),
        unverified = unverified, strangers = strangers, seen = seen,
    }
    return journal, function() uploads.continue(o.copy, moving, left) end
end

-- An upload whose beginning was answered too late was begun again: the first one is nobody's.
local function remove_orphans(copy, journal)
    if not next(journal.orphans) then return end
    for _, upload in ipairs(uploads.ours(copy, journal.orphans, journal.strangers)) do copy:abort(upload) end
end

-- Two repositories of one name would lie over each other.
local function check_repository(manifest, model, copy)
    local other = manifest and manifest.repository
    if not other or other == model.repository then return end
    error(errors.new {
        code = "Usage",
        message = ("%s holds a copy of %s, not of %s: give this one another folder with name=, or remove %s%s first")
            :format(copy.location, other, model.repository, copy.location, marker.COMPLETE),
    }, 0)
end

-- What another revision or another tool has put there is not ours to remove.
local function warn_of_others(copy, files, there)
    local listed, others = plans.by_path(files), {}
    for path in pairs(there) do
        if not listed[path] then others[#others + 1] = path end
    end
    if #others == 0 then return end
    table.sort(others)
    log.warn(("%s: %d files are not of this revision (%s%s) and were left alone"):format(
        copy.location, #others, others[1], #others > 1 and ", ..." or ""))
end

-- All that is done while the copy is ours.
local function stage_claimed(o, open_journal, go_on, plan, files, manifest)
    local copy = o.copy
    local entries, report
    do
        local journal <close> = open_journal
        warn_of_cap(copy, plan, o.soft_cap)
        if manifest then copy:remove_marker(marker.COMPLETE) end
        go_on()
        entries, report = move_and_check(o, journal, plan, files)
        refuse_failed(report.failed, copy.location)
        check_sizes(copy, files)
        remove_orphans(copy, journal)
        journal:complete()
    end
    write_complete(o, entries, report)
    return report
end

--- Stages a model; returns when `.complete` is written, or raises the reason why it is not.
---
--- model: of nc.hub. copy: of nc.copy. job: the owner's name in the heartbeat. allow, ignore: lists of
--- patterns. wait: seconds to wait for another stage of the same copy. verify: read back whatever was
--- there before. every: seconds between heartbeats. parallel, part_size, memory, limit_rate,
--- stall: of the transfer.
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
        r.files, r.total = #files, plans.total(files)
        return r
    end
    local there, manifest
    local function is_done()
        there, manifest = copy:list(), read_manifest(copy)
        return is_complete(manifest, model, files, there)
    end
    local nothing = { already = true, moved = 0, bytes = 0, seconds = 0, retries = 0 }
    local plan, journal, go_on
    while not journal do
        if is_done() and not o.verify then return report_of(nothing) end
        local earlier, seen = wait_for_others(copy, o.owner, o.wait, is_done)
        if is_done() and not o.verify then return report_of(nothing) end
        check_repository(manifest, model, copy)
        plan = plans.make(files, there, copy, earlier, manifest, o.verify)
        check_space(copy, plan)
        journal, go_on = claim(o, plan, files, earlier, seen)
    end
    local report = stage_claimed(o, journal, go_on, plan, files, manifest)
    warn_of_others(copy, files, there)
    return report_of(report)
end

return stage
