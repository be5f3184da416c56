--- Moving a set of files, with progress: the engine of runtime/transfer as one call that waits.
--
--     local done = transfer.run {
--         source = model:source(), sink = copy:sink(), files = files, label = "stage",
--     }
--     done.files, done.failed, done.bytes, done.seconds, done.retries

local core     = require "nc.core.transfer"
local errors   = require "nc.errors"
local log      = require "nc.log"
local progress = require "nc.progress"
local sys      = require "nc.core.sys"
local task     = require "nc.task"
local units    = require "nc.units"

local transfer = {}

local OPTIONS <const> = {
    "files", "give_up", "heartbeat", "label", "memory", "on_files", "parallel", "part_size", "sink",
    "source", "stall",
}
local GIVE_UP_S <const> = 600

local function watch(heartbeat, t)
    if not heartbeat then return nil end
    heartbeat:watch(t)
    return setmetatable({}, { __close = function() heartbeat:watch(nil) end })
end

local function stalled(label, seconds)
    return errors.new {
        code = "Stalled",
        message = ("%s: no byte has moved for %d s; check the network and both ends, then run it again: "
            .. "it goes on from there"):format(label, seconds),
    }
end

--- Moves all files, or raises the reason that all of them share (access refused, no network, disk
--- full). Files that failed for a reason of their own are in `failed`.
---
--- files: { path, size, sha256?, blob?, part_size?, upload_id?, etags? } (nc.core.transfer's add).
--- on_files(list): called as files end, with what nc.core.transfer's ended gives.
--- stall: seconds after which a request that moves nothing is cut and tried again (30).
--- give_up: seconds without a byte of any after which the job fails (600).
---@return { files: table[], failed: table[], bytes: integer, seconds: number, retries: integer }
function transfer.run(options)
    local o = errors.check_options(options, OPTIONS)
    local label = o.label or "transfer"
    local t <close> = core.new {
        source = o.source, sink = o.sink,
        memory = o.memory, parallel = o.parallel, part_size = o.part_size, stall = o.stall,
    }
    for _, f in ipairs(o.files) do
        t:add(f.path, f.size, f.sha256, f.blob, f.part_size, f.upload_id, f.etags)
    end
    local _ <close> = watch(o.heartbeat, t)
    local result = { files = {}, failed = {}, bytes = 0 }
    local function take()
        local list = t:ended()
        for _, f in ipairs(list) do
            local into = f.error and result.failed or result.files
            into[#into + 1] = f
            if f.error then
                log.error(tostring(f.error))
            else
                result.bytes = result.bytes + f.size
            end
        end
        if #list > 0 and o.on_files then o.on_files(list) end
    end

    local began = sys.now()
    local _ <close> = progress.show(label, function() return t:stats() end)
    local ticker <close> = task.every("0.5s", function()
        take()
        if t:stats().idle_ms > (o.give_up or GIVE_UP_S) * 1000 then
            result.stalled = true
            t:cancel()
        end
    end)
    local budget = t:stats()
    log.info(("%s: %d files, %s; up to %d parts at a time in %s of memory"):format(label,
        budget.files_total, units.format_size(budget.bytes_total), budget.parallel,
        units.format_size(budget.memory)))
    task.wait(t:start())
    ticker:cancel()
    take()
    local stats = t:stats()
    result.seconds, result.retries = sys.now() - began, stats.retries
    local failure = result.stalled and stalled(label, o.give_up or GIVE_UP_S) or t:failure()
    if failure then error(failure, 0) end
    return result
end

return transfer
