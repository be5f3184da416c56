-- The log that a run keeps: what is in the bucket and on the volume, when, and at what cost.
local helper = require "spec.helper"
local logging = require "spec.logging"
local staging = require "spec.staging"

local MIB <const> = 1 << 20

-- Times that something was said.
local function count(text, what)
    local _, n = text:gsub(what, "")
    return n
end

-- Everything that went to the server, but for what it refused.
local function bytes_in(server)
    return staging.sum(server:counters().s3.ops, "in")
end

local function binary(size)
    local path = helper.tmp() .. "/binary"
    assert(os.execute(("head -c %d /dev/urandom >%s"):format(size, path)))
    return path
end

-- Whether the object is the file, or the beginning of it.
local function is_prefix(env, path, key)
    local object = staging.object(env, key or "logs/nanogpt/pod.log")
    if not object then return false end
    local file <close> = io.open(path, "rb")
    return object == (file:read(#object) or ""), #object
end

-- In a mount namespace of its own; `shared` is a folder that counts as a network file system there.
local function in_namespace(shared, line)
    local fake = helper.tmp() .. "/mountinfo"
    helper.write(fake, ("1 1 0:1 / %s rw - nfs4 server:/ rw\n"):format(shared))
    return { "unshare", "-m", "sh", "-c", ("mount --bind %s /proc/$$/mountinfo && exec %s"):format(fake, line) }
end

for _, name in ipairs { "ncdev", "rgw" } do
    local function open() return name == "rgw" and helper.rgw() or helper.server { memory = "yes" } end

    describe("a log on " .. name, function()
        it("grows while the command runs, whole at each tick: 50 MB without a newline, NULs, \\r only", function()
            local server <close> = open()
            local path = binary(50000000)
            assert(os.execute(("{ head -c 1000000 /dev/zero; yes '10%%\r' | tr -d '\\n' | head -c 1000000; } >>%s")
                :format(path)))
            local run <close> = logging.start(server.env, { "every=1s" }, ([[
                for i in 0 1 2 3 4; do tail -c +$((i*10000000+1)) %s | head -c 10000000; sleep 1; done
                tail -c 2000000 %s; sleep 0.3]]):format(path, path))
            local seen = {}
            local memory = 0
            while run:running() do
                local status = helper.read("/proc/" .. run.pid .. "/status") or ""
                memory = math.max(memory, tonumber(status:match "VmHWM:%s*(%d+)" or "0"))
                local equal, size = is_prefix(server.env, path)
                if size then
                    assert.is_true(equal)
                    seen[size] = true
                end
                os.execute "sleep 0.3"
            end
            local code, _, err = run:wait()
            assert.equal(0, code, err)
            local equal, size = is_prefix(server.env, path)
            assert.is_true(equal)
            assert.equal(52000000, size)
            local states = 0
            for _ in pairs(seen) do states = states + 1 end
            assert.is_true(states >= 2, states .. " states seen")
            if not os.getenv "ASAN_OPTIONS" then assert.is_true(memory < 96 * 1024, memory .. " KiB") end
        end)

        -- A whole upload at each tick would send many times the log.
        local size, ticks = 1024 * MIB, 20
        if name == "rgw" or os.getenv "ASAN_OPTIONS" then size, ticks = 96 * MIB, 12 end
        it(("of %d MiB written over %d ticks costs what was written"):format(size // MIB, ticks), function()
            local server <close> = name == "rgw" and helper.rgw()
                or helper.server { memory = "yes", etag = "fast" }
            local path = binary(size // ticks)
            local code, _, err = logging.run(server.env, { "every=1s" }, ([[
                for i in $(seq %d); do cat %s; sleep 1; done]]):format(ticks, path), 250)
            assert.equal(0, code, err)
            local total, unit, sent, sent_unit = err:match "in the bucket: ([%d.]+) (%a+), ([%d.]+) (%a+) sent"
            local factor = { MiB = 1, GiB = 1024 }
            assert.is_true(sent * factor[sent_unit] <= 1.2 * total * factor[unit], err)
            if server.counters then
                assert.is_true(bytes_in(server) <= 1.2 * size)
                assert.is_true(server:counters().s3.ops.UploadPartCopy.requests >= 6)
            end
            local _, sums = helper.sh(([[aws --endpoint-url "$AWS_ENDPOINT_URL" s3 cp \
                "s3://$NC_BUCKET/logs/nanogpt/pod.log" - | sha256sum
                for i in $(seq %d); do cat %s; done | sha256sum]]):format(ticks, path), server.env, { timeout = 120 })
            local first, second = sums:match "^(%x+)  %-\n(%x+)"
            assert.equal(second, first)
        end)

        it("keeps the log of the attempt before it", function()
            local server <close> = open()
            assert.equal(1, (logging.run(server.env, {}, "echo first; exit 1")))
            assert.equal(0, (logging.run(server.env, {}, "echo second")))
            assert.equal("first\n", logging.object(server.env, "pod.1"))
            assert.equal("second\n", logging.object(server.env))
        end)
    end)
end

describe("a log", function()
    it("goes on with the file of an attempt that was killed, whose end had not been uploaded", function()
        local server <close> = helper.server()
        local folder = helper.tmp()
        local run <close> = logging.start(server.env, { "logs=" .. folder, "every=1s" },
            "echo one; sleep 1.5; echo two; sleep 60")
        helper.eventually(10, "the second line", function() return run:stdout():find "two" end)
        run:kill "KILL"
        run:wait(10)
        assert.equal(0, (logging.run(server.env, { "logs=" .. folder }, "echo three")))
        assert.equal("one\ntwo\nthree\n", logging.object(server.env))
        assert.is_nil(logging.object(server.env, "pod.1"))
    end)

    it("that does not change is not uploaded again", function()
        local server <close> = helper.server()
        assert.equal(0, (logging.run(server.env, { "every=300ms" }, "echo once; sleep 3")))
        assert.equal(1, server:counters().s3.ops.PutObject.requests)
    end)

    it("is never written twice within a second", function()
        local server <close> = helper.server()
        local begun = logging.now()
        assert.equal(0, (logging.run(server.env, { "every=50ms" }, "for i in $(seq 40); do echo $i; sleep 0.1; done")))
        local writes = server:counters().s3.ops.PutObject.requests
        assert.is_true(writes <= logging.now() - begun + 1, writes .. " writes")
        assert.truthy(logging.object(server.env):find "\n40\n$")
    end)

    it("is uploaded at once on SIGTERM, while the command still has its grace", function()
        local server <close> = helper.server()
        local run <close> = logging.start(server.env, { "grace=30s" },
            "trap 'echo told; sleep 3; echo end; exit 0' TERM; echo start; while :; do sleep 0.05; done")
        helper.eventually(10, "the start", function() return run:stdout():find "start" end)
        run:kill "TERM"
        helper.eventually(2, "an upload", function() return logging.object(server.env) end)
        assert.is_true(run:running())
        assert.equal(0, (run:wait(20)))
        assert.truthy(logging.object(server.env):find "^start\n.*told\nend\n$") -- sh reports its sleep's end
    end)

    it("is whole where the server refuses to put it together", function()
        local server <close> = helper.server {
            faults = { "PUT * op=UploadPartCopy status=501:NotImplemented" } }
        local path = binary(12 * MIB)
        local code, _, err = logging.run(server.env, { "every=1s" }, ("cat %s; sleep 2; cat %s"):format(path, path))
        assert.equal(0, code, err)
        assert.equal(1, count(err, "does not put logs together"))
        assert.is_true(helper.read(path):rep(2) == logging.object(server.env))
        assert.equal(0, #staging.uploads(server))
    end)

    it("is there in the end when the bucket answered 503 for many ticks, and says so once", function()
        local server <close> = helper.server { faults = { "ANY * status=503:SlowDown:300" } }
        local run <close> = logging.start(server.env, { "every=500ms" },
            "for i in $(seq 12); do echo $i; sleep 0.5; done; exit 3")
        helper.eventually(20, "a refusal", function() return run:stderr():find "can't be uploaded" end)
        os.execute "sleep 3"
        server:faults {}
        local code, out, err = run:wait(30)
        assert.equal(3, code)
        assert.equal(out, logging.object(server.env))
        assert.equal(1, count(err, "can't be uploaded"), err)
        assert.equal(1, count(err, "in the bucket again"))
    end)

    it("does not hold the run up when the bucket is gone for good", function()
        local server <close> = helper.server()
        local begun = logging.now()
        local run <close> = logging.start(server.env, { "every=500ms" },
            "echo one; for i in $(seq 20); do sleep 0.2; echo two; done; exit 3")
        helper.eventually(10, "the first upload", function() return logging.object(server.env) end)
        server:stop()
        local code, _, err = run:wait(30)
        assert.equal(3, code)
        assert.is_true(logging.now() - begun < 4 + 5)
        assert.equal(1, count(err, "can't be uploaded"), err)
        assert.equal(1, count(err, "is not in the bucket"), err)
    end)

    it("does not hold the run up when the bucket takes requests and never answers", function()
        local server <close> = helper.server { faults = { "ANY * accept-stall" } }
        local begun = logging.now()
        local code, _, err = logging.run(server.env, { "every=500ms" }, "echo one; sleep 2; exit 3")
        assert.equal(3, code)
        assert.is_true(logging.now() - begun < 2 + 15)
        assert.truthy(err:find "is not in the bucket")
    end)

    it("is as it was last when the keys are revoked, and the run ends at once", function()
        local server <close> = helper.server()
        local run <close> = logging.start(server.env, { "every=500ms" },
            "echo one; sleep 2; for i in $(seq 8); do echo two; sleep 0.2; done; exit 4")
        helper.eventually(10, "the first upload", function() return logging.object(server.env) end)
        helper.run { "curl", "-sSf", "-X", "POST", server.admin .. "/rotate?access_key=new&secret_key=other" }
        local begun = logging.now()
        local code, _, err = run:wait(30)
        assert.equal(4, code)
        assert.is_true(logging.now() - begun < 5)
        assert.equal(1, count(err, "can't be uploaded"), err)
        local env = helper.env(server.env, { AWS_ACCESS_KEY_ID = "new", AWS_SECRET_ACCESS_KEY = "other" })
        assert.equal("one\n", logging.object(env))
    end)

    it("is on the volume as it is written, where one is mounted, and in the bucket too", function()
        local server <close> = helper.server()
        local shared = helper.tmp()
        local line = ("%s recipes/nanogpt.lua pod=pod logs=/none volume=%s -- sh -c 'echo one; sleep 2; exit 5'")
            :format(helper.NCRUN, shared)
        local run <close> = helper.start(in_namespace(shared, line), { env = server.env })
        local path = shared .. "/logs/nanogpt/pod.log"
        helper.eventually(2, "the line", function() return helper.read(path) == "one\n" end)
        assert.is_nil(logging.object(server.env))
        assert.equal(5, (run:wait(20)))
        assert.equal("one\n", helper.read(path))
        assert.equal("one\n", logging.object(server.env))
        local reading = ("%s recipes/read-logs.lua from=volume job=nanogpt volume=%s"):format(helper.NCRUN, shared)
        local code, out = helper.run(in_namespace(shared, reading))
        assert.equal(0, code)
        assert.equal("one\n", out)
    end)

    it("on a full disk changes neither the command's fate nor its stdout", function()
        local server <close> = helper.server()
        local folder = helper.tmp()
        local code, out, err = helper.run({ "unshare", "-m", "sh", "-c", ([[mount -t tmpfs -o size=256k none %s &&
            exec %s recipes/nanogpt.lua pod=pod logs=%s volume=/none -- sh -c \
            'head -c 3000000 /dev/zero | tr "\0" x; exit 9']]):format(folder, helper.NCRUN, folder) },
            { env = server.env })
        assert.equal(9, code, err)
        assert.equal(3000000, #out)
        assert.truthy(err:find "the log file: .* are missing %(No space left on device%)", err)
        assert.is_true(#logging.object(server.env) > 0)
    end)
end)

describe("the last upload to a bucket that never answers", function()
    it("is given up within the grace after SIGTERM", function()
        local server <close> = helper.server { faults = { "ANY * accept-stall" } }
        local run <close> = logging.start(server.env, { "grace=6s" },
            "trap 'exit 5' TERM; echo start; while :; do sleep 0.05; done")
        helper.eventually(10, "the start", function() return run:stdout():find "start" end)
        local begun = logging.now()
        run:kill "TERM"
        local code, _, err = run:wait(20)
        assert.equal(5, code)
        assert.is_true(logging.now() - begun < 7)
        assert.truthy(err:find "is not in the bucket: there was no more time")
    end)

    it("is cut short by a SIGTERM that comes after the command's end, whose code stays", function()
        local server <close> = helper.server { faults = { "ANY * accept-stall" } }
        local run <close> = logging.start(server.env, {}, "echo done; exit 6")
        helper.eventually(10, "the end", function() return run:stdout():find "done" end)
        os.execute "sleep 1"
        assert.is_true(run:running())
        local begun = logging.now()
        run:kill "TERM"
        assert.equal(6, (run:wait(20)))
        assert.is_true(logging.now() - begun < 3)
    end)
end)
