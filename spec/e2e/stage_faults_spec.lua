-- What may go wrong while `ncrun recipes/stage-weights.lua` runs, seen from outside.
local helper  = require "spec.helper"
local marker  = require "nc.marker"
local pipe    = require "spec.pipe"
local staging = require "spec.staging"

describe("a name that the hub gives", function()
    for encoded, why in pairs {
        ["../x"] = "leave", ["a/../../x"] = "leave", ["/x"] = "absolute", ["a//x"] = "leave", ["./x"] = "leave",
        ["config.json/x"] = "folder", ["config.json"] = "twice", ["a%0ab"] = "control",
        [".complete"] = "marker", [".staging"] = "marker", ["a/"] = "leave",
    } do
        it("is refused with the whole list where it is " .. encoded, function()
            local server <close> = helper.server { hub = staging.hub "8MiB" }
            server:faults { "GET * op=Tree add-key=" .. encoded }
            local code, _, err = staging.run(server.env)
            assert.are.equal(1, code)
            assert.is_truthy(err:find(why, 1, true), err)
            assert.is_truthy(err:find("nothing was copied", 1, true), err)
            assert.is_nil(server:counters().s3.ops.PutObject)
            assert.is_nil(server:counters().s3.ops.CreateMultipartUpload)
        end)
    end

    it("is refused with a NUL in it", function()
        local server <close> = helper.server { hub = staging.hub "8MiB", faults = { "GET * op=Tree add-key=a%00b" } }
        assert.are.equal(1, (staging.run(server.env)))
        assert.is_nil(server:counters().s3.ops.PutObject)
        assert.is_false(pcall(marker.check_paths, { { path = "a\0b" } }))
    end)

    it("may be anything that is a name", function()
        local files = {}
        for _, name in ipairs { "a b", "ü/日本", "+~%&=@", "%41", "#?;", "...", "..a/b..", "'\"`$(x)", "-rf", "a\\b" } do
            files[name] = "<" .. name .. ">"
        end
        local server <close> = pipe.server(files)
        marker.check_paths(pipe.model(server):files())
        assert.are.equal(10, #pipe.move(server).files)
        pipe.assert_moved(server)
    end)
end)

describe("a stage", function()
    it("has no marker when one file is not to be had, and says which", function()
        local server <close> = helper.server { hub = staging.hub "8MiB",
            faults = { "GET *tokenizer* op=Resolve status=404:EntryNotFound", "GET *00002* side=cdn flip=100" } }
        local code, _, err = staging.run(server.env)
        assert.are.equal(6, code)
        assert.is_truthy(err:find "00002%-of%-00004.safetensors: its SHA%-256 is", err)
        assert.is_nil(staging.marker(server.env))
        assert.are.equal("failed", staging.marker(server.env, ".staging").ended)
    end)

    it("has no marker when the hub fails in the middle", function()
        local server <close> = helper.server { hub = staging.hub "32MiB",
            faults = { "GET * op=Resolve nth=4- status=403" } }
        local code, _, err = staging.run(server.env, "parallel=4")
        assert.are.equal(4, code)
        assert.is_truthy(err:find "HF_TOKEN", err)
        assert.is_nil(staging.marker(server.env))
    end)

    it("waits as long as a 429 says, and goes on", function()
        local server <close> = helper.server { hub = staging.hub "8MiB",
            faults = { "GET * op=Resolve nth=3 status=429::2" } }
        local code, _, err = staging.run(server.env)
        assert.are.equal(0, code, err)
        staging.assert_staged(server.env, server.hub)
    end)

    it("goes on with new addresses when those of the CDN end", function()
        local server <close> = helper.server { hub = staging.hub "32MiB", rate = 10 << 20 }
        local child <close> = staging.start(server.env, "part_size=5MiB")
        for _ = 1, 3 do
            local before = server:counters().cdn.requests
            helper.eventually(30, "more parts", function()
                return not child:running() or server:counters().cdn.requests > before + 2
            end)
            server:rotate()
        end
        local code, _, err = child:wait(60)
        assert.are.equal(0, code, err)
        staging.assert_staged(server.env, server.hub)
        assert.are.equal(0, server:counters().auth_leaks)
    end)

    it("goes on when hub and bucket were gone for a moment", function()
        local server = helper.server { hub = staging.hub "32MiB", rate = 10 << 20 }
        local child <close> = staging.start(server.env, "part_size=5MiB")
        helper.eventually(30, "some parts", function()
            local op = server:counters().s3.ops.UploadPart
            return op and op.requests > 1
        end)
        server.child:kill "KILL"
        server.child:wait(20)
        helper.sh "sleep 2"
        local again <close> = helper.server { hub = server.hub, root = server.root,
            port = server.env.AWS_ENDPOINT_URL:match ":(%d+)$" }
        local code, _, err = child:wait(80)
        assert.are.equal(0, code, err)
        staging.assert_staged(again.env, server.hub)
        assert.are.equal(0, #staging.uploads(again))
    end)

    it("stays at one commit when the branch moves", function()
        local server <close> = helper.server { hub = staging.hub "16MiB", rate = 6 << 20 }
        local child <close> = staging.start(server.env)
        helper.eventually(30, "the first bytes", function() return server:counters().cdn.requests > 0 end)
        local before = pipe.commit(server, "acme/tiny")
        assert(os.execute(("cd %s/acme && mv tiny tiny@old && cp -r tiny@old tiny && echo new > tiny/new.txt"):format(
            server.hub)))
        local code, _, err = child:wait(60)
        assert.are.equal(0, code, err)
        local manifest = staging.marker(server.env)
        assert.are.equal(before, manifest.commit)
        assert.are_not.equal(before, pipe.commit(server, "acme/tiny"))
        assert.are.equal(9, manifest.total_files)
        assert.is_nil(staging.object(server.env, "models/tiny/new.txt"))
    end)

    it("never gives the bucket or the CDN the hub's token", function()
        local server <close> = helper.server { hub = staging.hub "8MiB", hf_token = "hf_only_for_the_hub" }
        local env = helper.env(server.env, { HF_TOKEN = "hf_only_for_the_hub\n" })
        local code, out, err = staging.run(env)
        assert.are.equal(0, code, err)
        assert.are.equal(0, server:counters().auth_leaks)
        assert.are.equal(0, server:counters().rejected_signatures)
        assert.is_nil((out .. err):find("only_for_the_hub", 1, true))
    end)

    it("keeps to its memory whatever it moves", function()
        local server <close> = helper.server { hub = staging.hub("512MiB", 2), memory = "yes", root = false }
        local code, _, err = helper.run({ "/usr/bin/time", "-f", "peak %M", helper.NCRUN, "recipes/stage-weights.lua",
            "model=acme/tiny", "memory=64MiB" }, { env = server.env, timeout = 100 })
        assert.are.equal(0, code, err)
        local sanitized = helper.NCRUN:find "build/[at]" ~= nil -- shadow memory counts, too
        assert.is_true(sanitized or tonumber(err:match "peak (%d+)") < 128 * 1024, err)
    end)
end)
