-- Placing weights on the NVMe: what may be there already, what may break, who else may be at it.
local helper  = require "spec.helper"
local json    = require "dkjson"
local placing = require "spec.placing"
local staging = require "spec.staging"
local volumes = require "spec.volumes"

local SLACK <const> = 64 << 10
local SHARDS <const> = placing.SHARDS

-- A server whose bucket holds the checkpoint.
local function staged(size, shards, options)
    local hub = staging.hub(size, shards)
    local server = helper.server { hub = hub }
    assert.equal(0, (staging.run(server.env)))
    if options then
        server:stop()
        server = helper.server(helper.env({ hub = hub, root = server.root }, options))
    end
    server:reset()
    return server, hub
end

-- Bytes of the bucket's files that went to the NVMe.
local function assert_sent(server, bytes, more)
    local sent = placing.sent(server)
    assert.is_true(sent.bucket >= bytes and sent.bucket < bytes + SLACK + (more or 0),
        ("the bucket sent %d bytes, %d are due"):format(sent.bucket, bytes))
    assert.equal(0, sent.hub)
end

local function flip(path, offset)
    local file <close> = assert(io.open(path, "r+b"))
    file:seek("set", offset)
    local byte = file:read(1):byte()
    file:seek("set", offset)
    file:write(string.char(byte ~ 1))
end

