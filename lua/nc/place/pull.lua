--- Bringing one copy of the weights onto the NVMe, once: what is there and right stays, what is missing
--- moves, and nothing that the copy does not list is touched.

local disk     = require "nc.core.disk"
local errors   = require "nc.errors"
local log      = require "nc.log"
local plans    = require "nc.stage.plan"
local sys      = require "nc.core.sys"
local transfer = require "nc.transfer"
local units    = require "nc.units"

local pull = {}

---@class nc.place.Source
---@field name string     "volume", "bucket", "hub"
---@field files table[]   { path, size, sha256?, blob?, part_size?, parts?, version?, etag? }
---@field source table    of nc.transfer

-- What the engine is to compare: each part, where the copy lists them, which spares it the whole file's
-- digest, and lets it fetch again a bad part alone.
local function asked(f)
    return {
        path = f.path, size = f.size, sha256 = not f.parts and f.sha256 or nil, blob = f.blob,
        part_size = f.part_size, parts = f.parts, version = f.version or f.sha256, etag = f.etag,
    }
end

-- What is known of a file that has come. One that a file system has cloned was not looked at; where
-- nothing could be compared, its size is what counts.
local function known(f, wanted)
    if not f.verified and (wanted.parts or wanted.sha256 or wanted.blob) then return nil end
    local parts = wanted.parts and wanted or f
    return {
        path = f.path, sha256 = f.sha256 or wanted.sha256, blob = wanted.blob,
        part_size = parts.part_size, parts = parts.parts,
    }
end

-- Runs one transfer, keeping in `here` what has ended well.
local function run(o, here, files, options)
    local wanted, list = plans.by_path(files), {}
    for i, f in ipairs(files) do list[i] = asked(f) end
    options.files, options.memory, options.parallel = list, o.memory, o.parallel
    options.stall, options.heartbeat, options.limit_rate = o.stall, o.beat, o.limit_rate
    options.on_files = function(ended)
        for _, f in ipairs(ended) do
            local entry = not f.error and known(f, wanted[f.path])
            if entry then here:add(entry) end
        end
        here:flush()
    end
    return transfer.run(options)
end

--- Reads files of the NVMe back. Those that are right are known from then on.
---@return table[] bad  the others
function pull.check(o, here, files)
    if #files == 0 then return {} end
    log.info(("reading back %d files (%s) on the NVMe"):format(#files, units.format_size(plans.total(files))))
    local wanted, bad = plans.by_path(files), {}
    local result = run(o, here, files, { label = "check", source = here.copy:source(), sink = { kind = "none" } })
    for _, f in ipairs(result.failed) do
        here:refuse(f.path)
        bad[#bad + 1] = wanted[f.path]
    end
    if #bad > 0 then
        log.warn(("%d files on the NVMe are not what they should be (%s%s)"):format(
            #bad, bad[1].path, #bad > 1 and ", ..." or ""))
    end
    return bad
end

-- Removes what dead placers have left half-written, but for what the engine will go on with or remove
-- itself: that of files which are to be moved. Returns the bytes that these hold.
local function clear_temporaries(here, moving)
    local held, folder = 0, here.copy.folder .. "/"
    for _, left in ipairs(here.copy:temporaries()) do
        local there = disk.look(folder .. left.temp)
        if moving[left.path] then
            held = held + (there and there.allocated or 0)
        else
            disk.remove(folder .. left.temp)
        end
    end
    for _, name in ipairs(sys.readdir(here.copy.folder)) do -- markers that were being written
        if name:find "^%.[%w.]+%.%d+%.part$" then disk.remove(folder .. name) end
    end
    return held
end

local function check_space(here, files, held)
    local space, need = here.copy:space(), plans.total(files)
    if space and need > space + held then
        error(errors.new {
            code = "ENOSPC",
            message = ("%s: %s are still to be written and %s are free: make room, or set nvme= to a larger disk")
                :format(here.copy.location, units.format_size(need), units.format_size(space + held)),
        }, 0)
    end
end

-- One reason for all that failed: that the copy is damaged, where it is nothing else.
local function refuse_failed(failed, source)
    if #failed == 0 then return end
    local first, damaged = failed[1].error, true
    for _, f in ipairs(failed) do damaged = damaged and errors.is(f.error, "DigestMismatch") end
    error(errors.new {
        code = damaged and "DamagedCopy" or "SomeFailed", retryable = not damaged,
        message = ("%d files could not be brought from the %s (%s%s): %s"):format(
            #failed, source.name, failed[1].path, #failed > 1 and ", ..." or "", tostring(first)),
    }, 0)
end

--- Brings all files of a source here, or raises the reason why not all of them are. Every file that is
--- there afterwards is whole.
---@param o { memory: integer?, parallel: integer?, stall: number?, limit_rate: integer?, beat: userdata? }
---@param here nc.place.Placed
---@param source nc.place.Source
---@return { moved: integer, kept: integer, bytes: integer, seconds: number, retries: integer }
function pull.run(o, here, source)
    local plan = here:plan(source.files)
    local move = plan.move
    for _, f in ipairs(pull.check(o, here, plan.check)) do move[#move + 1] = f end
    local report = { moved = #move, kept = #source.files - #move, bytes = 0, seconds = 0, retries = 0 }
    local held = clear_temporaries(here, plans.by_path(move))
    if #move == 0 then return report end
    check_space(here, move, held)
    here:unmark()
    here:flush(true)
    local result = run(o, here, move, { label = "place", source = source.source, sink = here.copy:sink() })
    report.bytes, report.seconds, report.retries = result.moved, result.seconds, result.retries
    here:flush(true)
    refuse_failed(result.failed, source)
    return report
end

return pull
