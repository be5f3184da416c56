--- Tasks: functions that wait without stopping the others. One thread, coroutines, one event loop.
--
--     local t <close> = task.spawn(work, "a")     -- runs while this task waits
--     task.sleep "2s"
--     print(t:wait())                             -- work's results, or its error
--
-- A task is cancelled by an error that is raised where it waits, so that its `<close>` variables are
-- closed on the way out; what they do may wait too. It is raised once: a task that is being
-- cancelled is left alone to finish. Code that catches every error to try again lets errors with
-- the code "Cancelled" through.

local errors = require "nc.errors"
local log    = require "nc.log"
local loop   = require "nc.core.loop"
local sys    = require "nc.core.sys"
local units  = require "nc.units"

local task = {}

---@class nc.Task
---@field results table?   xpcall's results, once it has ended
local Task = {}
Task.__index = Task
Task.__name = "nc.task"

local current         -- the task that is running
local main            -- the one task.run was given
local ready   = {}    -- tasks to resume, in order
local alive   = {}    -- every task that has not ended, by its number
local births  = 0
local waiting = {}    -- token -> task
local early   = {}    -- token -> value that came before anyone waited for it
local dropped = {}    -- tokens of cancelled waits, whose event may still come
local unseen  = {}    -- tasks that failed and whose error nobody has looked at
local stopped_by      -- the signal that cancelled the main task
local trace   = {}    -- where the last plain-string error came from

local function remember_trace(e)
    if type(e) == "string" and trace.message ~= e then
        trace = { message = e, text = debug.traceback(e, 2) }
    end
    return e
end

--- The traceback of a plain-string error, where one is known.
---@return string?
function task.traceback(e)
    return trace.message == e and trace.text or nil
end

