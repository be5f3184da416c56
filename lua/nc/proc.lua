--- Child processes, each with a process group of its own.
--
--     local out = proc.capture({ "git", "rev-parse", "HEAD" }, { timeout = "10s" })
--     if out.code == 0 then print(out.stdout) end
--
--     local p <close> = proc.spawn({ "python", "train.py" }, { stdout = "inherit" })
--     return p:wait()                        -- { code = 0 } or { signal = 9 }
--
--     local train <close> = proc.supervise(command, { output = log, grace = "30s" })
--     return train:wait()                    -- signals are passed on; nobody is left when it returns
--
-- A program that can't be started raises an error object: "CommandNotFound" (exit code 127) or
-- "CommandNotExecutable" (126).

local core   = require "nc.core.proc"
local errors = require "nc.errors"
local loop   = require "nc.core.loop"
local runs   = require "nc.core.run"
local sys    = require "nc.core.sys"
local task   = require "nc.task"
local units  = require "nc.units"

local proc = {}

local SIGNALS <const> = { HUP = 1, INT = 2, QUIT = 3, KILL = 9, USR1 = 10, USR2 = 12, TERM = 15, CONT = 18, STOP = 19 }

---@class nc.Process
---@field pid integer
local Process = {}
Process.__index = Process

local SPAWN_OPTIONS <const> = { "cwd", "env", "grace", "stderr", "stdin", "stdout" }
local CAPTURE_OPTIONS <const> = { "cwd", "env", "stdin", "timeout" }

local function check_argv(argv)
    if type(argv) ~= "table" or #argv == 0 then
        error('the command is a list of words, such as { "ls", "-l" }', 3)
    end
    for _, word in ipairs(argv) do
        if type(word) ~= "string" then error("a word of the command is not a string", 3) end
    end
end

