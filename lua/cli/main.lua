--- The command line: finds the command or the recipe, runs it as the main task, ends with its code.

local errors = require "nc.errors"
local log    = require "nc.log"
local task   = require "nc.task"

-- Each is a module cli.<name> that returns { run = function(args) -> exit code }.
local COMMANDS <const> = {
    cat = "cli.cat", check = "cli.check", cp = "cli.cp", ls = "cli.ls", rm = "cli.rm", sync = "cli.sync",
    help = "cli.help", ["-h"] = "cli.help", ["--help"] = "cli.help",
    list = "cli.list",
    render = "cli.render",
    test = "cli.test",
    version = "cli.version", ["--version"] = "cli.version",
}

-- What is written as for aws, options of the whole first and then its service ("--endpoint-url X s3 ls
-- ..."), in our order: the command first.
local function as_ours(args)
    local first = 1
    while args[first] and args[first]:find "^%-%-" do
        first = first + (args[first]:find "=" and 1 or 2)
    end
    if args[first] == "s3" and COMMANDS[args[first + 1]] then table.remove(args, first) end
    if first > 1 and COMMANDS[args[first]] then table.insert(args, 1, table.remove(args, first)) end
    return args
end

local function dispatch(args)
    log.format(os.getenv "NCRUN_LOG")
    if #args == 0 then
        error(errors.usage "needs a script or a command; `ncrun help` lists them", 0)
    end
    local command = COMMANDS[args[1]]
    if command then return require(command).run(table.move(args, 2, #args, 1, {})) end
    return require "cli.script".run(args)
end

-- Work that failed has said it all in its sentence; anything else is a bug in a script.
local function explain(e)
    if log.is_json() then
        log.error(tostring(e), { code = errors.is(e) and e.code or nil })
    else
        io.stderr:write("ncrun: ", log.clean(tostring(e)), "\n")
    end
    local trace = os.getenv "NCRUN_DEBUG" and task.traceback(e)
    if trace then io.stderr:write(log.clean(trace), "\n") end
end

local ok, result = pcall(task.run, dispatch, as_ours { ... })
if ok then return result end
explain(result)
local signal = task.stopped_by()
return signal and 128 + signal or errors.exit_code(result)
