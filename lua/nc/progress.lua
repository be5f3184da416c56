--- Showing how far something is: a bar on a terminal, elsewhere a line every 10 s that reads well in
--- `kubectl logs`.

local log   = require "nc.log"
local sys   = require "nc.core.sys"
local task  = require "nc.task"
local units = require "nc.units"

local progress = {}

local LINE_EVERY <const> = "10s"
local BAR_EVERY <const> = "0.2s"
local WINDOW_S <const> = 10 -- the rate shown is that of the last seconds

local function new_meter()
    local samples = {}
    return function(bytes)
        local now = sys.now()
        samples[#samples + 1] = { now, bytes }
        while #samples > 2 and now - samples[2][1] > WINDOW_S do table.remove(samples, 1) end
        local first = samples[1]
        local seconds = now - first[1]
        return seconds > 0 and math.max(0, bytes - first[2]) / seconds or 0
    end
end

-- Only what is stored counts: what was handed to the network may still have a long way to go.
local function done_of(s)
    return math.min(s.bytes_total, s.bytes_done)
end

local function time_left(s, rate)
    local left = s.bytes_total - done_of(s)
    return rate > 0 and units.format_duration(left / rate) or "-"
end

--- `stage  [#####.....]  52%  1.2 GiB of 2.3 GiB  3/9 files  310.2 MiB/s  4s left`, cut to a width.
---@return string
function progress.bar(label, s, rate, columns)
    local share = s.bytes_total > 0 and done_of(s) / s.bytes_total or 1
    local width = 20
    local full = math.floor(share * width)
    local line = ("%s [%s%s] %3d%%  %s of %s  %d/%d files  %s  %s left"):format(
        label, ("#"):rep(full), ("."):rep(width - full), math.floor(share * 100),
        units.format_size(done_of(s)), units.format_size(s.bytes_total), s.files_done, s.files_total,
        units.format_rate(rate), time_left(s, rate))
    return line:sub(1, math.max(0, columns - 1))
end

--- The same as a sentence for a log.
---@return string
function progress.line(label, s, rate)
    return ("%s: %s of %s, %d of %d files, %s, %s left%s"):format(
        label, units.format_size(done_of(s)), units.format_size(s.bytes_total), s.files_done,
        s.files_total, units.format_rate(rate), time_left(s, rate),
        s.retries > 0 and (", %d retries"):format(s.retries) or "")
end

--- Shows stats() (as of nc.core.transfer) until it is closed.
---@return table closable
function progress.show(label, stats)
    if log.quiet() then return setmetatable({}, { __close = function() end }) end
    local rate_of = new_meter()
    rate_of(done_of(stats()))
    local columns = not log.is_json() and sys.isatty(2) and sys.columns(2)
    local shown = task.every(columns and BAR_EVERY or LINE_EVERY, function()
        local s = stats()
        local rate = rate_of(done_of(s))
        if columns then
            io.stderr:write("\r\27[K", progress.bar(label, s, rate, columns))
        else
            log.info(progress.line(label, s, rate))
        end
    end)
    return setmetatable({}, {
        __close = function()
            shown:cancel()
            if columns then io.stderr:write "\r\27[K" end
        end,
    })
end

return progress
