local errors = require "nc.errors"
local proc   = require "nc.proc"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

local function sh(script, ...) return { "sh", "-c", script, "sh", ... } end

local function running(pid)
    local f <close> = io.open(("/proc/%d/stat"):format(pid))
    local state = f and f:read "a":match "%) (%a)"
    return state ~= nil and state ~= "Z"
end

describe("proc.capture", function()
    it("gives exit code and both outputs", function()
        local r = proc.capture(sh "echo out; echo err >&2; exit 3")
        assert.same({ code = 3, stdout = "out\n", stderr = "err\n" }, r)
    end)

    it("feeds stdin and reads back more than a pipe holds", function()
        local text = ("0123456789abcdef"):rep(65536)
        assert.equal(text, proc.capture({ "cat" }, { stdin = text }).stdout)
    end)

    it("survives a child that does not read its stdin", function()
        assert.equal(0, proc.capture({ "true" }, { stdin = ("x"):rep(1 << 20) }).code)
    end)

    it("adds to the environment and takes from it", function()
        local r = proc.capture(sh 'echo "$ADDED ${HOME-none}"; pwd', {
            env = { ADDED = "yes", HOME = false }, cwd = "/",
        })
        assert.equal("yes none\n/\n", r.stdout)
    end)

    it("names the signal that ended it", function()
        assert.same({ signal = 9, stdout = "", stderr = "" }, proc.capture(sh "kill -9 $$"))
    end)

    it("gives up after its timeout and leaves nobody running", function()
        local begun = sys.now()
        local ok, e = pcall(proc.capture, { "sleep", "60" }, { timeout = "50ms" })
        assert.is_false(ok)
        assert.is_true(errors.is(e, "Timeout"))
        assert.equal("run sleep: not done within 0.1s", tostring(e))
        assert.is_true(sys.now() - begun < 5)
    end)

    it("tells a missing program from one that can't be run", function()
        local _, missing = pcall(proc.capture, { "no-such-command" })
        local _, plain = pcall(proc.capture, { "/etc/passwd" })
        assert.equal("start no-such-command: command not found", tostring(missing))
        assert.equal(127, errors.exit_code(missing))
        assert.equal(126, errors.exit_code(plain))
        local _, nowhere = pcall(proc.capture, { "ls" }, { cwd = "/no/such/folder" })
        assert.is_true(errors.is(nowhere, "ENOENT"))
    end)

    it("names the caller's line on misuse", function()
        for _, misuse in ipairs {
            function() proc.capture "ls" end,
            function() proc.capture {} end,
            function() proc.capture({ "ls" }, { timout = "1s" }) end,
            function() proc.capture({ "ls" }, { timeout = "soon" }) end,
            function() proc.spawn({ "ls" }, { stdin = 5 }) end,
            function() proc.spawn({ "ls", 5 }) end,
        } do
            local _, e = pcall(misuse)
            assert.matches("^spec/lua/proc_spec.lua:%d+: ", e)
        end
    end)
end)

describe("proc.spawn", function()
    it("hands output to a function as it comes", function()
        local pieces = {}
        local p <close> = proc.spawn(sh "echo one; sleep 0.1; echo two; echo three >&2", {
            stdout = function(data) table.insert(pieces, data) end, stderr = "stdout",
        })
        assert.same({ code = 0 }, p:wait())
        assert.equal("one\n", pieces[1])
        assert.equal("one\ntwo\nthree\n", table.concat(pieces))
    end)

    it("appends to a file", function()
        local folder = sys.mkdtemp()
        local path = folder .. "/log"
        for _ = 1, 2 do
            local p <close> = proc.spawn({ "echo", "line" }, { stdout = path, stderr = "null" })
            p:wait()
        end
        local f <close> = io.open(path)
        assert.equal("line\nline\n", f:read "a")
        os.remove(path)
        os.remove(folder)
    end)

    it("ends the whole group when it is closed", function()
        local out = ""
        local pids = {}
        do
            local _ <close> = proc.spawn(sh "sleep 60 & echo $$ $!; wait", {
                stdout = function(data) out = out .. data end,
            })
            for _ = 1, 200 do
                if out:find "\n" then break end
                task.sleep "10ms"
            end
            for pid in out:gmatch "%d+" do
                table.insert(pids, math.tointeger(pid))
                assert.is_true(running(pid))
            end
            assert.equal(2, #pids)
        end
        assert.is_false(running(pids[1]))
        assert.is_false(running(pids[2]))
    end)

    it("gives its grace to what a shell has started, too", function()
        local out = ""
        do
            local _ <close> = proc.spawn(sh [[
                sh -c 'trap "sleep 0.2; echo cleaned up; exit" TERM; echo ready; while :; do sleep 0.02; done' &
                wait
            ]], { stderr = "null", stdout = function(data) out = out .. data end })
            for _ = 1, 200 do
                if out:find "ready" then break end
                task.sleep "10ms"
            end
        end
        assert.equal("ready\ncleaned up\n", out)
    end)

    it("kills one that ignores TERM, after its grace", function()
        local begun, killed = sys.now(), {}
        do
            local ready = false
            local p <close> = proc.spawn(sh "trap '' TERM; echo ready; while :; do sleep 0.1; done", {
                grace = "100ms", stdout = function() ready = true end,
            })
            for _ = 1, 200 do
                if ready then break end
                task.sleep "10ms"
            end
            killed[1] = p
        end
        assert.same({ signal = 9 }, killed[1]:wait())
        assert.is_true(sys.now() - begun < 5)
    end)

    it("is closed when its task is cancelled", function()
        local pid
        local t = task.spawn(function()
            local p <close> = proc.spawn { "sleep", "60" }
            pid = p.pid
            p:wait()
        end)
        task.sleep "10ms"
        assert.is_true(running(pid))
        t:cancel()
        pcall(t.wait, t)
        assert.is_false(running(pid))
    end)

    it("gives the child a clean slate of signals", function()
        local r = proc.capture { "grep", "SigBlk", "/proc/self/status" }
        assert.equal("SigBlk:\t0000000000000000\n", r.stdout)
    end)

    it("signals by name, and lists the names", function()
        local p <close> = proc.spawn { "sleep", "60" }
        local _, e = pcall(function() p:kill "TREM" end)
        assert.matches('proc_spec.lua:%d+: unknown signal "TREM" %(did you mean "TERM"%?%)', e)
        assert.is_true(p:kill "USR1")
        assert.same({ signal = 10 }, p:wait())
        assert.is_false(p:kill "TERM")
    end)

    it("raises what its output function raises", function()
        local p = proc.spawn(sh "yes", { stdout = function() error("full", 0) end })
        local ok, e = pcall(p.wait, p)
        assert.is_false(ok)
        assert.equal("full", e)
    end)

    it("can be waited for by several tasks", function()
        local p <close> = proc.spawn(sh "sleep 0.05; exit 4")
        local function wait() return p:wait().code end
        assert.same({ 4, 4 }, task.all { wait, wait })
    end)
end)
