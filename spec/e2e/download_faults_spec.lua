-- What may go wrong between us and where the bytes come from: the hub, its CDN, a bucket.
local helper   = require "spec.helper"
local errors   = require "nc.errors"
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
        local other <close> = pipe.bucket(server)
        bucket:put(pipe.PREFIX .. "big", BIG)
        local wanted, another = { { path = "big", size = #BIG, sha256 = pipe.sha256(BIG) } }, BIG:gsub("0", "x")
        assert.are.equal(1, #check(bucket, wanted).files)
        server:faults { "GET *big op=GetObject nth=1-2 slow=1000000" }
        local reading = task.spawn(check, bucket, wanted)
        task.sleep "0.4s" -- the two large parts take more than ten times as long
        other:put(pipe.PREFIX .. "big", another)
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

describe("an error", function()
    it("has an exit code that says whose it is", function()
        local server <close> = pipe.server(FILES, { "PUT * op=UploadPart status=403:QuotaExceeded" })
        local e = pipe.failure(pipe.move, server)
        assert.are.equal("QuotaExceeded", e.code)
        assert.are.equal(5, errors.exit_code(e))
    end)
end)
