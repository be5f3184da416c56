-- `ncrun recipes/stage-weights.lua` as a person runs it: the main job, and what may happen to it.
local helper = require "spec.helper"
local staging = require "spec.staging"

local function flip(path, offset)
    local file <close> = assert(io.open(path, "r+b"))
    file:seek("set", offset)
    local byte = file:read(1):byte()
    file:seek("set", offset)
    file:write(string.char(byte ~ 1))
end

describe("staging a checkpoint", function()
    for _, name in ipairs { "ncdev", "rgw" } do
        it("puts every file and a true manifest into " .. name, function()
            local hub = staging.hub()
            local server <close> = helper.server { hub = hub }
            local store <close> = name == "rgw" and helper.rgw() or server
            local env = helper.env(store.env, { HF_ENDPOINT = server.env.HF_ENDPOINT })
            local code, _, err = staging.run(env, "part_size=5MiB")
            assert.equal(0, code, err)
            local manifest = staging.assert_staged(env, hub)
            assert.equal("acme/tiny", manifest.repository)
            assert.truthy(err:find("staged 9 files", 1, true), err)
        end)
    end

    it("ends at once, moving nothing, when the copy is complete", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        assert.equal(0, (staging.run(server.env)))
        server:reset()
        local code, _, err = staging.run(server.env)
        assert.equal(0, code)
        assert.truthy(err:find("already complete", 1, true), err)
        local counters = server:counters()
        assert.is_nil(counters.hub.ops.Resolve)
        assert.is_nil(counters.s3.ops.PutObject)
    end)

    it("notices by looking that all is there, marks it, and reads back no more than the small files", function()
        local hub = staging.hub()
        local server <close> = helper.server { hub = hub }
        assert.equal(0, (staging.run(server.env)))
        assert.equal(0, (staging.curl(server.env, "DELETE", "models/tiny/.complete")))
        server:reset()
        local code, _, err = staging.run(server.env)
        assert.equal(0, code, err)
        local counters = server:counters()
        assert.is_nil(counters.cdn.ops.Get)
        assert.is_true(counters.s3.ops.GetObject.out < 1 << 20)
        assert.equal(9, staging.marker(server.env).total_files)
    end)

    it("never aborts an upload that was there before it", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        local code, answer = staging.curl(server.env, "POST", "models/tiny/" .. staging.SHARD .. "?uploads=")
        assert.equal(0, code)
        local id = answer:match "<UploadId>(.-)</UploadId>"
        assert.equal(0, (staging.run(server.env)))
        assert.equal(id, staging.uploads(server)[1].id)
    end)

    it("tells a stranger's upload from its own also after a run that was killed", function()
        local hub = staging.hub()
        local server <close> = helper.server { hub = hub, rate = 8 << 20 }
        local code, answer = staging.curl(server.env, "POST", "models/tiny/" .. staging.SHARD .. "?uploads=")
        assert.equal(0, code)
        local id = answer:match "<UploadId>(.-)</UploadId>"
        local first <close> = staging.start(server.env, "part_size=5MiB")
        helper.eventually(60, "an upload of ours", function() return #staging.uploads(server) > 1 end)
        first:kill "KILL"
        first:wait(10)
        assert.equal(0, (staging.run(server.env, "part_size=5MiB")))
        local left = staging.uploads(server)
        assert.equal(1, #left)
        assert.equal(id, left[1].id)
    end)

    it("removes the upload whose beginning was answered too late", function()
        local hub = staging.hub()
        local server <close> = helper.server { hub = hub,
            faults = { "POST * op=CreateMultipartUpload nth=1 lost-answer" } }
        assert.equal(0, (staging.run(server.env, "part_size=5MiB")))
        assert.equal(0, #staging.uploads(server))
        staging.assert_staged(server.env, hub)
    end)

    it("refuses a shard with one flipped byte by name, without a marker", function()
        local hub = staging.hub()
        local server <close> = helper.server { hub = hub,
            faults = { ("GET *%s* side=cdn flip=7000000"):format(staging.SHARD) } }
        local code, _, err = staging.run(server.env, "part_size=5MiB")
        assert.equal(6, code)
        assert.truthy(err:find(staging.SHARD .. ": its SHA-256 is", 1, true), err)
        assert.is_nil(staging.marker(server.env))
        assert.is_nil(staging.object(server.env, "models/tiny/" .. staging.SHARD))
        assert.equal(0, #staging.uploads(server))
        -- The others are whole, and the run after the repair moves this one only.
        server:faults {}
        server:reset()
        code, _, err = staging.run(server.env, "part_size=5MiB")
        assert.equal(0, code, err)
        assert.is_true(staging.sum(server:counters().cdn.ops, "out") < 17 << 20)
        staging.assert_staged(server.env, hub)
    end)

    it("reads back what an upload claims, and fetches anew what is wrong", function()
        local hub = staging.hub()
        local server <close> = helper.server { hub = hub }
        local first <close> = staging.start(server.env, "part_size=5MiB")
        first:wait()
        -- As a dead stage leaves it: one object's bytes are not what its metadata says.
        local wrong = helper.read(hub .. "/acme/tiny/" .. staging.SHARD):gsub("^.", "X")
        local path = helper.tmp() .. "/wrong"
        helper.write(path, wrong)
        staging.put(server.env, path, "models/tiny/" .. staging.SHARD, "--metadata",
            "sha256=" .. staging.sha256(hub .. "/acme/tiny/" .. staging.SHARD))
        staging.curl(server.env, "DELETE", "models/tiny/.complete")
        local code, _, err = staging.run(server.env, "part_size=5MiB", "verify=yes")
        assert.equal(0, code, err)
        assert.truthy(err:find("1 files in the copy are not the published ones", 1, true), err)
        staging.assert_staged(server.env, hub)
    end)

    it("takes over the parts that another revision has in common, and only these", function()
        local hub = staging.hub()
        local server <close> = helper.server { hub = hub }
        assert.equal(0, (staging.run(server.env)))
        local old = staging.marker(server.env).commit
        flip(hub .. "/acme/tiny/" .. staging.SHARD, 1000000) -- as large as before
        helper.sh(("touch -d '1 hour ago' %s/acme/tiny/%s"):format(hub, staging.SHARD))
        server:reset()
        local code, _, err = staging.run(server.env)
        assert.equal(0, code, err)
        local manifest = staging.assert_staged(server.env, hub)
        assert.are_not.equal(old, manifest.commit)
        assert.is_true(staging.sum(server:counters().cdn.ops, "out") < 17 << 20)
    end)

    it("marks a copy that an older tool has put there, and says that it was taken by size", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        staging.put(server.env, hub .. "/acme/tiny", "models/tiny", "--recursive")
        server:reset()
        local code, _, err = staging.run(server.env)
        assert.equal(0, code, err)
        assert.truthy(err:find("taken by their size", 1, true), err)
        assert.is_nil(server:counters().cdn.ops.Get)
        assert.equal(9, staging.marker(server.env).total_files)
    end)

    it("waits for a fresh heartbeat of another job, and ends when that one completes", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        local path = helper.tmp() .. "/staging"
        helper.write(path, '{"version":1,"owner":{"job":"other","pod":"elsewhere","pid":1},'
            .. '"bytes_done":10,"bytes_total":20}')
        staging.put(server.env, path, "models/tiny/.staging")
        local code, _, err = staging.run(server.env, "wait=1s")
        assert.equal(1, code)
        assert.truthy(err:find("job other on elsewhere stages it: 10 B of 20 B", 1, true), err)
        assert.is_nil(staging.object(server.env, "models/tiny/config.json"))
    end)

    it("takes a stale heartbeat's place", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        local path = helper.tmp() .. "/staging"
        helper.write(path, '{"version":1,"owner":{"job":"other","pod":"elsewhere","pid":1}}')
        staging.put(server.env, path, "models/tiny/.staging")
        server:stop()
        local later <close> = helper.server { hub = hub, root = server.root, clock = 660 }
        local code, _, err = staging.run(later.env)
        assert.equal(0, code, err)
    end)

    it("keeps its parts on SIGTERM, says in the heartbeat that it has stopped, and ends with 143", function()
        local hub = staging.hub "64MiB"
        local server <close> = helper.server { hub = hub, rate = 8 << 20 }
        local first <close> = staging.start(server.env, "part_size=5MiB")
        helper.eventually(60, "a part in the bucket", function()
            local op = server:counters().s3.ops.UploadPart
            return op and op["in"] > 6 << 20
        end)
        first:kill "TERM"
        assert.equal(143, (first:wait(20)))
        assert.equal("stopped", staging.marker(server.env, ".staging").ended)
        assert.is_nil(staging.marker(server.env))
        assert.is_true(#staging.uploads(server) > 0)
    end)
end)
