--- Looks at folders that may not answer: a network mount whose server is gone holds whoever touches it. The
--- task waits, the others go on; one that is cancelled leaves the look behind.
--
--     local ok, text = afar.within(30, afar.read, "/mnt/shared/models/inkling/.complete")

local core   = require "nc.core.afar"
local errors = require "nc.errors"
local sys    = require "nc.core.sys"
local task   = require "nc.task"
local units  = require "nc.units"

local afar = {}

local function ask(what, path)
    local question <close>, token = core.ask(what, path)
    task.wait(token)
    return question:answer()
end

--- A file's bytes and when it was written (seconds since 1970), or nil where it is not there.
---@return string?, number?
function afar.read(path)
    return ask("read", path)
end

--- The plain files below a folder, links followed: { path, size, mtime, path, size, mtime, ... }, or nil where the
--- folder is not there.
---@return any[]?
function afar.list(folder)
    return ask("list", folder)
end

--- Seconds since 1970 by the clock of whoever keeps the folder: what it gives to a new file.
---@return number
function afar.clock(folder)
    return ask("clock", folder)
end

--- Calls fn(...), which has that many seconds. Returns true and its result, or false and its error, with the code
--- "NoAnswer" where the time was over; but raises what is no error object, and what cancels the caller itself.
---@param seconds number
function afar.within(seconds, fn, ...)
    local began = sys.now()
    local ok, result = pcall(task.deadline, seconds, fn, ...)
    if ok then return true, result end
    if errors.is(result, "Timeout") and sys.now() - began >= seconds then
        return false, errors.new {
            code = "NoAnswer", message = ("it did not answer in %s"):format(units.format_duration(seconds)),
        }
    end
    if not errors.is(result) or errors.is(result, "Timeout") or errors.is(result, "Cancelled") then error(result, 0) end
    return false, result
end

return afar