describe("a pull", function()
    it("that is broken four times succeeds at the fifth, and moves each part once", function()
        local hub = staging.hub("64MiB", 1) -- thirteen parts of 5 MiB
        local server <close> = helper.server { hub = hub }
        assert.equal(0, (staging.run(server.env, "part_size=5MiB")))
        server:reset()
        server:faults { "GET *.safetensors side=s3 nth=11- reset=1000" }
        local nvme = helper.tmp()
        -- The client's own patience would hide it.
        local env = helper.env(server.env, { AWS_MAX_ATTEMPTS = "1" })
        local run <close> = placing.start(env, nvme, "pause=400ms", "parallel=2")
        helper.eventually(60, "the fourth try", function() return run:stderr():find("try 4 of 5", 1, true) end)
        server:faults {}
        local code, _, err = run:wait(60)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert_sent(server, placing.size(hub), 5 << 20) -- one more may have been on its way at the first break
    end)

    it("that is killed is gone on with part by part", function()
        local server, hub = staged("64MiB", 2, { rate = 16 << 20 })
        local _ <close> = server
        local nvme = helper.tmp()
        local run <close> = placing.start(server.env, nvme, "parallel=2")
        helper.eventually(60, "some parts", function() return placing.sent(server).bucket > 34 << 20 end)
        assert.is_nil(helper.read(placing.folder(nvme) .. "/model-00002-of-00002.safetensors"))
        run:kill "KILL"
        run:wait(10)
        local code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert_sent(server, placing.size(hub), 2 * (8 << 20) + (4 << 20)) -- what was in flight, and in sockets
    end)

    it("that is broken five times ends with the reason and keeps what it has", function()
        local server, hub = staged "8MiB"
        local _ <close> = server
        server:faults { ("GET *%s* side=s3 status=404:NoSuchKey"):format(SHARDS[2]) }
        local nvme = helper.tmp()
        local code, _, err = placing.run(server.env, nvme, "pause=10ms")
        assert.equal(6, code, err)
        assert.truthy(err:find("is not on the NVMe after 5 tries", 1, true), err)
        assert.truthy(err:find(SHARDS[2], 1, true), err)
        assert.is_false(placing.is_marked(nvme))
        server:faults {}
        server:reset()
        code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert_sent(server, #helper.read(hub .. "/acme/tiny/" .. SHARDS[2]))
    end)

    it("that is refused ends at once with exit code 4", function()
        local server = staged "8MiB"
        local _ <close> = server
        server:faults { ("GET *%s* side=s3 status=403:AccessDenied"):format(SHARDS[2]) }
        local code, _, err = placing.run(server.env, helper.tmp())
        assert.equal(4, code, err)
        assert.is_nil(err:find("try 1 of", 1, true))
    end)

    it("looks at the space before the first byte, and counts only what is missing", function()
        local server, hub = staged "64MiB"
        local _ <close> = server
        local nvme, shard = helper.tmp(), #helper.read(hub .. "/acme/tiny/" .. SHARDS[1])
        local script = ("mount -t tmpfs -o size=60m none %s && mkdir -p %s && chmod -R a+rwX %s && %s\n"
            .. "exec %s recipes/serve.lua model=acme/tiny phase=place nvme=%s"):format(
            nvme, placing.folder(nvme), nvme, "%s", helper.NCRUN, nvme)
        local code, _, err = helper.run({ "unshare", "-m", "sh", "-ec", script:format ":" }, { env = server.env })
        assert.equal(5, code, err)
        assert.truthy(err:find("are free: make room", 1, true), err)
        assert_sent(server, 0)
        -- A disk that holds it all, with what is there already.
        local copy = ("cp %s/acme/tiny/%s %s"):format(hub, SHARDS[1], placing.folder(nvme))
        code, _, err = helper.run({ "unshare", "-m", "sh", "-ec", script:gsub("60m", "66m"):format(copy) },
            { env = server.env })
        assert.equal(0, code, err)
        assert_sent(server, placing.size(hub) - shard)
    end)

    it("keeps what it has on SIGTERM, and is at work no more", function()
        local server, hub = staged("64MiB", 16, { rate = 16 << 20 })
        local _ <close> = server
        local nvme = helper.tmp()
        local run <close> = placing.start(server.env, nvme, "parallel=2")
        helper.eventually(30, "a file on the NVMe", function()
            return helper.read(placing.folder(nvme) .. "/model-00001-of-00016.safetensors")
        end)
        run:kill "TERM"
        assert.equal(143, (run:wait(20)))
        assert.is_false(placing.is_marked(nvme))
        local code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
    end)
end)

describe("what is on the NVMe already", function()
    it("is pulled again where it is deleted, truncated or has a flipped byte, and nowhere else", function()
        local server, hub = staged "64MiB"
        local _ <close> = server
        local nvme = helper.tmp()
        assert.equal(0, (placing.run(server.env, nvme)))
        local folder, size = placing.folder(nvme), #helper.read(hub .. "/acme/tiny/" .. SHARDS[1])
        local _, before = helper.sh("stat -c %i " .. folder .. "/" .. SHARDS[4])
        os.remove(folder .. "/" .. SHARDS[1])
        helper.sh(("truncate -s 1000000 %s/%s"):format(folder, SHARDS[2]))
        flip(folder .. "/" .. SHARDS[3], 9000000)
        server:reset()
        local code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert.truthy(err:find("moved 3 files", 1, true), err)
        assert_sent(server, 3 * size)
        assert.equal(before, (select(2, helper.sh("stat -c %i " .. folder .. "/" .. SHARDS[4]))))
    end)

    it("is repaired from the hub at the commit it is of", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        local nvme = helper.tmp()
        assert.equal(0, (placing.run(server.env, nvme)))
        local was = json.decode(helper.read(placing.folder(nvme) .. "/.complete")).commit
        flip(placing.folder(nvme) .. "/" .. SHARDS[3], 1000)
        server:reset()
        local code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert.truthy(err:find("moved 1 files", 1, true), err)
        assert.equal(was, json.decode(helper.read(placing.folder(nvme) .. "/.complete")).commit)
    end)

    it("counts when it is right, whoever has put it there, and is not pulled", function()
        local server, hub = staged "8MiB"
        local _ <close> = server
        local nvme = helper.tmp()
        helper.sh(("mkdir -p %s && cp %s/acme/tiny/* %s"):format(placing.folder(nvme), hub, placing.folder(nvme)))
        flip(placing.folder(nvme) .. "/" .. SHARDS[2], 77)
        local code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert_sent(server, #helper.read(hub .. "/acme/tiny/" .. SHARDS[2]))
    end)

    it("is read back with verify=yes", function()
        local server = staged "8MiB"
        local _ <close> = server
        local nvme = helper.tmp()
        assert.equal(0, (placing.run(server.env, nvme)))
        server:reset()
        local code, _, err = placing.run(server.env, nvme, "verify=yes")
        assert.equal(0, code, err)
        assert.truthy(err:find("reading back 9 files", 1, true), err)
        assert_sent(server, 0)
        code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code)
        assert.is_nil(err:find("reading back", 1, true), err)
    end)

    it("is left alone where the copy does not list it, but for what dead placers left half-written", function()
        local server, hub = staged "8MiB"
        local _ <close> = server
        local nvme = helper.tmp()
        helper.write(placing.folder(nvme) .. "/notes.txt", "mine")
        local half = placing.folder(nvme) .. "/" .. SHARDS[1] .. ".0123abcd.part"
        helper.write(half, "half")
        helper.sh("chmod a+rw " .. half) -- the dead one was the same user
        assert.equal(0, (placing.run(server.env, nvme)))
        assert.equal("mine", helper.read(placing.folder(nvme) .. "/notes.txt"))
        os.remove(placing.folder(nvme) .. "/notes.txt")
        placing.assert_placed(hub, nvme)
    end)

    it("is not laid over where it is another repository's", function()
        local server = staged "8MiB"
        local _ <close> = server
        local nvme = helper.tmp()
        assert.equal(0, (placing.run(server.env, nvme)))
        local code, _, err = helper.ncrun({ "recipes/serve.lua", "model=other/tiny", "phase=place", "nvme=" .. nvme },
            { env = server.env })
        assert.equal(2, code)
        assert.truthy(err:find("holds acme/tiny, not other/tiny", 1, true), err)
    end)
end)

describe("a copy", function()
    it("in a real gateway's bucket is as good as any", function()
        local hub = staging.hub "64MiB"
        local server <close> = helper.server { hub = hub }
        local store <close> = helper.rgw()
        local env = helper.env(store.env, { HF_ENDPOINT = server.env.HF_ENDPOINT })
        assert.equal(0, (staging.run(env)))
        server:reset()
        local nvme = helper.tmp()
        local code, _, err = placing.run(env, nvme)
        assert.equal(0, code, err)
        assert.truthy(err:find("the bucket holds a complete copy", 1, true), err)
        placing.assert_placed(hub, nvme)
        assert.equal(0, placing.sent(server).hub)
    end)

    it("that an older tool has marked counts by its sizes", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        staging.put(server.env, hub .. "/acme/tiny", "models/tiny", "--recursive")
        local empty = helper.tmp() .. "/empty"
        helper.write(empty, "")
        staging.put(server.env, empty, "models/tiny/.complete")
        local nvme = helper.tmp()
        local code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code, err)
        assert.truthy(err:find("marked by another tool", 1, true), err)
        placing.assert_placed(hub, nvme)
        server:reset()
        assert.equal(0, (placing.run(server.env, nvme)))
        assert_sent(server, 0)
        os.remove(placing.folder(nvme) .. "/" .. SHARDS[1])
        assert.equal(0, (placing.run(server.env, nvme)))
        assert_sent(server, #helper.read(hub .. "/acme/tiny/" .. SHARDS[1]))
    end)

    it("that is marked but lacks a file is none", function()
        local server, hub = staged "8MiB"
        local _ <close> = server
        assert.equal(0, (staging.curl(server.env, "DELETE", "models/tiny/" .. SHARDS[3])))
        local nvme = helper.tmp()
        local code, _, err = placing.run(server.env, nvme)
        assert.equal(0, code, err)
        assert.truthy(err:find("its copy is marked but lacks 1 files", 1, true), err)
        assert.truthy(err:find("from the hub", 1, true), err)
        placing.assert_placed(hub, nvme)
    end)

    it("whose bytes are wrong gives way to the next one, for these files alone", function()
        local server, hub = staged "8MiB"
        local _ <close> = server
        local volume <close> = volumes.mount "juicefs"
        assert.equal(0, (staging.run(server.env, "to=volume", "volume=" .. volume.path)))
        flip(volume.behind .. "/models/tiny/" .. SHARDS[2], 1234)
        server:reset()
        local nvme = helper.tmp()
        local code, _, err = placing.run(server.env, nvme, "volume=" .. volume.path)
        assert.equal(0, code, err)
        assert.truthy(err:find("some of its bytes are wrong", 1, true), err)
        placing.assert_placed(hub, nvme)
        assert_sent(server, #helper.read(hub .. "/acme/tiny/" .. SHARDS[2]))
    end)

    it("on a volume that can only be read is good enough, and nothing is written there", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        local volume <close> = volumes.mount "juicefs"
        assert.equal(0, (staging.run(server.env, "to=volume", "volume=" .. volume.path)))
        local nvme = helper.tmp()
        assert.equal(0, (helper.sh("mount -o remount,ro,bind " .. volume.path)))
        placing.beat(volume.behind)
        local code, _, err = placing.run(helper.env(server.env, { NC_BUCKET = "" }), nvme, "volume=" .. volume.path)
        assert.equal(0, code, err)
        assert.truthy(err:find("the volume holds a complete copy", 1, true), err)
        placing.assert_placed(hub, nvme)
    end)

    it("is refused with the whole list where a name would leave the folder", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        local volume <close> = volumes.mount "juicefs"
        assert.equal(0, (staging.run(server.env, "to=volume", "volume=" .. volume.path)))
        local folder = volume.behind .. "/models/tiny/"
        local manifest = helper.read(folder .. ".complete"):gsub('"README.md"', '"../README.md"')
        helper.write(folder .. ".complete", manifest)
        helper.sh(("mv %sREADME.md %s.."):format(folder, folder))
        local nvme = helper.tmp()
        local code, _, err = placing.run(server.env, nvme, "volume=" .. volume.path)
        assert.equal(1, code, err)
        assert.truthy(err:find("would leave the copy's folder", 1, true), err)
        assert.equal(".placing.lock\n", (select(2, helper.sh("cd " .. nvme .. "/models && ls -A *"))))
    end)
end)
