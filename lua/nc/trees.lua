--- Copying a tree of files from one place to another: bucket or folder to bucket or folder.
--
--     local from <close> = stores.open "s3://bucket/data/"
--     local to <close> = stores.open "./data"
--     local report = trees.copy { from = from, to = to, overwrite = "changed" }
--
-- The whole list is looked at before anything is written: names that can't be written refuse it, and so
-- does a lack of space. Of a list of more than 10,000 files so many are looked at before the first is
-- begun; then listing and copying overlap, each page being looked at before its files are begun.
--
-- A tree that has a `.complete` manifest at its top (nc.marker) is copied as what the manifest lists:
-- a file that is missing or has another size refuses it, and every byte is checked against the
-- manifest's digests. `.complete` markers are written last, when all the files are there, and those
-- that are replaced go first; `.staging` belongs to whoever writes it and is never copied.

local errors  = require "nc.errors"
local compare = require "nc.trees.compare"
local log     = require "nc.log"
local marker  = require "nc.marker"
local moving  = require "nc.trees.move"
local names   = require "nc.trees.names"
local sys     = require "nc.core.sys"
local units   = require "nc.units"

local trees = {}

local OPTIONS <const> = {
    "delete", "done", "from", "label", "limit_rate", "memory", "overwrite", "parallel", "part_size", "planned",
    "removed", "to", "verify", "wanted",
}
local OVERWRITE <const> = { yes = true, no = true, changed = true }
local FIRST <const> = 10000 -- files that are listed before anything moves
local PAGE <const> = 1000    -- ... and then at a time
local MANIFEST_MAX <const> = 1 << 30
-- What nobody expects in a copy; anything else that can't be read is a file that failed.
local NO_FILES <const> = {
    ["a device"] = true, ["a pipe"] = true, ["a socket"] = true, ["half of a file that is on its way"] = true,
}

