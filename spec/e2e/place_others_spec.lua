-- Who else is at work: other placers on this node, stages of the same model.
local helper  = require "spec.helper"
local placing = require "spec.placing"
local staging = require "spec.staging"
local volumes = require "spec.volumes"

local SLACK <const> = 64 << 10
local SHARD <const> = 4 << 20

-- A bucket with the checkpoint in 16 files, on a server that takes some seconds for it.
local function slow_server()
    local hub = staging.hub("64MiB", 16)
    local server = helper.server { hub = hub }
    assert.equal(0, (staging.run(server.env)))
    server:stop()
    return helper.server { hub = hub, root = server.root, rate = 24 << 20 }, hub
end

-- An environment in which flock succeeds and does nothing.
local function without_flock(env)
    local shim = helper.tmp() .. "/no-flock.so"
    local code, _, err = helper.run { "gcc", "-shared", "-fPIC", "-o", shim, "spec/fixtures/no-flock.c" }
    assert.equal(0, code, err)
    return helper.env(env, {
        LD_PRELOAD = shim, ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":verify_asan_link_order=0",
    })
end

local function start_four(env, nvme)
    local placers = {}
    for i = 1, 4 do placers[i] = placing.start(env, nvme, "parallel=2") end
    return setmetatable(placers, { __close = function()
        for _, p in ipairs(placers) do p:__close() end
    end })
end

-- The pid of the one whose heartbeat is on the NVMe.
local function at_work(nvme)
    local _, text = helper.sh(("cat %s/.placing.[0-9]* 2>/dev/null"):format(placing.folder(nvme)))
    return tonumber(text:match '"pid":%s*(%d+)')
end

local function some_file(nvme)
    local _, out = helper.sh(("ls %s | grep -c 'safetensors$'"):format(placing.folder(nvme)))
    return tonumber(out) > 0
end

-- How many of them moved something, all having ended with 0 but for those that are let off.
local function movers(placers, killed)
    local n = 0
    for _, p in ipairs(placers) do
        local code, _, err = p:wait(120)
        if p.pid ~= killed then
            assert.equal(0, code, err)
            n = n + (err:find("place: %d+ files") and 1 or 0)
        end
    end
    return n
end

for _, locks in ipairs { "flock", "flock that does nothing" } do
    describe("of four placers on one folder, with " .. locks .. ",", function()
        it("one pulls, all end well, and nothing moves twice", function()
            local server, hub = slow_server()
            local _ <close> = server
            local env, nvme = locks == "flock" and server.env or without_flock(server.env), helper.tmp()
            local placers <close> = start_four(env, nvme)
            assert.equal(1, movers(placers))
            placing.assert_placed(hub, nvme)
            local sent, total = placing.sent(server).bucket, placing.size(hub)
            assert.is_true(sent >= total and sent < total + SLACK, ("%d of %d sent"):format(sent, total))
        end)

        it("another goes on at once when the first is killed, with what that one has done", function()
            local server, hub = slow_server()
            local _ <close> = server
            local env, nvme = locks == "flock" and server.env or without_flock(server.env), helper.tmp()
            local placers <close> = start_four(env, nvme)
            helper.eventually(60, "a file on the NVMe", function() return some_file(nvme) end)
            local first = at_work(nvme)
            helper.sh("kill -9 " .. first)
            assert.equal(1, movers(placers, first))
            placing.assert_placed(hub, nvme)
            local sent, total = placing.sent(server).bucket, placing.size(hub)
            -- What the first one had in flight is lost: two parts and what sockets hold.
            assert.is_true(sent >= total and sent < total + 3 * SHARD + SLACK, ("%d of %d sent"):format(sent, total))
        end)
    end)
end

describe("placing while somebody stages", function()
    it("waits, says how far it is, and pulls as soon as the copy is complete", function()
        local hub = staging.hub "64MiB"
        local server <close> = helper.server { hub = hub, rate = 12 << 20 }
        local stage <close> = staging.start(server.env)
        helper.eventually(30, "a heartbeat", function() return staging.marker(server.env, ".staging") end)
        local nvme = helper.tmp()
        local placer <close> = placing.start(server.env, nvme, "every=1s")
        helper.eventually(30, "a line about the wait", function()
            return placer:stderr():find("stages one into the bucket: %d.- of %d.*waiting for it")
        end)
        local code, _, err = stage:wait(120)
        assert.equal(0, code, err)
        code, _, err = placer:wait(120)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        local done, pulled
        for _, entry in ipairs(server:log()) do
            if entry.op == "PutObject" and entry.path:find(".complete", 1, true) then done = entry.start_ms end
            if entry.op == "GetObject" and entry.path:find(".safetensors", 1, true) then
                pulled = pulled or entry.start_ms
            end
        end
        assert.is_true(pulled > done and pulled - done < 15000, ("%d ms later"):format(pulled - done))
        local total, sent = placing.size(hub), placing.sent(server)
        assert.is_true(sent.hub < total + SLACK and sent.bucket < total + 2 * SLACK, "something moved twice")
    end)

    it("goes on to the hub when the stage has died and its heartbeat is stale", function()
        local hub = staging.hub "64MiB"
        local server <close> = helper.server { hub = hub, rate = 12 << 20 }
        local stage <close> = staging.start(server.env)
        helper.eventually(30, "a heartbeat", function() return staging.marker(server.env, ".staging") end)
        stage:kill "KILL"
        stage:wait(10)
        local nvme = helper.tmp()
        local code, _, err = placing.run(server.env, nvme, "every=1s", "stale=12s")
        assert.equal(0, code, err)
        assert.truthy(err:find("waiting for it", 1, true), err)
        assert.truthy(err:find("so it comes from the hub", 1, true), err)
        placing.assert_placed(hub, nvme)
    end)

    it("goes on when the heartbeat disappears, or says that the stage has ended", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        local volume <close> = volumes.mount "juicefs"
        for _, how in ipairs { "gone", "ended" } do
            placing.beat(volume.behind)
            local nvme = helper.tmp()
            local placer <close> = placing.start(server.env, nvme, "every=200ms", "volume=" .. volume.path)
            helper.eventually(30, "a line about the wait", function()
                return placer:stderr():find("stages one into the volume: 1.0 MiB of 8.0 MiB", 1, true)
            end)
            if how == "gone" then
                os.remove(volume.behind .. "/models/tiny/.staging")
            else
                placing.beat(volume.behind, { ended = "failed" })
            end
            local code, _, err = placer:wait(60)
            assert.equal(0, code, err)
            placing.assert_placed(hub, nvme)
        end
    end)

    it("ends with the reason when it has waited as long as it may", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        local volume <close> = volumes.mount "juicefs"
        placing.beat(volume.behind)
        local code, _, err = placing.run(server.env, helper.tmp(), "every=200ms", "wait=1s", "volume=" .. volume.path)
        assert.equal(1, code)
        assert.truthy(err:find("gave up after 1.0s: stop that job, or allow a longer wait=", 1, true), err)
        assert.equal(0, placing.sent(server).hub)
    end)
end)
