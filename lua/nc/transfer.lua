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
    "abandon",
    "files", "give_up", "heartbeat", "label", "limit_rate", "memory", "on_files", "parallel", "part_size", "sha256",
    "sink", "source", "stall",
}
local GIVE_UP_S <const> = 600
local WAITING_MOST <const> = 20000 -- files listed and not begun: the lister waits

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

-- What another run may know the content by, to go on with a half-written file.
local function version_of(f)
    return f.version or f.sha256 or f.blob or f.etag
end

local function add(t, f)
    f.version = version_of(f)
    t:add(f)
end

-- Adds what the lister gives, list by list, while the transfer runs.
local function feed(t, lister)
    for list in lister do
        for _, f in ipairs(list) do add(t, f) end
        t:go_on()
        while t:stats().files_waiting > WAITING_MOST do task.sleep "0.05s" end
    end
    t:no_more()
end

-- A lister that fails ends the transfer, with its reason.
local function feeder(t, lister, result)
    return function()
        local ok, e = pcall(feed, t, lister)
        if ok then return end
        result.broken = e
        t:cancel()
    end
end

local function new_result(listed)
    return { files = {}, failed = {}, count = 0, bytes = 0, moved = 0, listed = listed }
end

-- Takes in files that have ended. Where they were listed on the way only the failed are kept: there
-- may be millions.
local function take(result, list)
    for _, f in ipairs(list) do
        if f.error then
            result.failed[#result.failed + 1] = f
            log.error(tostring(f.error))
        else
            result.count, result.bytes, result.moved =
                result.count + 1, result.bytes + f.size, result.moved + f.moved
            if result.listed then result.files[#result.files + 1] = f end
        end
    end
end

local function say_begin(label, s, listed)
    local what = listed
        and ("%d files, %s"):format(s.files_total, units.format_size(s.bytes_total))
        or "listing on the way"
    log.info(("%s: %s; %d parts at a time to begin with, in %s of memory"):format(
        label, what, s.parallel, units.format_size(s.memory)))
end

-- Whatever ends it: each upload is given up, one that can't be is not worth another error.
local function abandoning(t, abandon)
    return setmetatable({}, { __close = function()
        t:stop()
        for _, upload in ipairs(t:unfinished()) do pcall(abandon, upload.path, upload.upload_id) end
    end })
end

--- Moves all files, or raises the reason that all of them share (access refused, no network, disk
--- full). Files that failed for a reason of their own are in `failed`.
---
--- files: { path, size, sha256?, blob?, version?, etag?, part_size?, parts?, upload_id?, etags? }
--- (nc.core.transfer's add), as a list; or a function that returns the next list and at the end nil,
--- so that listing overlaps the transfer: then result.files stays empty.
--- sha256: compute every file's; without it those that are expected, and all that come from a hub.
--- abandon(path, upload_id): called, where the transfer does not come to its end, for each upload that
--- it has begun and not completed; without it they stay, for another run to go on with.
--- on_files(list): called as files end, with what nc.core.transfer's ended gives.
--- limit_rate: bytes a second, in each direction, at most.
--- stall: seconds after which a request that moves nothing is cut and tried again (30).
--- give_up: seconds without a byte of any after which the job fails (600).
---@return { files: table[], failed: table[], count: integer, bytes: integer, moved: integer,
---  seconds: number, retries: integer }  bytes of the files that are done, moved in this run
function transfer.run(options)
    local o = errors.check_options(options, OPTIONS)
    local label = o.label or "transfer"
    local listed = type(o.files) == "table"
    local t <close> = core.new {
        source = o.source, sink = o.sink, memory = o.memory, parallel = o.parallel, part_size = o.part_size,
        limit_rate = o.limit_rate, stall = o.stall, sha256 = o.sha256 or o.source.kind == "hub", growing = not listed,
    }
    local _ <close> = o.abandon and abandoning(t, o.abandon) or nil
    for _, f in ipairs(listed and o.files or {}) do add(t, f) end
    local _ <close> = watch(o.heartbeat, t)
    local result = new_result(listed)
    local function look()
        local list = t:ended()
        take(result, list)
        if #list > 0 and o.on_files then o.on_files(list) end
    end

    local began = sys.now()
    local _ <close> = progress.show(label, function() return t:stats() end)
    local ticker <close> = task.every("0.1s", function()
        look()
        if t:stats().idle_ms > (o.give_up or GIVE_UP_S) * 1000 then
            result.stalled = true
            t:cancel()
        end
    end)
    say_begin(label, t:stats(), listed)
    local over = t:start()
    local _ <close> = not listed and task.spawn(feeder(t, o.files, result)) or nil
    task.wait(over)
    ticker:cancel()
    look()
    local stats = t:stats()
    result.seconds, result.retries = sys.now() - began, stats.retries
    local failure = result.broken or result.stalled and stalled(label, o.give_up or GIVE_UP_S) or t:failure()
    if failure then error(failure, 0) end
    return result
end

return transfer
