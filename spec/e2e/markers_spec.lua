-- The markers of a copy in a bucket: who may write them, what is believed of them.
local helper = require "spec.helper"
local staging = require "spec.staging"

local function put_marker(server, name, text)
    local path = helper.tmp() .. "/marker"
    helper.write(path, text)
    staging.put(server.env, path, "models/tiny/" .. name)
end

describe("`.complete`", function()
    local faults = { "nth=1-2 ok-error=InternalError", "nth=1 status=500", "nth=1 lost-answer", "nth=1 empty-ok" }
    for _, fault in ipairs(faults) do
        it("is there at the end in spite of " .. fault, function()
            local server <close> = helper.server { hub = staging.hub "8MiB", faults = { "PUT *.complete " .. fault } }
            local code, _, err = staging.run(server.env)
            assert.equal(0, code, err)
            assert.equal(9, staging.marker(server.env).total_files)
        end)
    end

    it("that can't be written is no success", function()
        local server <close> = helper.server { hub = staging.hub "8MiB",
            faults = { "PUT *.complete status=403:AccessDenied" } }
        local code, _, err = staging.run(server.env)
        assert.equal(4, code, err)
        assert.is_nil(staging.marker(server.env))
    end)

    it("that was cut short proves nothing", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        assert.equal(0, (staging.run(server.env)))
        put_marker(server, ".complete", '{"version":1,"files":[')
        local code, _, err = staging.run(server.env)
        assert.equal(0, code, err)
        assert.truthy(err:find("cut short", 1, true), err)
        assert.equal(9, staging.marker(server.env).total_files)
    end)

    it("of another repository is not written over", function()
        local hub = staging.hub "8MiB"
        helper.checkpoint(hub .. "/other/tiny", { size = "8MiB", shards = 1 })
        local server <close> = helper.server { hub = hub }
        assert.equal(0, (staging.run(server.env)))
        local code, _, err = helper.ncrun({ "recipes/stage-weights.lua", "model=other/tiny" }, { env = server.env })
        assert.equal(2, code)
        assert.truthy(err:find("holds a copy of acme/tiny, not of other/tiny", 1, true), err)
        code, _, err = helper.ncrun({ "recipes/stage-weights.lua", "model=other/tiny", "name=other" },
            { env = server.env })
        assert.equal(0, code, err)
        assert.equal("acme/tiny", staging.marker(server.env).repository)
    end)

    it("of a part of the repository says which patterns made it", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        assert.equal(0, (staging.run(server.env, "allow=*.json")))
        assert.same({ "*.json" }, staging.marker(server.env).allow)
        assert.equal(0, (staging.run(server.env)))
        assert.is_nil(staging.marker(server.env).allow)
    end)

    it("of a revision with fewer files leaves the others alone and says so", function()
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        assert.equal(0, (staging.run(server.env)))
        helper.sh(("cp -r %s/acme/tiny %s/acme/tiny@v2 && rm %s/acme/tiny@v2/README.md"):format(hub, hub, hub))
        local code, _, err = staging.run(server.env, "revision=v2")
        assert.equal(0, code, err)
        assert.truthy(err:find("1 files are not of this revision (README.md) and were left alone", 1, true), err)
        assert.is_truthy(staging.object(server.env, "models/tiny/README.md"))
    end)
end)

describe("`.staging`", function()
    for _, name in ipairs { "ncdev", "rgw" } do
        it("lets one of two stages that begin together work, the other wait, on " .. name, function()
            local server <close> = helper.server { hub = staging.hub "32MiB", rate = 16 << 20 }
            local store <close> = name == "rgw" and helper.rgw() or server
            local env = helper.env(store.env, { HF_ENDPOINT = server.env.HF_ENDPOINT })
            local one <close> = staging.start(env)
            local two <close> = staging.start(env)
            local code_one, _, err_one = one:wait(60)
            local code_two, _, err_two = two:wait(60)
            assert.equal(0, code_one, err_one)
            assert.equal(0, code_two, err_two)
            local out = staging.sum(server:counters().cdn.ops, "out")
            assert.is_true(out < 40 << 20, out .. " bytes came from the hub")
            assert.truthy((err_one .. err_two):find("nothing is downloaded twice", 1, true), err_one .. err_two)
        end)
    end

    it("that can't be read is waited for like any other, and said to be so", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        put_marker(server, ".staging", "{")
        local code, _, err = staging.run(server.env, "wait=1s")
        assert.equal(1, code)
        assert.truthy(err:find("the heartbeat can't be read", 1, true), err)
    end)
end)

describe("a request of the stage itself", function()
    it("that is not answered is cut and sent again", function()
        local server <close> = helper.server { hub = staging.hub "8MiB",
            faults = { "GET *.staging nth=1 accept-stall" } }
        local code, _, err = staging.run(server.env)
        assert.equal(0, code, err)
    end)

    it("never acts on the bucket for want of a key", function()
        local script = helper.tmp() .. "/script.lua"
        helper.write(script, [[
            local bucket = require "nc.s3".bucket(os.getenv "NC_BUCKET")
            for _, verb in ipairs { "delete", "put", "get", "head" } do
                for _, key in ipairs { "", false } do
                    local ok, e = pcall(function() bucket[verb](bucket, key or nil, "x") end)
                    assert(not ok and tostring(e):find "script.lua.*key", verb .. tostring(e))
                end
            end
        ]])
        local server <close> = helper.server()
        local code, _, err = helper.ncrun({ script }, { env = server.env })
        assert.equal(0, code, err)
    end)

    it("ends with a line of JSON where lines are JSON", function()
        local server <close> = helper.server()
        local code, _, err = staging.run(server.env, "log=json")
        assert.equal(3, code)
        local last = require "dkjson".decode(err:match "([^\n]+)\n$")
        assert.equal("error", last.level)
        assert.equal("RepoNotFound", last.code)
    end)
end)
