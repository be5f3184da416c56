--- ncrun list: the recipes inside this binary.

local scripts = require "cli.scripts"
local sys     = require "nc.core.sys"

local list = {}

--- "name  summary" for each.
---@return string[]
function list.lines()
    local lines = {}
    for _, name in ipairs(scripts.embedded()) do
        local r = scripts.load { name = name, text = sys.embedded(name) }()
        lines[#lines + 1] = ("  %-16s %s"):format(name:match "^recipes/(.*)%.lua$", r.summary)
    end
    return lines
end

function list.run()
    for _, line in ipairs(list.lines()) do print(line) end
    return 0
end

return list
