-- From bucket to bucket: inside the server where both ends are one service, by way of us where not.
local errors   = require "nc.errors"
local helper   = require "spec.helper"
local pipe     = require "spec.pipe"
local s3       = require "nc.s3"
local sys      = require "nc.core.sys"
local task     = require "nc.task"
local transfer = require "nc.transfer"

local PART <const> = pipe.PART
local BIG <const> = pipe.bytes(2 * PART + 1234)
local ODD <const> = "a +~%&=@?#ü/日本 b"

-- Copies files (path -> text, or a list for transfer.run) from from/ to to/.
local function copy(bucket, files, options)
    options = options or {}
    local target = options.target or bucket
    return transfer.run(helper.env({
        source = { kind = "s3", client = bucket.client, prefix = "from/" },
        sink = { kind = "s3", client = target.client, prefix = "to/" },
        files = files, parallel = 6, part_size = PART,
    }, options, { target = false }))
end

local function listed(bucket)
    local files = {}
    for object in bucket:list "from/" do
        files[#files + 1] = { path = object.key:sub(6), size = object.size, etag = object.etag }
    end
    return files
end

-- Puts the text in two requests' time: as an upload of several parts, where it is large.
local function put(bucket, path, text, options)
    if #text <= PART then return bucket:put("from/" .. path, text, options) end
    local key, parts = "from/" .. path, {}
    local id = bucket:create_upload(key, options)
    for i = 1, (#text + PART - 1) // PART do
        local etag = bucket:upload_part(key, id, i, text:sub((i - 1) * PART + 1, i * PART))
        parts[i] = { number = i, etag = etag }
    end
    bucket:complete_upload(key, id, parts)
end

local function text_at(bucket, key)
    return (bucket:get(key, { max_body = "64MiB" }))
end

local function assert_arrived(bucket, files)
    for path, text in pairs(files) do
        assert.is_true(text_at(bucket, "to/" .. path) == text, path)
    end
    assert.is_nil(bucket:uploads ""())
end

-- Operations that moved bytes through us.
local function moved(server)
    local ops = server:counters().s3.ops
    return (ops.GetObject and ops.GetObject.requests or 0) + (ops.UploadPart and ops.UploadPart.requests or 0)
        + (ops.PutObject and ops.PutObject.requests or 0)
end

for _, target in ipairs(helper.servers()) do
    describe("a copy inside " .. target.name, function()
        local bucket = pipe.bucket(target)
        local FILES <const> = { big = BIG, [ODD] = "odd", ["two parts"] = pipe.bytes(PART + 1), empty = "" }

        it("holds every byte, and what the object was put there with", function()
            for path, text in pairs(FILES) do
                put(bucket, path, text, { content_type = "text/x-" .. #text, metadata = { sha256 = tostring(#text) } })
            end
            local result = copy(bucket, listed(bucket))
            assert.are.same({}, result.failed)
            assert.are.equal(4, #result.files)
            assert_arrived(bucket, FILES)
            for path, text in pairs(FILES) do
                local headers = bucket:ask("HEAD", "to/" .. path).headers
                assert.are.equal("text/x-" .. #text, headers["content-type"], path)
                assert.are.equal(tostring(#text), headers["x-amz-meta-sha256"], path)
            end
            for _, f in ipairs(result.files) do assert.are.equal(f.size, f.moved) end
        end)

        it("needs no ETag to be right", function()
            local files = listed(bucket)
            for _, f in ipairs(files) do f.etag = nil end
            for _, f in ipairs(files) do bucket:delete("to/" .. f.path) end
            assert.are.equal(4, #copy(bucket, files).files)
            assert_arrived(bucket, FILES)
        end)

        it("is of the object that was listed, or fails by its name", function()
            put(bucket, "big", BIG)
            put(bucket, "small", "0123456789")
            local files = {
                { path = "big", size = #BIG, etag = '"0123456789abcdef0123456789abcdef"' },
                { path = "small", size = 10, etag = '"0123456789abcdef0123456789abcdef"' },
                { path = "small/longer", size = 10 }, { path = "two parts", size = PART + 2 },
            }
            for _, f in ipairs(files) do bucket:delete("to/" .. f.path) end
            local codes = {}
            for _, f in ipairs(copy(bucket, files).failed) do codes[f.path] = f.error.code end
            assert.are.same({
                big = "Changed", small = "Changed", ["small/longer"] = "NotFound", ["two parts"] = "SizeMismatch",
            }, codes)
            for _, f in ipairs(files) do assert.is_nil(bucket:head("to/" .. f.path), f.path) end
            assert.is_nil(bucket:uploads ""())
        end)
    end)
end

describe("a copy inside a server", function()
    local function with(faults)
        local server = helper.server { etag = "fast" }
        local bucket = pipe.bucket(server)
        put(bucket, "big", BIG)
        put(bucket, "small", "0123456789")
        local list = listed(bucket)
        server:reset()
        server:faults(faults)
        return server, bucket, list
    end

    local FILES <const> = { big = BIG, small = "0123456789" }

    local function both(fault)
        return { "PUT * op=CopyObject " .. fault, "PUT * op=UploadPartCopy " .. fault }
    end

    it("moves no byte through us", function()
        local server <close>, bucket, files = with {}
        assert.are.equal(2, #copy(bucket, files).files)
        assert.are.equal(0, moved(server))
        assert.are.equal(3, server:counters().s3.ops.UploadPartCopy.requests)
        assert.are.equal(1, server:counters().s3.ops.CopyObject.requests)
        assert_arrived(bucket, FILES)
    end)

    for _, fault in ipairs {
        "nth=1 ok-error=InternalError", "nth=1-2 status=503:SlowDown", "nth=1 empty-ok", "nth=1 half-xml",
        "nth=1 lost-answer", "nth=1 reset",
    } do
        it("comes right after " .. fault, function()
            local server <close>, bucket, files = with(both(fault))
            assert.are.equal(2, #copy(bucket, files).files)
            assert.are.equal(0, moved(server))
            assert_arrived(bucket, FILES)
        end)
    end

    for _, fault in ipairs {
        "status=501:NotImplemented", "status=405:MethodNotAllowed", "status=403:AccessDenied",
        "ok-error=NotImplemented",
    } do
        it("goes by way of us where it is refused with " .. fault, function()
            local _ <close>, bucket, files = with(both(fault))
            -- With two slots a part waits while the one before it is refused.
            local result = copy(bucket, files, { parallel = 2 })
            assert.are.same({}, result.failed)
            assert.are.equal(2, #result.files)
            assert_arrived(bucket, FILES)
        end)
    end

    it("is not taken for done while a 200 says otherwise", function()
        for _, fault in ipairs { "empty-ok", "ok-error=InternalError", "ok-error=SlowDown" } do
            local server <close>, bucket, files = with { "PUT * op=UploadPartCopy " .. fault }
            local bounded = pipe.bucket(server, { AWS_MAX_ATTEMPTS = "2" })
            local ok, result = pcall(copy, bounded, files)
            server:faults {}
            local big = text_at(bucket, "to/big")
            assert.is_true(big == nil and (not ok or #result.failed > 0) or big == BIG, fault)
        end
    end)

    it("is begun again when the object changes once on the way, and fails when it always does", function()
        local server <close>, bucket, files = with { "HEAD *from/big nth=2 etag-change" }
        files[1].etag = nil
        assert.are.equal(2, #copy(bucket, files).files)
        assert_arrived(bucket, FILES)
        server:faults { "HEAD *from/big nth=2 etag-change", "HEAD *from/big nth=4 etag-change" }
        bucket:delete "to/big"
        local result = copy(bucket, files)
        assert.are.equal("Changed", result.failed[1].error.code)
        assert.is_nil(bucket:head "to/big")
        assert.is_nil(bucket:uploads ""())
    end)

    it("is never half of one object and half of another", function()
        local server <close>, bucket, files = with { "PUT * op=UploadPartCopy nth=2- status=503:SlowDown" }
        files[1].etag = nil
        local copying = task.spawn(copy, bucket, files)
        helper.eventually(20, "the first part", function()
            task.sleep "10ms"
            local op = server:counters().s3.ops.UploadPartCopy
            return op and op.requests > 1
        end)
        local other = BIG:gsub("0", "x")
        put(pipe.bucket(server), "big", other)
        server:faults {}
        assert.are.equal(2, #copying:wait().files)
        assert.is_true(text_at(bucket, "to/big") == other)
    end)

    it("stops at once when it is told to", function()
        for _, fault in ipairs {
            "PUT * op=UploadPartCopy accept-stall", "HEAD *from/big accept-stall", "POST * nth=2 accept-stall",
        } do
            local server <close>, bucket, files = with { fault }
            local began = sys.now()
            assert.are.equal("Timeout", pipe.failure(task.deadline, "300ms", copy, bucket, files).code)
            assert.is_true(sys.now() - began < 5, fault)
            server:faults {}
            assert.is_nil(bucket:head "to/big")
        end
    end)

    it("is no way to have bytes hashed: what has a digest comes by way of us and is checked", function()
        local server <close>, bucket, files = with {}
        files[1].sha256 = pipe.sha256(BIG)
        files[2].sha256 = ("0"):rep(64)
        local result = copy(bucket, files)
        assert.are.same({ "big" }, pipe.paths(result.files))
        assert.are.equal("sha256", result.files[1].verified)
        assert.are.equal("DigestMismatch", result.failed[1].error.code)
        assert.is_nil(server:counters().s3.ops.UploadPartCopy)
    end)
end)

describe("from one service to another", function()
    it("every byte goes by way of us", function()
        local server <close> = helper.server()
        local other <close> = helper.server()
        local bucket, target = pipe.bucket(server), pipe.bucket(other)
        put(bucket, "big", BIG)
        put(bucket, ODD, "odd")
        local result = copy(bucket, listed(bucket), { target = target })
        assert.are.equal(2, #result.files)
        assert_arrived(target, { big = BIG, [ODD] = "odd" })
        assert.is_nil(other:counters().s3.ops.UploadPartCopy)
    end)

    it("is what the same service is to other keys", function()
        local server <close> = helper.server()
        local bucket = pipe.bucket(server)
        put(bucket, "small", "0123456789")
        local env = helper.env(server.env, { AWS_SECRET_ACCESS_KEY = "wrong" })
        local target = s3.bucket(env.NC_BUCKET, { env = function(name) return env[name] end })
        local e = pipe.failure(copy, bucket, listed(bucket), { target = target })
        assert.are.equal("SignatureDoesNotMatch", e.code)
        assert.are.equal(4, errors.exit_code(e))
        assert.is_nil(server:counters().s3.ops.CopyObject)
    end)
end)
