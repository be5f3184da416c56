-- `ncrun recipes/read-logs.lua`: which log, which bytes, how soon.
local helper = require "spec.helper"
local logging = require "spec.logging"
local staging = require "spec.staging"

-- Runs a script of our own against the bucket.
local function script(env, text, ...)
    local path = helper.tmp() .. "/script.lua"
    helper.write(path, text)
    local code, out, err = helper.ncrun({ path, ... }, { env = env, timeout = 120 })
    assert.equal(0, code, err)
    return out
end

local function put(env, key, text)
    local path = helper.tmp() .. "/object"
    helper.write(path, text)
    staging.put(env, path, key)
end

-- Puts `n` logs of one job, ten at a time; the last one is the newest.
local MANY <const> = [[
local s3, task = require "nc.s3", require "nc.task"
local bucket <close> = s3.bucket(os.getenv "NC_BUCKET")
local n = tonumber((...))
for first = 1, n, 50 do
    local batch = {}
    for i = first, math.min(first + 49, n) do
        batch[#batch + 1] = function()
            bucket:put(("logs/many/pod-%05d.log"):format(i * 7919 % 10007), "log " .. i .. "\n")
        end
    end
    task.all(batch)
end
task.sleep "1.1s"
bucket:put("logs/many/pod-00500-newest.log", "the newest\n")
]]

-- An object of 2 GiB that is copied together inside the server from a log of 64 MiB.
local LARGE <const> = [[
local s3 = require "nc.s3"
local bucket <close> = s3.bucket(os.getenv "NC_BUCKET")
local line = ("0123456789abcde\n"):rep(4 << 20)
bucket:put("seed", line)
local id = bucket:create_upload "logs/large/pod.log"
local parts = {}
for i = 1, 32 do parts[i] = { number = i, etag = bucket:copy_part("logs/large/pod.log", id, i, "seed") } end
bucket:complete_upload("logs/large/pod.log", id, parts)
]]

for _, name in ipairs { "ncdev", "rgw" } do
    describe("a log on " .. name, function()
        local server, env
        setup(function()
            server = name == "rgw" and helper.rgw() or helper.server()
            env = server.env
        end)
        teardown(function() local _ <close> = server end)

        it("is printed byte for byte", function()
            local path = helper.tmp() .. "/log"
            assert(os.execute(("head -c 11000001 /dev/urandom >%s"):format(path)))
            staging.put(env, path, "logs/bytes/pod.log")
            local code, out = logging.read(env, "job=bytes")
            assert.equal(0, code)
            assert.is_true(out == helper.read(path))
            code, out = logging.read(helper.env(env, { KEY = "logs/bytes/pod.log", JOB = "other" }))
            assert.equal(0, code)
            assert.equal(11000001, #out)
        end)

        it("that is not there yet ends with 3 and a sentence that names the prefix", function()
            local code, out, err = logging.read(env, "job=none")
            assert.equal(3, code)
            assert.equal("", out)
            assert.equal(("ncrun: there is no log below s3://%s/logs/none/ (yet)\n"):format(env.NC_BUCKET), err)
            assert.equal(3, (logging.read(env, "key=logs/none/pod.log")))
        end)

        it("that is empty prints nothing and ends with 0", function()
            put(env, "logs/empty/pod.log", "")
            local code, out = logging.read(env, "job=empty")
            assert.equal(0, code)
            assert.equal("", out)
        end)

        it("begins at the last lines of it with tail=", function()
            local text = {}
            for i = 1, 30000 do text[i] = "line " .. i end
            put(env, "logs/tail/pod.log", table.concat(text, "\n") .. "\n")
            local _, out = logging.read(env, "job=tail", "tail=2")
            assert.equal("line 29999\nline 30000\n", out)
            _, out = logging.read(env, "job=tail", "tail=20000")
            assert.equal("line 10001\n", out:match "^[^\n]*\n")
            _, out = logging.read(env, "job=tail", "tail=99999")
            assert.equal(#table.concat(text, "\n") + 1, #out)
            put(env, "logs/tail/pod.log", "a\nb\nhalf")
            _, out = logging.read(env, "job=tail", "tail=2")
            assert.equal("b\nhalf", out)
        end)

        it("is listed with job, pod, size and age", function()
            put(env, "logs/listed/pod-a.log", ("x"):rep(2048))
            local code, out = logging.read(env, "job=listed", "list=yes")
            assert.equal(0, code)
            assert.truthy(out:find "^JOB +POD +SIZE +AGE\nlisted +pod%-a +2%.0 KiB +[%d.]+s\n$", out)
        end)

        it("shows what is new at most a poll after its upload with follow=yes", function()
            put(env, "logs/follow/pod.log", "one\n")
            local reader <close> = helper.start({ helper.NCRUN, "recipes/read-logs.lua", "job=follow",
                "follow=yes", "every=500ms" }, { env = env })
            helper.eventually(10, "the first line", function() return reader:stdout() == "one\n" end)
            put(env, "logs/follow/pod.log", "one\ntwo\n")
            local uploaded = logging.now()
            helper.eventually(5, "the second line", function() return reader:stdout() == "one\ntwo\n" end)
            assert.is_true(logging.now() - uploaded < 1)
            put(env, "logs/follow/pod.log", "new\n") -- another attempt of the pod
            helper.eventually(5, "the new log", function() return reader:stdout() == "one\ntwo\nnew\n" end)
            reader:kill "INT"
            assert.equal(130, (reader:wait(5)))
        end)
    end)
end

describe("reading a log", function()
    it("finds the newest of 2,000 by the server's time in less than a second", function()
        local server <close> = helper.server { memory = "yes" }
        script(server.env, MANY, "2000")
        local begun = logging.now()
        local code, out = logging.read(server.env, "job=many")
        local took = logging.now() - begun
        assert.equal(0, code)
        assert.equal("the newest\n", out)
        assert.is_true(took < 1, took .. " s")
    end)

    it("takes constant memory for 2 GiB, and prints all of it", function()
        local server <close> = helper.server { memory = "yes", etag = "fast" }
        script(server.env, LARGE)
        local report = helper.tmp() .. "/time"
        local _, out = helper.sh(("/usr/bin/time -o %s -f %%M %s recipes/read-logs.lua job=large | wc -c")
            :format(report, helper.NCRUN), server.env, { timeout = 120 })
        assert.equal(2 << 30, math.tointeger(tonumber(out)))
        if not os.getenv "ASAN_OPTIONS" then
            local kib = tonumber(helper.read(report))
            assert.is_true(kib < 96 * 1024, kib .. " KiB")
        end
    end)

    it("ends quietly when nobody reads any more", function()
        local server <close> = helper.server { memory = "yes" }
        put(server.env, "logs/head/pod.log", ("a line\n"):rep(1 << 20))
        local _, out, err = helper.sh(("{ %s recipes/read-logs.lua job=head; echo $? >&2; } | head -n 1")
            :format(helper.NCRUN), server.env)
        assert.equal("a line\n", out)
        assert.equal("0\n", err)
    end)

    it("waits for a slow reader, and says so when its output can't be written", function()
        local server <close> = helper.server { memory = "yes" }
        put(server.env, "logs/slow/pod.log", ("a line\n"):rep(1 << 20))
        local _, out = helper.sh(("%s recipes/read-logs.lua job=slow | { sleep 3; wc -c; }")
            :format(helper.NCRUN), server.env)
        assert.equal(7 << 20, math.tointeger(tonumber(out)))
        local code, _, err = helper.sh(helper.NCRUN .. " recipes/read-logs.lua job=slow >/dev/full", server.env)
        assert.equal(1, code)
        assert.truthy(err:find("No space left on device", 1, true), err)
    end)
end)
