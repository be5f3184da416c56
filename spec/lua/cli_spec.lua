-- The command line as a child process, as a person or a pod starts it.

local proc = require "nc.proc"
local sys  = require "nc.core.sys"
local task = require "nc.task"

local NCRUN <const> = os.getenv "NCRUN" or "build/ncrun"

local folder

local function write(name, text)
    local path = folder .. "/" .. name
    local f <close> = assert(io.open(path, "w"))
    f:write(text)
    return path
end

local function ncrun(args, options)
    options = options or {}
    options.timeout = "20s"
    return proc.capture({ NCRUN, table.unpack(args) }, options)
end

-- Starts a script, waits until it has said "up", sends signals, returns how it ended and what it wrote.
local function signalled(script, ...)
    local out = ""
    local p <close> = proc.spawn({ NCRUN, script }, {
        stdout = function(data) out = out .. data end, stderr = "stdout",
    })
    for _, signal in ipairs { ... } do
        for _ = 1, 500 do
            if out:find "up" then break end
            task.sleep "10ms"
        end
        out = out:gsub("up", "UP")
        p:kill(signal)
    end
    local result = task.deadline("10s", p.wait, p)
    return result.code, out
end

local RECIPE <const> = [[
--- Copy a thing.
--
--   ncrun copy.lua model=x

local recipe = require "nc.recipe"

return recipe {
    summary = "Copy a thing.",
    params = {
        model = { nil, "what to copy", required = true, env = "MODEL" },
        every = { "60s", "how often", type = "duration" },
    },
    command = { "true" },
    run = function(p, command)
        print(p.model, p.every, table.concat(command, " "))
        return 9
    end,
}
]]