-- Our environment with the extra variables; false takes one away.
local function environment(extra)
    local all, list = sys.environ(), {}
    for name, value in pairs(extra or {}) do all[name] = value end
    for name, value in pairs(all) do
        if value then list[#list + 1] = name .. "=" .. tostring(value) end
    end
    table.sort(list)
    return list
end

-- What core.spawn calls it; errors are at the line of proc.spawn's caller.
local function stream_word(stream, where)
    if type(where) == "function" and stream ~= "stdin" then return "pipe" end
    if type(where) ~= "string" then
        error(stream .. ' is "inherit", "null", a path' .. (stream == "stdin" and "" or " or a function"), 3)
    end
    local word = where == "inherit" or where == "null" or (where == "stdout" and stream == "stderr")
    return word and where or "file:" .. where
end

-- Feeds what the child writes to fn until it closes its end. Our end is closed on every way out, so
-- that a child doesn't hang on a pipe that nobody reads.
local function pump(child, stream, fn)
    local _ <close> = setmetatable({}, { __close = function() child:close(stream) end })
    while true do
        local data = child:read(stream)
        if data == "" then return end
        if data then fn(data) else task.wait(loop.watch(child:fd(stream), "r")) end
    end
end

local function feed(child, text)
    local _ <close> = setmetatable({}, { __close = function() child:close "stdin" end })
    local from = 1
    while from and from <= #text do
        local next_from = child:write(text, from)
        if next_from == from then task.wait(loop.watch(child:fd "stdin", "w")) end
        from = next_from
    end
end

-- streams: what core.spawn takes; readers: stream -> function; text: for its stdin
local function start(argv, options, streams, readers, text)
    streams.cwd = options.cwd
    local child = core.spawn(argv, environment(options.env), streams)
    local p = setmetatable({ child = child, pid = child:pid(), pumps = {} }, Process)
    for stream, fn in pairs(readers) do
        table.insert(p.pumps, task.spawn(pump, child, stream, fn))
    end
    if text then table.insert(p.pumps, task.spawn(feed, child, text)) end
    return p
end

--- Starts a process.
---@param argv string[]   the program, looked up in PATH, and its words
---@param options table?  stdout=, stderr= "inherit" (default), "null", a path (appended to) or a function
--- that gets each piece of output in a task of its own, stderr= also "stdout"; stdin= "null" (default),
--- "inherit" or a path; env= { NAME = value | false } on top of ours; cwd=; grace= from TERM to KILL when
--- it is closed ("10s")
---@return nc.Process     `<close>` ends its whole group, if it still runs, and waits for that
function proc.spawn(argv, options)
    check_argv(argv)
    options = errors.check_options(options, SPAWN_OPTIONS)
    local readers = {}
    for _, stream in ipairs { "stdout", "stderr" } do
        if type(options[stream]) == "function" then readers[stream] = options[stream] end
    end
    local streams = {
        stdin = stream_word("stdin", options.stdin or "null"),
        stdout = stream_word("stdout", options.stdout or "inherit"),
        stderr = stream_word("stderr", options.stderr or "inherit"),
    }
    local grace = units.duration(options.grace or "10s", 2)
    local p = start(argv, options, streams, readers)
    p.grace = grace
    return p
end

local function wait_exit(self)
    while not self.child:reap() do task.wait(loop.watch(self.child:exit_fd(), "r")) end
end

local function drain(self)
    for _, t in ipairs(self.pumps) do t:wait() end
end

--- Waits until it has ended and all its output was read.
---@return { code: integer?, signal: integer? }
function Process:wait()
    wait_exit(self)
    drain(self)
    local code, signal = self.child:reap()
    return signal == 0 and { code = code } or { signal = signal }
end

--- Sends a signal to its whole group: "TERM", "KILL", ... or a number. False when it has ended.
---@return boolean
function Process:kill(signal)
    local number = SIGNALS[signal] or math.tointeger(signal)
    if not number then
        local names = {}
        for name in pairs(SIGNALS) do names[#names + 1] = name end
        table.sort(names)
        error(errors.unknown("signal", signal, names), 2)
    end
    return self.child:signal(number)
end

-- Whether fn(...) was done in time; what else goes wrong is raised.
local function within(time, fn, ...)
    local ok, e = pcall(task.deadline, time, fn, ...)
    if not ok and not errors.is(e, "Timeout") then error(e, 0) end
    return ok
end

-- Waits until nobody of its group is left.
local function gone(self)
    wait_exit(self)
    while self.child:signal_rest(0) do task.sleep "10ms" end
end

function Process:__close()
    local child <close> = self.child
    if not child:reap() then
        child:signal(SIGNALS.TERM)
        child:signal(SIGNALS.CONT) -- or one that is stopped would not notice
        if not within(self.grace, gone, self) then
            child:signal_rest(SIGNALS.KILL)
            wait_exit(self)
            within("1s", gone, self)
        end
    end
    -- Its last words may be in the pipes still; whoever else holds their other end is not waited for.
    if #self.pumps > 0 then within("1s", drain, self) end
    for _, t in ipairs(self.pumps) do
        local _ <close> = t
    end
end

--- Runs a command to its end and returns what it wrote.
---@param argv string[]
---@param options table?  stdin= text (default: empty); timeout= (default: none); env=, cwd= as proc.spawn
---@return { code: integer?, signal: integer?, stdout: string, stderr: string }
function proc.capture(argv, options)
    check_argv(argv)
    options = errors.check_options(options, CAPTURE_OPTIONS)
    local timeout = options.timeout and units.duration(options.timeout, 2)
    local out, err, result = {}, {}, nil
    local function run()
        local streams = { stdin = options.stdin and "pipe" or "null", stdout = "pipe", stderr = "pipe" }
        local p <close> = start(argv, options, streams, {
            stdout = function(data) out[#out + 1] = data end,
            stderr = function(data) err[#err + 1] = data end,
        }, options.stdin)
        p.grace = 1
        result = p:wait()
    end
    if not timeout then
        run()
    elseif not within(timeout, run) then
        error(errors.new {
            code = "Timeout", op = "run", retryable = true,
            message = ("run %s: not done within %s"):format(argv[1], units.format_duration(timeout)),
        }, 0)
    end
    result.stdout, result.stderr = table.concat(out), table.concat(err)
    return result
end

-- ---- the command that this process is there for ----

---@class nc.Supervised
local Supervised = {}
Supervised.__index = Supervised

local SUPERVISE_OPTIONS <const> = { "cwd", "env", "grace", "output", "stdin" }

-- What a command without an output of its own is given: our stdout.
local function plain_output()
    return {
        sinks = function() return { runs.sink(1) } end,
        share = function() return 0 end,
        hurry = function() end,
        nudge = function() end,
        say = function() end,
    }
end

--- From now on USR1 and USR2, which a batch system may send at any time, don't end us. Those that come
--- before the command are dropped.
function proc.hold_signals()
    runs.hold_signals()
end

--- Runs the command this process is there for: TERM, INT, HUP, QUIT, USR1 and USR2 go to its process
--- group, zombies are reaped (also as PID 1), and when it ends so does everything it has started. TERM
--- or INT gives all of them the grace, then SIGKILL; a second one leaves a second of it. One at a time.
---@param argv string[]
---@param options table?  output= where stdout and stderr go, in one (nc.logs; default: our stdout);
--- grace= from TERM to the end of all ("30s"), the output's share of it included; env=, cwd= as
--- proc.spawn; stdin= "null" or "inherit" (default, where it is no terminal)
---@return nc.Supervised  `<close>` stops it, if it still runs, and waits
function proc.supervise(argv, options)
    check_argv(argv)
    local o = errors.check_options(options, SUPERVISE_OPTIONS)
    local grace = units.duration(o.grace or "30s", 2)
    local output = o.output or plain_output()
    local ok, command = pcall(runs.supervise, argv, environment(o.env), {
        grace = grace - output:share(grace),
        cwd = o.cwd,
        -- A terminal would stop a background process group that reads from it.
        stdin = o.stdin or (sys.isatty(0) and "null" or "inherit"),
    }, output:sinks())
    if not ok then
        output:say(tostring(command))
        error(command, 0)
    end
    local told, over, warned = command:tokens()
    return setmetatable({
        core = command,
        teller = task.spawn(function()
            task.wait(told)
            output:hurry(sys.now() + grace)
        end),
        warner = task.spawn(function()
            while true do
                task.wait(warned)
                output:nudge()
            end
        end),
        -- A task of its own: whoever waits for it may be cancelled, and wait again to close it.
        ended = task.spawn(task.wait, over),
    }, Supervised)
end

--- Whether the command itself has ended; what it has started may be there still.
---@return boolean
function Supervised:has_ended()
    return self.core:ended()
end

--- Waits until it and all it has started have ended, and their output is where it goes.
---@return { code: integer?, signal: integer? }
function Supervised:wait()
    self.ended:wait()
    local code, signal = self.core:result()
    return signal == 0 and { code = code } or { signal = signal }
end

function Supervised:__close()
    local _ <close> = self.core
    local _ <close> = self.teller
    local _ <close> = self.warner
    if not self.ended.results then
        self.core:stop()
        self.ended:wait()
    end
end

return proc
