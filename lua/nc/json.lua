--- JSON text and Lua values.
--
-- Objects are tables with string keys, arrays are lists marked as such (so an empty one stays one),
-- null is json.null, whole numbers stay integers (others are written with 15 digits). What is written is
-- sorted by key: the same value is the same text each time.

local core   = require "nc.core.json"
local errors = require "nc.errors"

local json = {}

local MAX_DEPTH <const> = 64

--- JSON's null: a value of its own, because nil can't stand in a table. It is true in a condition.
json.null = core.null

--- Marks a table as a list: `json.array {}` is written as [].
---@generic T : table
---@param t T?
---@return T
function json.array(t)
    if t ~= nil and type(t) ~= "table" then error("json.array needs a table", 2) end
    return core.array(t or {})
end

--- Raises an error object (code "BadJson") for what is no JSON, for an object with a key twice, and
--- for arrays and objects more than `max_depth` (64) deep.
---@param text string
---@param options { max_depth: integer? }?
---@return any
function json.decode(text, options)
    if type(text) ~= "string" then error("json.decode needs a string", 2) end
    options = errors.check_options(options, { "max_depth" })
    local value, e = core.decode(text, options.max_depth or MAX_DEPTH)
    if e then error(e, 0) end
    return value
end

--- One line, or `indent` blanks a level. A table is a list when json.array or json.decode made it or
--- when its keys are 1..n; an empty unmarked table is {}.
---@param value any
---@param options { indent: integer? }?
---@return string
function json.encode(value, options)
    options = errors.check_options(options, { "indent" })
    local text, why = core.encode(value, options.indent, MAX_DEPTH)
    if not text then error("can't write JSON: the value holds " .. why, 2) end
    return text
end

return json
