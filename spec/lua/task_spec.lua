local errors = require "nc.errors"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

-- Something with a lifetime that notes its end.
local function closing(fn)
    return setmetatable({}, { __close = function(_, e) fn(e) end })
end

describe("task.spawn", function()
    it("runs a function beside the caller and hands over its results", function()
        local t <close> = task.spawn(function(a, b)
            task.sleep "10ms"
            return a + b, nil, "c"
        end, 1, 2)
        assert.same({ 3, nil, "c", n = 3 }, table.pack(t:wait()))
        assert.equal(3, t:wait())
    end)

    it("raises the function's error where it is waited for", function()
        local t <close> = task.spawn(function() error "broken" end)
        local ok, e = pcall(t.wait, t)
        assert.is_false(ok)
        assert.matches("task_spec.lua:%d+: broken", e)
        assert.matches("task_spec.lua", task.traceback(e))
    end)

    it("wakes everyone who waits for it", function()
        local t <close> = task.spawn(function() task.sleep "10ms" return "done" end)
        local got = task.all {
            function() return t:wait() end,
            function() return t:wait() end,
        }
        assert.same({ "done", "done" }, got)
    end)

    it("can't be waited for by itself", function()
        local t
        t = task.spawn(function() t:wait() end)
        assert.has_error(function() t:wait() end)
    end)

    it("keeps many tasks at once", function()
        local sum, fns = 0, {}
        for i = 1, 2000 do
            fns[i] = function()
                task.sleep(i % 7 / 1000)
                sum = sum + i
            end
        end
        task.all(fns)
        assert.equal(2001000, sum)
    end)
end)

describe("cancelling", function()
    it("runs <close> handlers on the way out", function()
        local closed_with
        do
            local t <close> = task.spawn(function()
                local _ <close> = closing(function(e) closed_with = e end)
                task.sleep "1h"
            end)
            task.sleep "1ms"
            t:cancel()
        end
        assert.is_true(errors.is(closed_with, "Cancelled"))
    end)

    it("lets a <close> handler wait", function()
        local steps = {}
        do
            local _ <close> = task.spawn(function()
                local _ <close> = closing(function()
                    task.sleep "5ms"
                    table.insert(steps, "outer")
                end)
                local _ <close> = closing(function()
                    task.sleep "5ms"
                    table.insert(steps, "inner")
                end)
                task.sleep "1h"
            end)
            task.sleep "1ms"
        end
        assert.same({ "inner", "outer" }, steps)
    end)

    it("does not interrupt a handler when it comes twice", function()
        local finished = false
        local t <close> = task.spawn(function()
            local _ <close> = closing(function()
                task.sleep "20ms"
                finished = true
            end)
            task.sleep "1h"
        end)
        task.sleep "1ms"
        t:cancel()
        task.sleep "1ms"
        t:cancel()
        pcall(t.wait, t)
        assert.is_true(finished)
    end)

    it("goes down a tree of tasks", function()
        local closed = {}
        local function branch(depth)
            local _ <close> = closing(function() table.insert(closed, depth) end)
            if depth == 4 then return task.sleep "1h" end
            local left <close> = task.spawn(branch, depth + 1)
            local right <close> = task.spawn(branch, depth + 1)
            left:wait()
            right:wait()
        end
        local t = task.spawn(branch, 1)
        task.sleep "5ms"
        t:cancel()
        pcall(t.wait, t)
        table.sort(closed)
        assert.same({ 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4 }, closed)
    end)

    it("keeps a task that has not begun from beginning", function()
        local ran = false
        local t = task.spawn(function() ran = true end)
        t:cancel()
        local ok, e = pcall(t.wait, t)
        assert.is_false(ok)
        assert.is_true(errors.is(e, "Cancelled"))
        assert.is_false(ran)
    end)

    it("reaches a task that cancels itself where it waits next", function()
        local me, after
        me = task.spawn(function()
            me:cancel()
            task.sleep(0)
            after = true
        end)
        assert.is_false((pcall(me.wait, me)))
        assert.is_nil(after)
    end)

    it("can carry another error", function()
        local t = task.spawn(task.sleep, "1h")
        task.sleep(0)
        t:cancel(errors.new { code = "Stalled", message = "no byte for 30s" })
        local _, e = pcall(t.wait, t)
        assert.equal("no byte for 30s", tostring(e))
    end)
end)

