-- What may go wrong between us and where the bytes come from: the hub, its CDN, a bucket.
local helper   = require "spec.helper"
local errors   = require "nc.errors"
local marker   = require "nc.marker"
local pipe     = require "spec.pipe"
local staging  = require "spec.staging"
local sys      = require "nc.core.sys"
local task     = require "nc.task"
local transfer = require "nc.transfer"

local PART <const> = pipe.PART
local BIG <const> = pipe.bytes(2 * PART + 1234)
local FILES <const> = { ["big.safetensors"] = BIG, ["mid.bin"] = pipe.bytes(70000), ["config.json"] = "{}" }

-- Reads the bucket's copy and checks it, to keep none of it.
local function check(bucket, files, options)
    return transfer.run(helper.env({
        source = { kind = "s3", client = bucket.client, prefix = pipe.PREFIX }, sink = { kind = "none" },
        files = files, parallel = 2, part_size = PART,
    }, options or {}))
end

describe("a file on its way down", function()
    for _, fault in ipairs {
        "cut=1000", "cut-chunked=1000", "reset=1000", "reset", "stall=1000", "accept-stall", "slow=50",
        "status=503", "status=500", "ignore-range", "wrong-range", "flip=5", "gzip", "login-page", "pointer",
        "expire",
    } do
        it("comes whole in spite of " .. fault, function()
            local nth = fault:find "flip" and "nth=1 " or "nth=1-2 " -- twice in one file is too much
            local server <close> = pipe.server(FILES, { "GET * side=cdn " .. nth .. fault })
            local began = sys.now()
            local result = pipe.move(server, { stall = 1 })
            assert.are.equal(3, #result.files)
            assert.is_true(sys.now() - began < 20)
            pipe.assert_moved(server)
        end)
    end

    for _, fault in ipairs { "ignore-range", "wrong-range", "flip=5", "login-page", "pointer" } do
        it("is never taken for right that always comes with " .. fault, function()
            local server <close> = pipe.server({ big = BIG, ["config.json"] = "{}" }, { "GET * side=cdn " .. fault })
            local result = pipe.move(server)
            assert.are.same({ "big" }, pipe.paths(result.failed))
            assert.are.same({ ["config.json"] = 2 }, pipe.listed(server))
            assert.are.equal(0, #staging.uploads(server))
        end)
    end

    it("is never taken for whole that is always cut", function()
        for _, fault in ipairs { "cut=1000", "cut-chunked=1000" } do
            local server <close> = pipe.server({ mid = FILES["mid.bin"] }, { "GET * side=cdn " .. fault })
            local moving = task.spawn(pipe.move, server)
            task.sleep "2s"
            moving:cancel()
            assert.is_false(pcall(moving.wait, moving))
            assert.are.same({}, pipe.listed(server))
        end
    end)

    it("is fetched once more, alone, when one bit was wrong", function()
        local server <close> = pipe.server(FILES, { "GET *big* side=cdn nth=2 flip=" .. PART + 17 })
        assert.are.equal(3, #pipe.move(server).files)
        pipe.assert_moved(server)
        assert.is_true(server:counters().cdn.out <= 2 * #BIG + 2 * 70000)
    end)
end)

describe("a transfer where nothing moves", function()
    it("fails when its time is over, and says how to go on", function()
        local server <close> = pipe.server(FILES, { "GET * side=cdn accept-stall" })
        local began = sys.now()
        local e = pipe.failure(pipe.move, server, { give_up = 2 })
        assert.are.equal("Stalled", e.code)
        assert.is_truthy(tostring(e):find "run it again")
        assert.is_true(sys.now() - began < 10)
    end)

    it("fails the same way when the bucket takes nothing", function()
        local server <close> = pipe.server(FILES, { "PUT * op=UploadPart accept-stall" })
        assert.are.equal("Stalled", pipe.failure(pipe.move, server, { give_up = 2 }).code)
    end)

    it("stops at once when it is told to", function()
        local server <close> = pipe.server(FILES, { "GET * side=cdn accept-stall" })
        local began = sys.now()
        local moving = task.spawn(pipe.move, server)
        task.sleep "0.5s"
        moving:cancel()
        assert.is_false(pcall(moving.wait, moving))
        assert.is_true(sys.now() - began < 5)
    end)
end)

describe("an object that is read in parts", function()
    local files <const> = { { path = "big", size = #BIG } }

    it("is begun again when it changes once", function()
        local server <close> = helper.server()
        local bucket <close> = pipe.bucket(server)
        bucket:put(pipe.PREFIX .. "big", BIG)
        server:faults { "GET *big nth=2 etag-change" }
        assert.are.equal(1, #check(bucket, files).files)
    end)

    it("fails when it changes all the time", function()
        local server <close> = helper.server()
        local bucket <close> = pipe.bucket(server)
        bucket:put(pipe.PREFIX .. "big", BIG)
        server:faults { "GET *big p=0.5 seed=5 etag-change" }
        local result = check(bucket, files)
        assert.is_true(#result.failed == 1 and result.failed[1].error.code == "Changed" or #result.files == 1)
        server:faults { "GET *big nth=2 etag-change", "GET *big nth=5- etag-change", "GET *big nth=4 status=412" }
        result = check(bucket, files)
        assert.are.equal("Changed", result.failed[1].error.code)
    end)

    it("is not mixed with what replaces it on the way", function()
        local server <close> = helper.server()
        local bucket <close> = pipe.bucket(server)
        bucket:put(pipe.PREFIX .. "big", BIG)
        local wanted = { { path = "big", size = #BIG, sha256 = pipe.sha256(BIG) } }
        assert.are.equal(1, #check(bucket, wanted).files)
        server:faults { "GET *big op=GetObject nth=1-2 slow=3000000" }
        local reading = task.spawn(check, bucket, wanted)
        task.sleep "0.4s" -- the two large parts take four times as long
        pipe.bucket(server):put(pipe.PREFIX .. "big", (BIG:gsub("0", "x")))
        local result = reading:wait()
        assert.are.same({ "big" }, pipe.paths(result.failed))
    end)

    it("has to be as long as it was listed", function()
        local server <close> = helper.server()
        local bucket <close> = pipe.bucket(server)
        bucket:put(pipe.PREFIX .. "a", "0123456789")
        bucket:put(pipe.PREFIX .. "b", "0123456789")
        local result = check(bucket, { { path = "a", size = 11 }, { path = "b", size = 9 }, { path = "c", size = 1 } })
        assert.are.equal(3, #result.failed)
    end)

    it("has to have the digest it was listed with", function()
        local server <close> = helper.server()
        local bucket <close> = pipe.bucket(server)
        bucket:put(pipe.PREFIX .. "a", "0123456789")
        local result = check(bucket, { { path = "a", size = 10, sha256 = ("0"):rep(64) } })
        assert.are.equal("DigestMismatch", result.failed[1].error.code)
    end)
end)

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

describe("an error", function()
    it("has an exit code that says whose it is", function()
        local server <close> = pipe.server(FILES, { "PUT * op=UploadPart status=403:QuotaExceeded" })
        local e = pipe.failure(pipe.move, server)
        assert.are.equal("QuotaExceeded", e.code)
        assert.are.equal(5, errors.exit_code(e))
    end)
end)
