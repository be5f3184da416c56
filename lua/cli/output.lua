--- What a command prints as its result, on stdout. That nobody reads it any more (`| head`) ends the
--- program as the signal would that others get; that it can't be stored is an error.

local errors = require "nc.errors"
local sys    = require "nc.core.sys"

local output = {}

local EPIPE <const>, ENOSPC <const>, SIGPIPE <const> = 32, 28, 13

local function check(ok, why, code)
    if ok then return end
    if code == EPIPE then sys.quit(128 + SIGPIPE) end
    error(errors.new {
        code = code == ENOSPC and "ENOSPC" or "EIO", message = "write to stdout: " .. why,
    }, 0)
end

--- Control characters in a name must not reach a terminal as such.
---@return string
function output.clean(name)
    return (name:gsub("%c", "?"))
end

function output.line(text)
    check(io.stdout:write(text, "\n"))
end

--- To be called last: what is only in a buffer has not been printed.
function output.finish()
    check(io.stdout:flush())
end

return output