describe("ncrun", function()
    setup(function() folder = sys.mkdtemp() end)
    teardown(function()
        for _, name in ipairs(sys.readdir(folder)) do os.remove(folder .. "/" .. name) end
        os.remove(folder)
    end)

    it("shows an error in a script with file and line, and ends with 1", function()
        local path = write("broken.lua", "local x\nprint('before')\nprint(x.y)\n")
        local r = ncrun { path }
        assert.equal(1, r.code)
        assert.equal("before\n", r.stdout)
        assert.equal(("ncrun: %s:3: attempt to index a nil value (local 'x')\n"):format(path), r.stderr)
        r = ncrun({ path }, { env = { NCRUN_DEBUG = "1" } })
        assert.matches("stack traceback:\n.*broken.lua:3: in main chunk", r.stderr)
    end)

    it("shows a mistake in a script's text with file and line", function()
        local path = write("syntax.lua", "#!/usr/bin/env ncrun\nlocal = 5\n")
        local r = ncrun { path }
        assert.equal(1, r.code)
        assert.equal(("ncrun: %s:2: <name> expected near '='\n"):format(path), r.stderr)
    end)

    it("shows only the sentence of work that failed, and ends with its code", function()
        local path = write("failed.lua", [[
            local errors = require "nc.errors"
            error(errors.new { code = "ENOSPC", message = "write /x: no space left; free 3 GiB" })
        ]])
        local r = ncrun({ path }, { env = { NCRUN_DEBUG = "1" } })
        assert.equal(5, r.code)
        assert.equal("ncrun: write /x: no space left; free 3 GiB\n", r.stderr)
    end)

    it("names the script's line on misuse of the library", function()
        local path = write("misuse.lua", "local task = require 'nc.task'\n\ntask.sleep 'later'\n")
        local r = ncrun { path }
        assert.equal(1, r.code)
        assert.matches('^ncrun: .*/misuse.lua:3: "later" is not a duration', r.stderr)
    end)

    it("runs a script that is no recipe, with its words", function()
        local path = write("bare.lua", "print(...)\nreturn 4\n")
        local r = ncrun { path, "a", "b=c" }
        assert.equal(4, r.code)
        assert.equal("a\tb=c\n", r.stdout)
    end)

    it("runs a recipe with its parameters and its command", function()
        local path = write("copy.lua", RECIPE)
        local r = ncrun { path, "model=m", "every=2m", "--", "echo", "hi" }
        assert.same({ code = 9, stdout = "m\t120.0\techo hi\n", stderr = "" }, r)
        r = ncrun({ path }, { env = { MODEL = "from-env" } })
        assert.equal("from-env\t60.0\ttrue\n", r.stdout)
    end)

    it("refuses what a recipe does not know, with 2", function()
        local path = write("copy.lua", RECIPE)
        local r = ncrun { path, "modle=m" }
        assert.equal(2, r.code)
        assert.equal('ncrun: unknown parameter "modle" (did you mean "model"?); valid: every, log, model\n', r.stderr)
        r = ncrun { path }
        assert.equal(2, r.code)
        assert.equal("ncrun: needs model=...: what to copy (or set MODEL)\n", r.stderr)
    end)

    it("describes a recipe by its first comment and its declaration", function()
        local path = write("copy.lua", RECIPE)
        local r = ncrun { "help", path }
        assert.equal(0, r.code)
        assert.equal(([[
Copy a thing.

  ncrun copy.lua model=x

ncrun %s [name=value ...] [-- command ...]
  every=DURATION  how often (default 60s)
  log=text|json   lines for people or for machines (default text; or NCRUN_LOG)
  model=STRING    what to copy (required; or MODEL)
]]):format(path), r.stdout)
    end)

    it("does not run a script that is no recipe to describe it", function()
        local path = write("bare.lua", "-- Prints.\nprint 'ran'\n")
        assert.equal("Prints.\n", ncrun({ "help", path }).stdout)
    end)

    it("ends with 3 and the list when there is no such script", function()
        local r = ncrun { "no-such-recipe" }
        assert.equal(3, r.code)
        assert.matches('^ncrun: unknown script "no%-such%-recipe"; valid: .*or a path\n$', r.stderr)
    end)

    it("ends with 2 when there is nothing to do", function()
        local r = ncrun {}
        assert.equal(2, r.code)
        assert.matches("needs a script or a command", r.stderr)
    end)

    it("documents its exit codes", function()
        local r = ncrun { "help" }
        assert.equal(0, r.code)
        assert.matches("Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 access refused, 5 no space", r.stdout)
        assert.equal(r.stdout, ncrun({ "--help" }).stdout)
    end)

    it("tells the versions of what it runs with", function()
        local r = ncrun { "version" }
        for _, name in ipairs { "ncrun", "Lua", "libcurl", "OpenSSL", "libxml2", "jansson" } do
            assert.matches(name .. " %d+%.%d+", r.stdout)
        end
    end)

    it("runs specs in its own runtime, and counts them", function()
        local path = write("sample_spec.lua", [[
            describe("sample", function()
                it("waits", function() require("nc.task").sleep "1ms" end)
                it("fails", function() assert.equal(1, 2) end)
            end)
        ]])
        local r = ncrun { "test", "-o", "TAP", path }
        assert.equal(1, r.code)
        assert.matches("ok 1 %- sample waits\nnot ok 2 %- sample fails\n.*1%.%.2\n$", r.stdout)
        r = ncrun { "test", "-o", "TAP", "--filter", "waits", path }
        assert.equal(0, r.code)
    end)

    it("looks for modules inside itself only", function()
        write("helper.lua", "return 'from disk'")
        local path = write("needs.lua", "require 'helper'")
        local there = folder .. "/?.lua"
        local r = ncrun({ path }, { env = { LUA_PATH = there, LUA_PATH_5_4 = there } })
        assert.equal(1, r.code)
        assert.matches("module 'helper' not found", r.stderr)
    end)

    it("masks secrets in what it prints", function()
        local path = write("leak.lua", [[
            require("nc.log").warn("key is " .. os.getenv "AWS_SECRET_ACCESS_KEY")
            error("token " .. os.getenv "HF_TOKEN" .. " refused")
        ]])
        local r = ncrun({ path }, {
            env = { AWS_SECRET_ACCESS_KEY = "wJalrXUtnFEMI/K7MDENG", HF_TOKEN = "hf_abcdefgh" },
        })
        assert.matches("key is %*%*%*\n", r.stderr)
        assert.matches("token %*%*%* refused\n", r.stderr)
        assert.is_nil((r.stdout .. r.stderr):find("wJalr", 1, true))
        assert.is_nil((r.stdout .. r.stderr):find("hf_abc", 1, true))
    end)

    it("logs lines for people and objects for machines", function()
        local path = write("logs.lua", [[
            local log = require "nc.log"
            log.info("all staged", { files = 11, name = 'a "b"', rate = 1.5 })
            log.warn "two\nlines"
        ]])
        local r = ncrun { path }
        assert.matches('^%d%d:%d%d:%d%d all staged files=11 name="a \\"b\\"" rate=1.5\n'
            .. "%d%d:%d%d:%d%d warning: two | lines\n$", r.stderr)
        r = ncrun({ path }, { env = { NCRUN_LOG = "json" } })
        assert.matches('^{"time":"[%dTZ:-]+","level":"info","message":"all staged",'
            .. '"files":11,"name":"a \\"b\\"","rate":1.5}\n'
            .. '{"time":"[%dTZ:-]+","level":"warning","message":"two\\u000alines"}\n$', r.stderr)
    end)

    it("fails when its output can't be written", function()
        local r = proc.capture({ "sh", "-c", '"$0" version >/dev/full', NCRUN }, { timeout = "10s" })
        assert.equal(1, r.code)
        assert.matches("standard output could not be written", r.stderr)
    end)

    local WAITS <const> = [[
        local task = require "nc.task"
        local _ <close> = setmetatable({}, { __close = function()
            print "closing up"
            task.sleep(%s)
            print "closed"
        end })
        print "up"
        task.sleep "1h"
    ]]

    it("closes everything on SIGTERM, and ends with 143", function()
        local code, out = signalled(write("waits.lua", WAITS:format "0.05"), "TERM")
        assert.equal(143, code)
        assert.matches("closed\n.*ncrun: stopped by SIGTERM\n$", out)
    end)

    it("ends with 130 on SIGINT and 129 on SIGHUP", function()
        local path = write("waits.lua", WAITS:format "0.01")
        assert.equal(130, (signalled(path, "INT")))
        assert.equal(129, (signalled(path, "HUP")))
    end)

    it("ends at once at the second signal", function()
        local begun = sys.now()
        local code, out = signalled(write("waits.lua", WAITS:format "60"), "INT", "INT")
        assert.equal(130, code)
        assert.is_nil(out:find "closed\n")
        assert.is_true(sys.now() - begun < 10)
    end)

    it("takes its children with it on SIGTERM", function()
        local path = write("child.lua", [[
            local proc = require "nc.proc"
            local p <close> = proc.spawn { "sh", "-c", [=[
                trap 'echo child ended; exit' TERM
                echo up
                while :; do sleep 0.05; done
            ]=] }
            p:wait()
        ]])
        local code, out = signalled(path, "TERM")
        assert.equal(143, code)
        assert.matches("child ended", out)
    end)

    it("leaves a HUP alone that its parent ignored", function()
        local path = write("waits.lua", "print 'up'\nrequire('nc.task').sleep '0.3s'\n")
        local script = [[trap '' HUP; "$0" "$1" & sleep 0.1; kill -HUP $!; wait $!]]
        local r = proc.capture({ "sh", "-c", script, NCRUN, path }, { timeout = "10s" })
        assert.equal(0, r.code)
    end)

    it("reports tasks that failed with nobody looking", function()
        local path = write("lost.lua", [[
            local task = require "nc.task"
            task.spawn(function() error "lost" end)
            task.sleep "1ms"
        ]])
        local r = ncrun { path }
        assert.equal(0, r.code)
        assert.matches("warning: a task failed: .*lost.lua:2: lost", r.stderr)
    end)
end)
