--- What a command prints as its result, on stdout. That nobody reads it any more (`| head`) ends the
--- program as the signal would that others get; that it can't be stored is an error. A reader that is
--- slow holds up nothing but the printing.

local errors  = require "nc.errors"
local streams = require "nc.streams"
local sys     = require "nc.core.sys"

local output = {}

local SIGPIPE <const> = 13
local BUFFER <const> = 1 << 16
local WAIT_S <const> = 0.5 -- what was printed is seen within this time, if more is printed

local to_stdout = streams.to_fd(1)
local is_terminal = sys.isatty(1)
local lines, length = {}, 0
local written = sys.now()

--- Bytes as they are.
function output.write(bytes)
    local ok, e = pcall(to_stdout, bytes)
    if ok then return end
    if errors.is(e, "EPIPE") then sys.quit(128 + SIGPIPE) end
    error(e, 0)
end

--- To be called last: what is only in the buffer has not been printed.
function output.finish()
    if length == 0 then return end
    local text = table.concat(lines, "\n") .. "\n"
    lines, length, written = {}, 0, sys.now()
    output.write(text)
end

function output.line(text)
    lines[#lines + 1] = text
    length = length + #text + 1
    if length >= BUFFER or is_terminal or sys.now() - written > WAIT_S then output.finish() end
end

--- A name without the control characters that a terminal would obey.
---@return string
function output.clean(name)
    return (name:gsub("%c", "?"))
end

return output