-- Whether the last part of the path is this.
local function is_marker(path, name)
    return path:sub(-#name) == name and (#path == #name or path:sub(-#name - 1, -#name - 1) == "/")
end

-- ---- the manifest ----

-- The files that the tree's manifest lists, by path, or nil; then "bare" where it has one that lists
-- none, "none" where it has none.
local function read_manifest(store)
    local text = store:read(marker.COMPLETE, MANIFEST_MAX)
    if not text then return nil, "none" end
    local ok, manifest = pcall(marker.decode_complete, text)
    if not ok then
        error(errors.new {
            code = "BadMarker",
            message = ("%s: %s; copy it with verify=no, or stage it again"):format(store:url(marker.COMPLETE),
                tostring(manifest)),
        }, 0)
    end
    if manifest.bare then return nil, "bare" end
    local known = {}
    for _, f in ipairs(manifest.files) do known[f.path] = f end
    return known
end

local function refuse_broken(location, path, why)
    error(errors.new {
        code = "BadMarker",
        message = ("%s is marked complete, but %s %s: stage it again, or copy it with verify=no"):format(
            location, path, why),
    }, 0)
end

-- What the manifest says of a file, which must be true of its size.
local function look_up(job, file)
    local known = job.known and job.known[file.path]
    if not known then return nil end
    job.met = job.met + 1
    if known.size ~= file.size then
        refuse_broken(job.from.location, file.path, ("has %d bytes, not %d"):format(file.size, known.size))
    end
    return known
end

-- ---- the plan ----

local function nothing() return nil end

local function filtered(next_file, wanted, staging)
    return function()
        local file = next_file()
        while file and (is_marker(file.path, marker.STAGING) or (wanted and not wanted(file.path))) do
            if file.path == marker.STAGING and staging then staging() end
            file = next_file()
        end
        return file
    end
end

local function list_source(job)
    return filtered(job.from:list {
        skipped = function(path, what)
            if job.wanted and not job.wanted(path) then return end
            log.warn(("%s is %s: skipped"):format(job.from:url(path), what))
            if not NO_FILES[what] then
                table.insert(job.report.failed, { path = path, error = errors.new {
                    code = "NotFound", message = job.from:url(path) .. " is " .. what,
                } })
            end
        end,
    }, job.wanted, job.unmarked and function()
        log.warn(("%s has a %s and no %s: a stage of it is on its way, or was cut short"):format(
            job.from.location, marker.STAGING, marker.COMPLETE))
    end)
end

local function list_target(job)
    if job.overwrite == "yes" and not job.delete then return nothing end
    return filtered(job.to:list { may_be_absent = true }, job.wanted)
end

local function must_move(job, file, there)
    local known = look_up(job, file)
    if not there or job.overwrite == "yes" then return true end
    if job.overwrite == "no" then return false end
    -- A marker that is not the source's would vouch for files that are no longer there.
    if is_marker(file.path, marker.COMPLETE) then
        return job.from:read(file.path, MANIFEST_MAX) ~= job.to:read(file.path, MANIFEST_MAX)
    end
    return not compare.is_same(file, there, known, job.known_there and job.known_there[file.path])
end

local function check_met(job)
    if not job.known or job.wanted or job.met == job.known_count then return end
    for path in pairs(job.known) do
        if not job.from:stat(path) then refuse_broken(job.from.location, path, "is not there") end
    end
end

-- Calls give the files to move, one by one in order; what is there already is counted, what is only
-- there is noted.
local function plan(job)
    local check = names.checker(job.to.kind, job.to.prefix and #job.to.prefix or 0)
    local next_pair = compare.side_by_side(list_source(job), list_target(job))
    local report = job.report
    return function()
        while true do
            local file, there = next_pair()
            if not file and not there then
                check_met(job)
                return nil
            end
            if not file then
                if job.delete then job.extra[#job.extra + 1] = there.path end
            else
                report.listed = report.listed + 1
                check(file)
                if must_move(job, file, there) then return file end
                report.kept = report.kept + 1
            end
        end
    end
end

-- Up to `most` of the files to move: { files, folders, markers, need = bytes, last = whether there are
-- no more }.
local function take_batch(job, next_file, most)
    local batch = { files = {}, folders = {}, markers = {}, need = 0 }
    for _ = 1, most do
        local file = next_file()
        if not file then
            batch.last = true
            break
        end
        if is_marker(file.path, marker.COMPLETE) then
            table.insert(batch.markers, file)
        elseif job.to.kind == "folder" and file.path:sub(-1) == "/" then
            table.insert(batch.folders, file.path)
        else
            table.insert(batch.files, file)
            local begun = job.to.kind == "folder" and job.to:begun(file.path) or 0
            batch.need = batch.need + math.max(0, file.size - begun)
        end
    end
    return batch
end

-- All that has been listed has to fit into what was free before the first byte.
local function check_space(job, batch)
    job.need = job.need + batch.need
    job.space = job.space or job.to:space()
    if job.space and job.need > job.space then
        error(errors.new {
            code = "ENOSPC",
            message = ("%s: %s are to be written and %s were free: make room, or copy to another disk"):format(
                job.to.location, units.format_size(job.need), units.format_size(job.space)),
        }, 0)
    end
end

local function refuse_nothing(job)
    if job.report.listed > 0 then return end
    local why = job.wanted and "no file there is one that include= and exclude= leave" or "there is no file"
    local more = job.delete and ", and with delete=yes nothing would be left of the copy" or ""
    error(errors.new {
        code = "NotFound",
        message = ("%s: %s: nothing to copy%s; check the name"):format(job.from.location, why, more),
    }, 0)
end

-- ---- the work ----

local function paths_of(files)
    local paths = {}
    for i, file in ipairs(files) do paths[i] = file.path end
    return paths
end

local function remove(job, paths)
    local lost = {}
    for _, f in ipairs(job.to:remove(paths)) do
        log.error(f.message)
        lost[f.path] = true
        table.insert(job.report.failed, { path = f.path, error = errors.new {
            code = "NotRemoved", message = f.message,
        } })
    end
    for _, path in ipairs(paths) do
        if not lost[path] then
            job.report.removed = job.report.removed + 1
            if job.removed then job.removed(path) end
        end
    end
end

-- What comes before a batch's files are begun.
local function prepare(job, batch)
    check_space(job, batch)
    for _, f in ipairs(job.to:remove(paths_of(batch.markers))) do
        error(errors.new {
            code = "NotRemoved", message = f.message .. ": the copy would be marked complete too early",
        }, 0)
    end
    for _, path in ipairs(batch.folders) do sys.mkdir(job.to:url(path:gsub("/$", ""))) end
    table.move(batch.markers, 1, #batch.markers, #job.markers + 1, job.markers)
end

local function copy_files(job, next_file)
    local first = take_batch(job, next_file, FIRST)
    prepare(job, first)
    if first.last then
        if #first.files > 0 then moving.move(job, first.files, job.report) end
        return
    end
    moving.move(job, function()
        local batch = first
        if not batch then
            batch = take_batch(job, next_file, PAGE)
            prepare(job, batch)
        end
        first = nil
        if #batch.files > 0 or not batch.last then return batch.files end
    end, job.report)
end

-- What comes after all files are there: markers, and the end of what is no longer in the source.
local function finish(job)
    if #job.report.failed > 0 then
        if #job.markers + #job.extra > 0 then
            log.warn "some files failed: nothing is marked complete, and nothing is removed"
        end
        return
    end
    if #job.markers > 0 then moving.move(job, job.markers, job.report) end
    if #job.extra > 0 then remove(job, job.extra) end
end

local function announce(job, next_file)
    for file in next_file do job.planned("copy", file.path) end
    refuse_nothing(job)
    for _, path in ipairs(job.extra) do job.planned("delete", path) end
end

local function refuse_overlap(from, to)
    if from.kind == to.kind and to:is_inside(from) then
        error(errors.usage("%s lies in %s: a tree can't be copied into itself", to.location, from.location), 0)
    end
end

local function new_job(o)
    local job = setmetatable({
        report = moving.new_report(), markers = {}, extra = {}, need = 0, met = 0, known_count = 0,
        label = o.label or "copy", overwrite = o.overwrite or "yes",
    }, { __index = o })
    job.report.listed, job.report.kept, job.report.removed = 0, 0, 0
    if not OVERWRITE[job.overwrite] then error('overwrite is "yes", "no" or "changed"', 3) end
    if o.verify == false then return job end
    local why
    job.known, why = read_manifest(o.from)
    job.report.unverified, job.unmarked = why == "bare", why == "none"
    for _ in pairs(job.known or {}) do job.known_count = job.known_count + 1 end
    if job.overwrite == "changed" and job.known then
        local ok, known = pcall(read_manifest, o.to) -- one that can't be read vouches for nothing
        if ok then job.known_there = known elseif not errors.is(known, "BadMarker") then error(known, 0) end
    end
    return job
end

--- Copies all that `from` holds. Returns what came of it, or raises what stopped it all; files that
--- failed on their own are in `failed`, and then no marker is written and nothing is removed.
---
--- overwrite: of what is there already, "yes" (the default) copies all anew, "no" keeps every name that
--- is there, "changed" copies what nc.trees.compare finds to be different.
--- delete: remove what is only in `to`; never when `from` is empty.
--- wanted(path): which files this is about, on both sides; all unless given.
--- verify: false: neither look at manifests nor check against their digests.
--- planned("copy" | "delete", path): called for what would be done, in place of doing it.
--- done(path), removed(path): called for each file that was.
--- parallel, part_size, memory, limit_rate: as of nc.transfer.
---@return { files: integer, bytes: integer, kept: integer, removed: integer, verified: integer,
---  unverified: boolean?, listed: integer, seconds: number, retries: integer, failed: table[] }
---  unverified: the source is marked complete by a tool that listed no digests
function trees.copy(options)
    local o = errors.check_options(options, OPTIONS)
    refuse_overlap(o.from, o.to)
    local job = new_job(o)
    local next_file = plan(job)
    if o.planned then
        announce(job, next_file)
    else
        copy_files(job, next_file)
        refuse_nothing(job)
        finish(job)
    end
    return job.report
end

return trees