describe("task.sleep", function()
    it("takes its time, and orders the sleepers", function()
        local order, begun = {}, sys.now()
        task.all {
            function() task.sleep(0.03) table.insert(order, 3) end,
            function() task.sleep "10ms" table.insert(order, 1) end,
            function() task.sleep "20ms" table.insert(order, 2) end,
        }
        assert.same({ 1, 2, 3 }, order)
        assert.is_true(sys.now() - begun >= 0.03)
    end)

    it("names the caller's line on misuse", function()
        local _, e = pcall(function() task.sleep "soon" end)
        assert.matches('^spec/lua/task_spec.lua:%d+: "soon" is not a duration', e)
    end)

    it("refuses to wait in a coroutine that is no task", function()
        local _, e = coroutine.resume(coroutine.create(function() task.sleep(0) end))
        assert.matches("task_spec.lua:%d+: task.sleep: a coroutine inside a task can't wait", e)
    end)
end)

describe("task.every", function()
    it("ticks until it is closed", function()
        local ticks = 0
        do
            local _ <close> = task.every("10ms", function() ticks = ticks + 1 end)
            task.sleep "55ms"
        end
        local at_close = ticks
        assert.is_true(at_close >= 3 and at_close <= 5, at_close .. " ticks")
        task.sleep "30ms"
        assert.equal(at_close, ticks)
    end)

    it("never overlaps itself", function()
        local running, most, ticks = 0, 0, 0
        do
            local _ <close> = task.every("2ms", function()
                running = running + 1
                most = math.max(most, running)
                task.sleep "10ms"
                running, ticks = running - 1, ticks + 1
            end)
            task.sleep "60ms"
        end
        assert.equal(1, most)
        assert.is_true(ticks >= 2 and ticks <= 5, ticks .. " ticks")
    end)

    it("ends at an error, and keeps it", function()
        local ticks = 0
        local t <close> = task.every("1ms", function()
            ticks = ticks + 1
            if ticks == 3 then error("third time", 0) end
        end)
        local ok, e = pcall(t.wait, t)
        assert.is_false(ok)
        assert.equal("third time", e)
        assert.equal(3, ticks)
    end)
end)

describe("task.deadline", function()
    it("returns what was done in time", function()
        assert.same({ 1, 2 }, { task.deadline("1s", function(a) task.sleep(0) return a, 2 end, 1) })
    end)

    it("cancels what was not, closes it, and says so", function()
        local closed, begun = false, sys.now()
        local ok, e = pcall(task.deadline, "20ms", function()
            local _ <close> = closing(function() closed = true end)
            task.sleep "1h"
        end)
        assert.is_false(ok)
        assert.is_true(errors.is(e, "Timeout"))
        assert.is_true(e.retryable)
        assert.is_true(closed)
        assert.is_true(sys.now() - begun < 1)
    end)

    it("passes on errors", function()
        local _, e = pcall(task.deadline, "1s", function() error("no", 0) end)
        assert.equal("no", e)
    end)
end)

describe("task.all", function()
    it("returns the results in order", function()
        assert.same({ 1, 2 }, task.all {
            function() task.sleep "5ms" return 1 end,
            function() return 2 end,
        })
        assert.same({}, task.all {})
    end)

    it("raises the first error once the others are closed", function()
        local closed = false
        local ok, e = pcall(task.all, {
            function()
                local _ <close> = closing(function()
                    task.sleep "5ms"
                    closed = true
                end)
                task.sleep "1h"
            end,
            function() task.sleep "1ms" error("first", 0) end,
        })
        assert.is_false(ok)
        assert.equal("first", e)
        assert.is_true(closed)
    end)

    it("is cancelled as a whole", function()
        local closed = 0
        local function member()
            local _ <close> = closing(function() closed = closed + 1 end)
            task.sleep "1h"
        end
        local t = task.spawn(task.all, { member, member, member })
        task.sleep "5ms"
        t:cancel()
        local _, e = pcall(t.wait, t)
        assert.is_true(errors.is(e, "Cancelled"))
        assert.equal(3, closed)
    end)
end)