local function make_ready(t, value, err)
    t.value, t.err, t.undo = value, err, nil
    ready[#ready + 1] = t
end

local function finish(t, ...)
    t.results = table.pack(...)
    alive[t.number] = nil
    if not t.results[1] then unseen[t] = true end
    for _, waiter in ipairs(t.waiters) do make_ready(waiter) end
end

-- Stops the running task until someone makes it ready; `undo` takes it off whatever list it is on
-- when it is cancelled instead.
local function suspend(undo)
    local t = current
    if t.pending then
        undo()
        local err = t.pending
        t.pending = nil
        error(err, 0)
    end
    t.undo = undo
    coroutine.yield()
    local value, err = t.value, t.err
    t.value, t.err = nil, nil
    if err then error(err, 0) end
    return value
end

local function check_inside(name)
    if not current then error(name .. ": only a task can wait", 3) end
    if coroutine.running() ~= current.thread then
        error(name .. ": a coroutine inside a task can't wait; use task.spawn", 3)
    end
end

--- Starts fn(...) as a task of its own; it runs when the caller next waits.
---@return nc.Task  `<close>` cancels it and waits for its end
function task.spawn(fn, ...)
    if type(fn) ~= "function" then error("task.spawn needs a function", 2) end
    local args = table.pack(...)
    births = births + 1
    local t = setmetatable({ number = births, waiters = {} }, Task)
    t.thread = coroutine.create(function()
        if t.err then return finish(t, false, t.err) end
        finish(t, xpcall(fn, remember_trace, table.unpack(args, 1, args.n)))
    end)
    alive[t.number] = t
    make_ready(t)
    return t
end

local function join(t)
    if t.results then return end
    local me = current
    table.insert(t.waiters, me)
    suspend(function()
        for i, waiter in ipairs(t.waiters) do
            if waiter == me then return table.remove(t.waiters, i) end
        end
    end)
end

--- Waits for its end; returns its function's results or raises its error.
function Task:wait()
    check_inside "task:wait"
    if self == current then error("a task can't wait for itself", 2) end
    join(self)
    unseen[self] = nil
    if not self.results[1] then error(self.results[2], 0) end
    return table.unpack(self.results, 2, self.results.n)
end

--- Raises err where it waits. Returns at once; does nothing to a task that has ended or was
--- cancelled before.
---@param err any?  default: an error object with the code "Cancelled"
function Task:cancel(err)
    if self.results or self.cancelled then return end
    self.cancelled = true
    err = err or errors.new { code = "Cancelled", message = "cancelled" }
    if self.undo then
        self.undo()
        make_ready(self, nil, err)
    elseif self == current then
        self.pending = err
    else
        self.value, self.err = nil, err -- it is in the queue already
    end
end

local function report(t)
    unseen[t] = nil
    local e = t.results[2]
    if not errors.is(e, "Cancelled") then log.warn("a task failed: " .. tostring(e)) end
end

function Task:__close()
    self:cancel()
    if not self.results then
        check_inside "closing a task"
        join(self)
    end
    if unseen[self] then report(self) end
end

--- Waits for the event that carries this token.
---@param token integer
---@return integer value  what was posted with it
function task.wait(token)
    check_inside "task.wait"
    if early[token] then
        local value = early[token]
        early[token] = nil
        return value
    end
    if waiting[token] then error("task.wait: another task waits for this token", 2) end
    waiting[token] = current
    return suspend(function()
        waiting[token] = nil
        if not loop.cancel(token) then dropped[token] = true end
    end)
end

--- Waits for a time: "250ms", "2s", or seconds.
function task.sleep(time)
    check_inside "task.sleep"
    local seconds = units.duration(time, 2)
    task.wait(loop.timer(seconds))
end

--- Calls fn every so often, first after one period. Calls never overlap: one that takes longer
--- than the period makes the next one late. An error in fn ends it, and t:wait() raises it.
---@return nc.Task
function task.every(period, fn)
    local seconds = units.duration(period, 2)
    if type(fn) ~= "function" then error("task.every needs a function", 2) end
    return task.spawn(function()
        local due = sys.now()
        while true do
            due = math.max(due + seconds, sys.now())
            task.sleep(math.max(0, due - sys.now()))
            fn()
        end
    end)
end

--- Runs fn(...) and returns its results; cancels it when it takes longer than `time`, and raises an
--- error object with the code "Timeout" once it has closed what it held.
function task.deadline(time, fn, ...)
    check_inside "task.deadline"
    local seconds = units.duration(time, 2)
    local work <close> = task.spawn(fn, ...)
    local _ <close> = task.spawn(function()
        task.sleep(seconds)
        work:cancel(errors.new {
            code = "Timeout", retryable = true,
            message = ("not done within %s"):format(units.format_duration(seconds)),
        })
    end)
    return work:wait()
end

--- Runs all functions together and returns the list of their (first) results. The first error
--- cancels the others, waits for them, and is raised.
---@param fns function[]
---@return any[]
function task.all(fns)
    check_inside "task.all"
    local group, failed, results = {}, nil, {}
    local _ <close> = setmetatable({}, {
        __close = function()
            for _, t in ipairs(group) do t:cancel() end
            for _, t in ipairs(group) do
                join(t)
                unseen[t] = nil
            end
        end,
    })
    for i, fn in ipairs(fns) do
        group[i] = task.spawn(function()
            local r = table.pack(xpcall(fn, remember_trace))
            if r[1] then return r[2] end
            failed = failed or r
            for _, t in ipairs(group) do t:cancel() end
            error(r[2], 0)
        end)
    end
    for i, t in ipairs(group) do
        join(t)
        if failed then error(failed[2], 0) end
        results[i] = t:wait()
    end
    return results
end

local function resume(t)
    current = t
    local ok, e = coroutine.resume(t.thread)
    current = nil
    if not ok then error(debug.traceback(t.thread, tostring(e)), 0) end -- a bug of this module
end

local SIGNALS <const> = { [1] = "SIGHUP", [2] = "SIGINT", [15] = "SIGTERM" }

local function on_signal(number)
    if stopped_by then sys.quit(128 + number) end -- the second one means it
    stopped_by = number
    main:cancel(errors.new {
        code = "Cancelled", signal = number, message = "stopped by " .. SIGNALS[number],
    })
end

local function resume_ready()
    -- Those that become ready meanwhile come after the next look at the loop.
    local batch = ready
    ready = {}
    for _, t in ipairs(batch) do resume(t) end
end

local events = {}

local function take_events()
    for i = 1, loop.wait(#ready == 0, events), 2 do
        local token, value = events[i], events[i + 1]
        local t = waiting[token]
        if token == 0 then
            on_signal(value)
        elseif t then
            waiting[token] = nil
            make_ready(t, value)
        elseif dropped[token] then
            dropped[token] = nil
        else
            early[token] = value
        end
    end
end

local function run_until(over)
    resume_ready()
    while not over() do
        take_events()
        resume_ready()
    end
end

--- The signal that has cancelled the main task, if one has.
---@return integer?
function task.stopped_by()
    return stopped_by
end

--- Runs fn(...) as the main task, and the loop until it has ended; then cancels the tasks it has
--- left behind, waits for them, and returns fn's results or raises its error. TERM, INT and HUP
--- cancel the main task; the second signal ends the process at once, with 128 + its number.
function task.run(fn, ...)
    if main then error("task.run: there is a main task already", 2) end
    main = task.spawn(fn, ...)
    run_until(function() return main.results end)
    local left = {}
    for _, t in pairs(alive) do left[#left + 1] = t end
    table.sort(left, function(a, b) return a.number > b.number end)
    for _, t in ipairs(left) do t:cancel() end
    run_until(function() return not next(alive) end)
    unseen[main] = nil
    for t in pairs(unseen) do report(t) end
    if not main.results[1] then error(main.results[2], 0) end
    return table.unpack(main.results, 2, main.results.n)
end

return task
