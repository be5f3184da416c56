-- A supervised run as PID 1 of a PID namespace, as in a container.
local helper = require "spec.helper"
local logging = require "spec.logging"

-- Orphans of all kinds, then `rest`.
local function script(rest)
    return [[(setsid sleep 71.5 &); (sh -c 'sleep 0.1 & sleep 0.1 & exit' &); (setsid sh -c 'exit 1' &)
        echo start; ]] .. rest
end

local function start(env, options, line)
    local argv = { "unshare", "-pf", "--mount-proc", helper.NCRUN, "recipes/nanogpt.lua", "pod=pod",
        "logs=/none", "volume=/none" }
    table.move(options, 1, #options, #argv + 1, argv)
    table.move({ "--", "sh", "-c", line }, 1, 4, #argv + 1, argv)
    return helper.start(argv, { env = env })
end

-- Our number for its PID 1, once that holds TERM for its program. Before, the kernel drops the TERM of
-- a PID 1 and there is nothing that a program could do about it.
local function pid1(run)
    return helper.eventually(10, "PID 1 with TERM blocked", function()
        local children = helper.read(("/proc/%d/task/%d/children"):format(run.pid, run.pid)) or ""
        local pid = children:match "%d+"
        local status = pid and helper.read("/proc/" .. pid .. "/status") or ""
        local blocked = tonumber(status:match "SigBlk:%s*(%x+)" or "0", 16)
        return status:find "Name:%s*ncrun" and blocked & (1 << 14) ~= 0 and pid
    end)
end

describe("as PID 1", function()
    for _, delay in ipairs { 0.001, 0.05, 1 } do
        it(("a run told to stop %g s after its start leaves nobody and a whole log"):format(delay), function()
            local server <close> = helper.server()
            local run <close> = start(server.env, { "grace=9s" },
                script "trap 'echo told; exit 7' TERM; i=0; while [ $i -lt 300 ]; do sleep 0.05; i=$((i+1)); done")
            local pid = pid1(run)
            os.execute("sleep " .. delay)
            os.execute("kill -TERM " .. pid)
            local code, out, err = run:wait(20)
            assert.is_true(code == 143 or code == 7, ("%d: %s"):format(code, err))
            if delay == 1 then assert.truthy(out:find "told") end
            local object = logging.object(server.env)
            if object or out ~= "" then assert.equal(out, object) end
            assert.is_false(logging.alive "sleep 71.5")
        end)
    end

    it("or not, a run is told to stop after 30 s too, and leaves nobody and a whole log", function()
        local server <close> = helper.server()
        local line = script "trap 'echo told; exit 7' TERM; while :; do sleep 0.05; done"
        local first <close> = start(server.env, { "every=7s" }, line)
        local pid = pid1(first)
        local second <close> = logging.start(server.env, { "job=plain", "every=7s" }, line)
        os.execute "sleep 30"
        os.execute("kill -TERM " .. pid)
        second:kill "TERM"
        for _, run in ipairs { first, second } do
            local code, out, err = run:wait(20)
            assert.equal(7, code, err)
            assert.truthy(out:find "told\n$")
            assert.equal(out, logging.object(server.env, "pod", run == first and "nanogpt" or "plain"))
        end
        assert.is_false(logging.alive "sleep 71.5")
    end)

    it("a run reaps every zombie and keeps the command's code", function()
        local run <close> = start({}, {}, script [[sleep 1; echo zombies: $(grep -l 'State:.Z' /proc/[0-9]*/status |
            wc -l); exit 5]])
        local code, out, err = run:wait(20)
        assert.equal(5, code, err)
        assert.truthy(out:find "zombies: 0\n", out)
        assert.is_false(logging.alive "sleep 71.5")
    end)
end)
