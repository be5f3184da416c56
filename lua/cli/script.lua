--- ncrun SCRIPT [name=value ...] [-- command ...]

local recipe  = require "nc.recipe"
local scripts = require "cli.scripts"

local script = {}

---@param args string[]  the script and its own words
function script.run(args)
    local found = scripts.find(args[1])
    local rest = table.move(args, 2, #args, 1, {})
    -- A script that is no recipe does its work right here, with the words as its `...`.
    local value = scripts.load(found)(table.unpack(rest))
    if recipe.is(value) then return value:main(rest) end
    return math.type(value) == "integer" and value or 0
end

return script
