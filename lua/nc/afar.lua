--- Looks at folders that may not answer: a network mount whose server is gone holds whoever touches it. The
--- task waits, the others go on; one that is cancelled leaves the look behind.
--
--     task.deadline("30s", afar.read, "/mnt/shared/models/inkling/.complete")

local core = require "nc.core.afar"
local task = require "nc.task"

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

return afar
