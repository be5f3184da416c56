-- Into a folder, from a bucket and from another folder, with the digest of every part known: how a copy
-- comes to where it is used.
local errors   = require "nc.errors"
local helper   = require "spec.helper"
local pipe     = require "spec.pipe"
local pulls    = require "spec.pulls"
local task     = require "nc.task"
local transfer = require "nc.transfer"

local PART <const> = pulls.PART
local TEXTS <const> = {
    ["big.bin"] = pipe.bytes(3 * PART + 17), ["even.bin"] = pipe.bytes(2 * PART),
    ["deep/er/mid.txt"] = pipe.bytes(70000), ["config.json"] = "{}", ["empty"] = "",
}
local BYTES <const> = 5 * PART + 17 + 70000 + 2

-- A deep enough copy of the list, to change.
local function copied(files)
    local list = {}
    for i, f in ipairs(files) do list[i] = helper.env(f) end
    return list
end

local function pull(source, to, files, options)
    return transfer.run(helper.env({
        source = source, sink = { kind = "dir", root = to }, files = files, parallel = 6, part_size = PART,
    }, options or {}))
end

local function by_path(files, path)
    for _, f in ipairs(files) do
        if f.path == path then return f end
    end
end

describe("a pull", function()
    local folder, files, server, bucket, places

    setup(function()
        folder, files = pulls.folder(TEXTS)
        server = pulls.server(folder, files)
        bucket = pipe.bucket(server)
        places = {
            bucket = { kind = "s3", client = bucket.client, prefix = "from/" },
            folder = { kind = "dir", root = folder },
        }
    end)

    teardown(function() server:__close() end)

    before_each(function()
        server:faults {}
        server:reset()
    end)

    for _, place in ipairs { "bucket", "folder" } do
        it("from a " .. place .. " compares every part, and says so", function()
            local to = helper.tmp()
            local result = pull(places[place], to, copied(files))
            assert.same({}, result.failed)
            pulls.assert_pulled(folder, to)
            for _, f in ipairs(result.files) do
                assert.equal("parts", f.verified)
                assert.equal(f.size, f.moved)
                assert.same(by_path(files, f.path).parts, f.parts)
            end
            assert.equal(BYTES, result.moved)
        end)

        it("from a " .. place .. " without digests says that nothing was compared", function()
            local to, list = helper.tmp(), copied(files)
            for _, f in ipairs(list) do f.parts = nil end
            for _, f in ipairs(pull(places[place], to, list).files) do assert.is_nil(f.verified) end
            pulls.assert_pulled(folder, to)
        end)
    end

    it("fetches one wrong part again, alone", function()
        for _, path in ipairs { "big.bin", "deep/er/mid.txt" } do
            server:reset()
            local size = by_path(files, path).size
            -- The first two requests are for the first two parts, in either order.
            server:faults { ("GET *%s nth=1-%d flip=11"):format(path, size > PART and 2 or 1) }
            local to = helper.tmp()
            local result = pull(places.bucket, to, { copied { by_path(files, path) }[1] }, { parallel = 2 })
            assert.same({}, result.failed)
            assert.equal(1, result.retries)
            local requests, bytes = pulls.count(server, "GetObject")
            assert.equal((size + PART - 1) // PART + 1, requests)
            assert.equal(size + math.min(size, PART), bytes)
            assert.is_true(helper.read(to .. "/" .. path) == TEXTS[path])
        end
    end)

    it("gives a part up that is wrong three times, by its name, and leaves nothing of the file", function()
        local to = helper.tmp()
        server:faults { "GET *big.bin flip=" .. PART + 5 }
        local result = pull(places.bucket, to, copied(files), { parallel = 2 })
        assert.same({ "big.bin" }, pipe.paths(result.failed))
        local e = result.failed[1].error
        assert.equal("DigestMismatch", e.code)
        assert.truthy(tostring(e):find("big.bin: part 2 has the XXH3-128", 1, true), tostring(e))
        assert.is_nil(helper.read(to .. "/big.bin"))
        assert.same({}, pulls.half_written(to))
        assert.equal(4, pulls.assert_whole_or_absent(folder, to))
        local n = 0
        for _, r in ipairs(server:log()) do
            if r.path:find("big.bin", 1, true) then n = n + 1 end
        end
        assert.is_true(n <= 4 + 2, n .. " requests for big.bin") -- each part, and two more for the wrong one
    end)

    it("finds what a folder holds that is not what the manifest says", function()
        local from, list = pulls.folder(TEXTS)
        pulls.flip(from .. "/even.bin", 2 * PART - 1)
        pulls.flip(from .. "/config.json", 0)
        local to = helper.tmp()
        local result = pull({ kind = "dir", root = from }, to, list)
        assert.same({ "config.json", "even.bin" }, pipe.paths(result.failed))
        for _, f in ipairs(result.failed) do assert.is_true(errors.is(f.error, "DigestMismatch")) end
        assert.same({}, pulls.half_written(to))
        assert.equal(3, pulls.assert_whole_or_absent(folder, to))
    end)

    it("replaces what has the name only when all of it is right", function()
        local to = helper.tmp()
        helper.write(to .. "/big.bin", "old")
        helper.write(to .. "/even.bin", "old")
        server:faults { "GET *big.bin flip=1" }
        pull(places.bucket, to, copied(files))
        assert.equal("old", helper.read(to .. "/big.bin"))
        assert.is_true(helper.read(to .. "/even.bin") == TEXTS["even.bin"])
    end)

    it("notices by the ETag that an object was replaced, from the first range on", function()
        local list = copied { by_path(files, "big.bin") }
        list[1].parts = nil -- the bytes would not tell
        list[1].etag = '"0123456789abcdef0123456789abcdef"'
        local to = helper.tmp()
        local result = pull(places.bucket, to, list)
        assert.equal("Changed", result.failed[1].error.code)
        local _, bytes = pulls.count(server, "GetObject")
        assert.is_true(bytes < 100000, bytes .. " bytes came of it") -- error documents alone
        assert.same({}, pulls.half_written(to))
        assert.is_nil(helper.read(to .. "/big.bin"))
    end)

    it("is never of two objects, where one is replaced on the way", function()
        local other = TEXTS["big.bin"]:gsub("0", "x")
        pulls.upload(bucket, "from/changing", TEXTS["big.bin"])
        server:faults { "GET *changing nth=2- stall=1000" }
        local to = helper.tmp()
        local pulling = task.spawn(pull, places.bucket, to, { { path = "changing", size = #other, version = "1" } },
            { stall = 1, parallel = 2 })
        helper.eventually(20, "the first part", function()
            task.sleep "20ms"
            return #pulls.half_written(to) == 2
        end)
        pulls.upload(pipe.bucket(server), "from/changing", other)
        server:faults {}
        assert.equal(1, #pulling:wait().files)
        assert.is_true(helper.read(to .. "/changing") == other)
    end)

    for _, way in ipairs { "with", "without" } do
        it("notices that a file is changed while it is read, " .. way .. " digests", function()
            local from, list = pulls.random(12 * PART)
            if way == "without" then list[1].parts = nil end
            local writer <close> = helper.start { "sh", "-c",
                ("while :; do printf 0 1<>%s/big.bin; sleep 0.005; done"):format(from) }
            helper.sh "sleep 0.1"
            local to = helper.tmp()
            local result = pull({ kind = "dir", root = from }, to, list)
            assert.is_true(writer:running())
            assert.equal("Changed", result.failed[1].error.code)
            assert.truthy(tostring(result.failed[1].error):find("big.bin: it was [%a ]+ while it was"))
            assert.same({}, pulls.half_written(to))
            assert.is_nil(helper.read(to .. "/big.bin"))
        end)
    end

    for _, fault in ipairs {
        "cut=1000", "cut-chunked=1000", "reset=1000", "reset", "stall=1000", "accept-stall", "slow=50", "status=503",
        "status=500", "ignore-range", "wrong-range", "flip=5", "gzip", "login-page",
    } do
        it("comes whole from a bucket in spite of " .. fault, function()
            server:faults { "GET * op=GetObject nth=1-2 " .. fault }
            local to = helper.tmp()
            local result = pull(places.bucket, to, copied(files), { stall = 1 })
            assert.same({}, result.failed)
            pulls.assert_pulled(folder, to)
        end)
    end
end)
