-- Where the weights come from, for every state that NVMe, volume, bucket and hub can be in.
local helper  = require "spec.helper"
local placing = require "spec.placing"
local staging = require "spec.staging"
local volumes = require "spec.volumes"

local SLACK <const> = 64 << 10        -- markers, listings, requests
local NOWHERE <const> = "http://127.0.0.1:9"

-- What is to happen: the source of the bytes, and the exit code.
local function expected(nvme, volume, bucket, hub)
    if nvme == "complete" then return nil, 0 end
    if volume == "complete" then return "volume", 0 end
    if bucket == "complete" then return "bucket", 0 end
    if volume == "staging" or bucket == "staging" then return nil, 1 end -- waited for, here for no time at all
    if hub == "up" then return "hub", 0 end
    return nil, 1
end

describe("placing", function()
    local hub = staging.hub "8MiB"
    local server = helper.server { hub = hub }
    local total, shard = placing.size(hub), #helper.read(hub .. "/acme/tiny/" .. placing.SHARDS[2])
    local mounts, envs, nvmes = {}, {}, {}

    setup(function()
        for _, state in ipairs { "absent", "staging", "complete" } do
            envs[state] = placing.make_bucket(server.env, state)
        end
        for _, state in ipairs { "staging", "complete" } do mounts[state] = volumes.mount "juicefs" end
        mounts.absent = { path = helper.tmp(), read_bytes = function() return 0 end } -- a mere folder
        assert.equal(0, (staging.run(envs.complete)))
        assert.equal(0, (staging.run(envs.complete, "to=volume", "volume=" .. mounts.complete.path)))
        local beat = helper.tmp() .. "/beat"
        helper.write(beat, placing.heartbeat())
        staging.put(envs.staging, beat, "models/tiny/.staging")
        placing.beat(mounts.staging.path)
        for _, state in ipairs { "complete", "partial" } do
            nvmes[state] = helper.tmp()
            assert.equal(0, (placing.run(envs.complete, nvmes[state], "volume=/none")))
        end
    end)

    teardown(function()
        mounts.staging:__close()
        mounts.complete:__close()
        server:__close()
    end)

    -- The folder, and the bytes that it lacks.
    local function arrange(state)
        if state == "empty" then return helper.tmp(), total end
        if state == "complete" then return nvmes.complete, 0 end
        os.remove(placing.folder(nvmes.partial) .. "/" .. placing.SHARDS[2])
        return nvmes.partial, shard
    end

    for _, nvme in ipairs { "complete", "partial", "empty" } do
        for _, volume in ipairs { "absent", "staging", "complete" } do
            for _, bucket in ipairs { "absent", "staging", "complete" } do
                for _, hub_state in ipairs { "up", "down" } do
                    local from, exit = expected(nvme, volume, bucket, hub_state)
                    local name = ("onto an NVMe that is %s, volume %s, bucket %s, hub %s: %s, exit %d"):format(
                        nvme, volume, bucket, hub_state, from and "from the " .. from or "nothing moves", exit)
                    it(name, function()
                        local folder, lacking = arrange(nvme)
                        server:reset()
                        local before = mounts[volume]:read_bytes()
                        local env = helper.env(envs[bucket], hub_state == "down" and { HF_ENDPOINT = NOWHERE } or {})
                        local code, _, err = placing.run(env, folder, "volume=" .. mounts[volume].path, "wait=0s")
                        assert.equal(exit, code, err)
                        local sent = placing.sent(server)
                        sent.volume = mounts[volume]:read_bytes() - before
                        for _, source in ipairs { "volume", "bucket", "hub" } do
                            local due = source == from and lacking or 0
                            assert.is_true(sent[source] >= due and sent[source] < due + SLACK,
                                ("%d bytes from the %s where %d are due\n%s"):format(sent[source], source, due, err))
                        end
                        if exit == 0 then placing.assert_placed(hub, folder) end
                    end)
                end
            end
        end
    end
end)
