--- ncrun help [SCRIPT | COMMAND]

local command = require "cli.command"
local list    = require "cli.list"
local recipe  = require "nc.recipe"
local render  = require "cli.render"
local scripts = require "cli.scripts"

local help = {}

local USAGE <const> = [[
ncrun runs recipes that move the bytes of an AI job and look after its process.

  ncrun SCRIPT [name=value ...] [-- command ...]   run a recipe: a file, or one of those below
  ncrun render [SCRIPT] [name=value ...]           Kubernetes manifests: the catalog, or a script's own
  ncrun help [SCRIPT | COMMAND]                    this text, or a recipe's parameters
  ncrun list                                       the recipes inside this binary
  ncrun version                                    what this is and what it runs with
  ncrun test [spec ...]                            busted in this runtime (default: spec/lua)

%s

Recipes:
%s

Environment: NCRUN_LOG=json makes log lines objects; NCRUN_DEBUG=1 adds tracebacks.

Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 access refused, 5 no space or quota left,
6 some files failed, 126 a command that can't be run, 127 a command that is not there,
128+n stopped by signal n; a supervised command's own code otherwise.]]

local function describe(name)
    local script = scripts.find(name)
    for _, line in ipairs(scripts.comment(script)) do print(line) end
    -- A script that is no recipe works as it loads: it is not for us to start.
    if not script.text:find("nc.recipe", 1, true) then return end
    local r = scripts.load(script)()
    if not recipe.is(r) then return end
    print(("\nncrun %s [name=value ...]%s"):format(script.name, r.command and " [-- command ...]" or ""))
    for _, line in ipairs(r:describe()) do print(line) end
end

-- "  ncrun cp [-r] FROM TO      summary" for each command of its own.
local function command_lines(commands)
    local lines = {}
    for name, c in pairs(commands) do
        lines[#lines + 1] = ("  %-48s %s"):format(("ncrun %s %s"):format(name, c.operands), c.summary)
    end
    table.sort(lines)
    return table.concat(lines, "\n")
end

---@param args string[]
function help.run(args)
    local commands = command.all()
    if args[1] == "render" then
        print(render.describe())
    elseif commands[args[1]] then
        print(commands[args[1]]:describe())
    elseif args[1] then
        describe(args[1])
    else
        print(USAGE:format(command_lines(commands), table.concat(list.lines(), "\n")))
    end
    return 0
end

return help
