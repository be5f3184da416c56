--- Moves listed files from one place to another, and notices those that changed meanwhile.

local errors   = require "nc.errors"
local log      = require "nc.log"
local transfer = require "nc.transfer"

-- A file of a folder that is not what it was when it was listed: the error, or nil. One that has only
-- grown (a log) is whole as far as it went.
local function changed(from, file)
    local now = from.kind == "folder" and from:stat(file.path)
    if from.kind ~= "folder" or (now and now.size == file.size and now.modified == file.modified) then return nil end
    if now and now.size > file.size then
        log.warn(("%s grew while it was copied: the copy is its first %d bytes"):format(from:url(file.path), file.size))
        return nil
    end
    return errors.new {
        code = "Changed",
        message = ("%s changed while it was copied: the copy may be part old, part new; copy it again"):format(
            from:url(file.path)),
    }
end

--- Counts of what was done, which moves add to.
local function new_report()
    return { files = 0, bytes = 0, verified = 0, seconds = 0, retries = 0, failed = {} }
end

-- What the engine is told of a file besides its name and size: its digests where `known`, the tree's
-- manifest, has them, and by what its content is recognised when a copy of it is continued. Where each
-- part has a digest, they say as much as the one of all, for a fraction of the work.
local function entry_of(file, known)
    local entry = {
        path = file.path, size = file.size, modified = file.modified, etag = file.etag,
        version = known and known.sha256 or file.etag or ("%d:%.6f"):format(file.size, file.modified),
    }
    if known then
        entry.part_size, entry.parts = known.part_size, known.parts
        if not known.parts then entry.sha256 = known.sha256 end
    end
    return entry
end

--- Moves files and adds to the report what came of it: files, bytes, verified (against a digest),
--- seconds, retries, failed = { { path, error } ... }. Raises what stops all of them.
---@param o { from: table, to: table, label: string, known: table?, done: fun(path: string)?,
---  parallel: integer?, part_size: integer?, memory: integer?, limit_rate: integer? }
---@param files table[]|fun(): table[]?   of the source's list; a function gives list after list
---@param report table    of new_report
local function move(o, files, report)
    local under_way = {}
    local function entries_of(list)
        local entries = {}
        for i, file in ipairs(list) do
            entries[i] = entry_of(file, o.known and o.known[file.path])
            under_way[file.path] = entries[i]
        end
        return entries
    end
    local function next_entries()
        local list = files()
        return list and entries_of(list)
    end
    local result = transfer.run {
        label = o.label, source = o.from:source(), sink = o.to:sink(),
        abandon = o.to.abort_upload and function(...) o.to:abort_upload(...) end,
        files = type(files) == "function" and next_entries or entries_of(files),
        parallel = o.parallel, part_size = o.part_size, memory = o.memory, limit_rate = o.limit_rate,
        on_files = function(list)
            for _, f in ipairs(list) do
                local entry = under_way[f.path]
                under_way[f.path] = nil
                local later = not f.error and changed(o.from, entry)
                if later then log.error(tostring(later)) end
                if f.error or later then
                    report.failed[#report.failed + 1] = { path = f.path, error = f.error or later }
                else
                    report.files, report.bytes = report.files + 1, report.bytes + f.size
                    if f.verified then report.verified = report.verified + 1 end
                    if o.done then o.done(f.path) end
                end
            end
        end,
    }
    report.seconds, report.retries = report.seconds + result.seconds, report.retries + result.retries
end

return { move = move, new_report = new_report }
