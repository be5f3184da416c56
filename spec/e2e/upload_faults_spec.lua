-- What may go wrong between us and a bucket while a checkpoint is on its way from the hub.
local helper  = require "spec.helper"
local errors  = require "nc.errors"
local pipe    = require "spec.pipe"
local staging = require "spec.staging"
local sys     = require "nc.core.sys"

local PART <const> = pipe.PART
local BIG <const> = pipe.bytes(2 * PART + 1234)
local FILES <const> = { ["big.safetensors"] = BIG, ["config.json"] = "{}" }
local BIG_SHA256 <const> = pipe.sha256(BIG)
local COMPLETE <const> = "POST * op=CompleteMultipartUpload "

describe("completing an upload", function()
    for _, fault in ipairs {
        "nth=1 ok-error=InternalError", "nth=1 ok-error=SlowDown", "nth=1 empty-ok", "nth=1 half-xml",
        "nth=1-2 status=503:SlowDown", "nth=1 status=500:InternalError", "nth=1 lost-answer", "lost-answer",
        "half-xml", "nth=1 reset",
    } do
        it("comes right after " .. fault, function()
            local server <close> = pipe.server(FILES, { COMPLETE .. fault })
            assert.are.equal(2, #pipe.move(server).files)
            server:faults {}
            pipe.assert_moved(server)
        end)
    end

    it("has not happened while a 200 says otherwise", function()
        for _, fault in ipairs { "ok-error=AccessDenied", "ok-error=InternalError", "empty-ok" } do
            local server <close> = pipe.server(FILES, { COMPLETE .. fault })
            local ok, result = pcall(pipe.move, server)
            assert.is_true(not ok or #result.failed == 1, fault)
            assert.is_nil(pipe.listed(server)["big.safetensors"], fault)
        end
    end)

    it("leaves no object of another size in place of a lost one", function()
        local server <close> = pipe.server(FILES, { COMPLETE .. "empty-ok" })
        pipe.bucket(server):put(pipe.PREFIX .. "big.safetensors", "an old one")
        local ok, result = pcall(pipe.move, server)
        assert.is_true(not ok or #result.failed == 1)
    end)

    it("takes no older object of the same size for its own", function()
        local server <close> = pipe.server(FILES, { COMPLETE .. "empty-ok" })
        pipe.bucket(server):put(pipe.PREFIX .. "big.safetensors", ("x"):rep(#BIG))
        local ok, result = pcall(pipe.move, server)
        assert.is_true(not ok or #result.failed == 1)
    end)

    it("starts the file over when the server has lost a part", function()
        local server <close> = pipe.server(FILES, { "PUT * op=UploadPart nth=2 drop-part" })
        assert.are.equal(2, #pipe.move(server).files)
        pipe.assert_moved(server)
    end)

    it("publishes nothing when the server loses every part", function()
        local server <close> = pipe.server(FILES, { "PUT * op=UploadPart drop-part" })
        local result = pipe.move(server)
        assert.are.same({ "big.safetensors" }, pipe.paths(result.failed))
        assert.are.same({ "config.json" }, pipe.paths(result.files))
        assert.is_nil(pipe.listed(server)["big.safetensors"])
        assert.are.equal(0, #staging.uploads(server))
    end)

    it("is not even tried when a part has failed for good", function()
        local server <close> = pipe.server(FILES, { "PUT * op=UploadPart nth=2- status=403:AccessDenied" })
        assert.are.equal("AccessDenied", pipe.failure(pipe.move, server).code)
        assert.is_nil(server:counters().s3.ops.CompleteMultipartUpload)
        assert.is_nil(pipe.listed(server)["big.safetensors"])
    end)

    it("starts the file over when its upload is gone", function()
        local server <close> = pipe.server(FILES, { "PUT * op=UploadPart nth=2 status=404:NoSuchUpload" })
        assert.are.equal(2, #pipe.move(server).files)
        pipe.assert_moved(server)
    end)
end)

-- An upload of an earlier run that has all parts of the big file.
local function stored(bucket, path)
    local key, etags = pipe.PREFIX .. path, {}
    local id = bucket:create_upload(key, { metadata = { sha256 = BIG_SHA256 } })
    for i = 1, 3 do
        etags[i] = bucket:upload_part(key, id, i, BIG:sub((i - 1) * PART + 1, i * PART))
    end
    return id, etags
end

local function continued(server, id, etags)
    local files = pipe.model(server):files()
    files[1].upload_id, files[1].etags = id, etags
    return files
end

for _, target in ipairs(helper.servers()) do
    describe("an upload of an earlier run on " .. target.name, function()
        local server = pipe.server(FILES)
        local bucket = pipe.bucket(target)
        local PATH <const> = "big.safetensors"

        it("is completed without moving a byte of it", function()
            local id, etags = stored(bucket, PATH)
            server:reset()
            local result = pipe.move(server, { bucket = bucket, files = continued(server, id, etags) })
            assert.are.equal(2, #result.files)
            assert.are.equal(0, server:counters().cdn.requests)
            pipe.assert_moved(server, bucket)
        end)

        it("is continued with the parts that it lacks", function()
            local id, etags = stored(bucket, PATH)
            etags[2] = nil
            server:reset()
            pipe.move(server, { bucket = bucket, files = continued(server, id, etags) })
            assert.are.equal(1, server:counters().cdn.requests)
            pipe.assert_moved(server, bucket)
        end)

        it("is done when it was completed and nobody heard of it", function()
            local id, etags = stored(bucket, PATH)
            local parts = {}
            for i, etag in ipairs(etags) do parts[i] = { number = i, etag = etag } end
            bucket:complete_upload(pipe.PREFIX .. PATH, id, parts)
            server:reset()
            local result = pipe.move(server, { bucket = bucket, files = continued(server, id, etags) })
            assert.are.equal(2, #result.files)
            assert.are.equal(0, server:counters().cdn.requests)
            pipe.assert_moved(server, bucket)
        end)

        it("is started over when it is gone", function()
            bucket:delete(pipe.PREFIX .. PATH)
            local id, etags = stored(bucket, PATH)
            bucket:abort_upload(pipe.PREFIX .. PATH, id)
            for missing = 0, 1 do
                etags[3 * missing] = nil -- none missing: only Complete can find out
                local result = pipe.move(server, { bucket = bucket, files = continued(server, id, etags) })
                assert.are.equal(2, #result.files)
                pipe.assert_moved(server, bucket)
                bucket:delete(pipe.PREFIX .. PATH)
            end
        end)
    end)
end

describe("the parts of a file", function()
    it("are right at every edge", function()
        local files = {}
        for _, size in ipairs { 0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1 } do
            files[("f%d"):format(size)] = pipe.bytes(size)
        end
        local server <close> = pipe.server(files)
        assert.are.equal(7, #pipe.move(server).files)
        pipe.assert_moved(server)
        assert.are.equal(2 + 2 + 3, server:counters().s3.ops.UploadPart.requests)
        assert.are.equal(4, server:counters().s3.ops.PutObject.requests)
    end)

    it("are never more than 10,000, refused before the first byte", function()
        local server <close> = pipe.server(FILES)
        local files = { { path = "a", size = 1 }, { path = "b", size = PART * 10000 + 1 } }
        local e = pipe.failure(pipe.move, server, { files = files })
        assert.are.equal("Usage", e.code)
        assert.is_truthy(tostring(e):find "10,000 parts")
        assert.are.equal(0, server:counters().s3.requests)
    end)

    it("are of 5 MiB at least, and no file is over 5 TiB", function()
        local server <close> = pipe.server(FILES)
        assert.are.equal("Usage", pipe.failure(pipe.move, server, { part_size = PART - 1 }).code)
        local files = { { path = "a", size = (5 << 40) + 1 } }
        assert.are.equal("EntityTooLarge", pipe.failure(pipe.move, server, { files = files, part_size = false }).code)
    end)
end)

describe("a body on its way up", function()
    it("is plain: no checksums or chunks that other servers refuse, no Expect", function()
        local server <close> = helper.raw "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n"
        local bucket = pipe.bucket({ env = { NC_BUCKET = "b", AWS_ENDPOINT_URL = server.url,
            AWS_ACCESS_KEY_ID = "access", AWS_SECRET_ACCESS_KEY = "secret-of-mine" } })
        bucket:put("key", "text")
        local head = server.asked():lower()
        assert.is_truthy(head:find("content-length: 4", 1, true))
        for _, word in ipairs { "checksum", "aws-chunked", "transfer-encoding", "expect", "secret-of-mine" } do
            assert.is_nil(head:find(word, 1, true), word)
        end
    end)

    it("carries its MD5 where AWS_REQUEST_CHECKSUM_CALCULATION asks for a checksum", function()
        local server <close> = helper.raw "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n"
        local bucket = pipe.bucket({ env = { NC_BUCKET = "b", AWS_ENDPOINT_URL = server.url,
            AWS_ACCESS_KEY_ID = "access", AWS_SECRET_ACCESS_KEY = "secret-of-mine",
            AWS_REQUEST_CHECKSUM_CALCULATION = "when_supported" } })
        bucket:put("key", "text")
        assert.is_truthy(server.asked():find("Content-MD5: HLJR7A1WjeapKbUgxK7Y0Q==", 1, true))
    end)

    for _, fault in ipairs { "nth=1 reset=1000000", "nth=2-3 reset", "nth=1 lost-answer", "nth=2 stall=100000" } do
        it("is sent again from its start after " .. fault, function()
            local server <close> = pipe.server(FILES, { "PUT * op=UploadPart " .. fault })
            assert.are.equal(2, #pipe.move(server, { stall = 1 }).files)
            server:faults {}
            pipe.assert_moved(server)
        end)
    end

    it("is sent again where a redirect says, signed for there", function()
        local server <close> = pipe.server(FILES)
        local moved = "HTTP/1.1 307 Moved\r\nContent-Length: 0\r\nLocation: %s/%s/key\r\n\r\n"
        local first <close> = helper.raw(moved:format(server.env.AWS_ENDPOINT_URL, server.env.NC_BUCKET))
        pipe.bucket(server, { AWS_ENDPOINT_URL = first.url }):put("key", BIG:sub(1, 100000))
        assert.is_true(BIG:sub(1, 100000) == pipe.bucket(server):get "key")
    end)

    it("is sent again when the server had to wait too long for it", function()
        local server <close> = pipe.server(FILES, { "PUT * side=s3 nth=1-3 timeout-400" })
        assert.are.equal(2, #pipe.move(server).files)
        server:faults {}
        pipe.assert_moved(server)
    end)

    it("may be refused before it is read: the reason is the server's", function()
        local server <close> = pipe.server(FILES, { "PUT * side=s3 early-close" })
        local e = pipe.failure(pipe.move, server)
        assert.are.equal("AccessDenied", e.code)
        assert.are.equal(4, errors.exit_code(e))
    end)
end)

describe("a bucket with troubles", function()
    it("is waited for when it answers 503 now and then, on every verb", function()
        local server <close> = helper.server { hub = staging.hub "32MiB",
            faults = { "ANY * side=s3 p=0.2 seed=11 status=503:SlowDown" } }
        local code, _, err = staging.run(server.env, "part_size=5MiB")
        assert.are.equal(0, code, err)
        server:faults {}
        staging.assert_staged(server.env, server.hub)
        assert.are.equal(0, #staging.uploads(server))
    end)

    it("is not staged to a second time when the look at the marker answers 503", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        assert.are.equal(0, (staging.run(server.env)))
        server:reset()
        server:faults { "GET *.complete nth=1-2 status=503:SlowDown" }
        local code, _, err = staging.run(server.env)
        assert.are.equal(0, code, err)
        assert.is_truthy(err:find "already complete")
        server:faults { "GET *.complete status=503:SlowDown" }
        code, _, err = staging.run(server.env)
        assert.are.equal(1, code, err)
        assert.is_nil(server:counters().s3.ops.PutObject)
        assert.is_nil(server:counters().s3.ops.DeleteObject)
    end)

    it("fails in bounded time when it is gone, and says so", function()
        local server <close> = pipe.server(FILES)
        local bucket = pipe.bucket(server, { AWS_ENDPOINT_URL = "http://127.0.0.1:9", AWS_MAX_ATTEMPTS = "3" })
        local began = sys.now()
        local e = pipe.failure(pipe.move, server, { bucket = bucket, files = { { path = "config.json", size = 2 } } })
        assert.are.equal("ConnectFailed", e.code)
        assert.is_truthy(tostring(e):find "127.0.0.1")
        assert.is_true(sys.now() - began < 60)
    end)

    it("has another time of day", function()
        local server <close> = pipe.server(FILES, { "ANY * side=s3 clock=-7200" })
        assert.are.equal(2, #pipe.move(server).files)
        pipe.assert_moved(server)
    end)

    it("may give no listing that ends, which ends the stage", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        local bucket = pipe.bucket(server)
        pipe.fill(bucket, "models/tiny/x", 2001)
        for fault, word in pairs { ["no-truncate-token"] = "NextContinuationToken", ["same-token"] = "same page" } do
            server:faults { "GET * op=ListObjectsV2 " .. fault }
            local code, _, err = staging.run(server.env)
            assert.are.equal(1, code)
            assert.is_truthy(err:find(word, 1, true), err)
        end
        assert.is_nil(staging.marker(server.env))
    end)
end)

describe("credentials", function()
    it("that have expired end the job soon, saying what to do", function()
        local server <close> = helper.server { hub = staging.hub "64MiB",
            faults = { "PUT * op=UploadPart nth=8- expired-token" } }
        local began = sys.now()
        local code, _, err = staging.run(server.env, "part_size=5MiB", "parallel=4") -- two of them upwards
        assert.are.equal(4, code)
        assert.is_true(sys.now() - began < 60)
        assert.is_truthy(err:find "expired" and err:find "apply the Job again", err)
        -- What was stored is not moved again.
        server:faults {}
        server:reset()
        code, _, err = staging.run(server.env, "part_size=5MiB")
        assert.are.equal(0, code, err)
        assert.is_true(server:counters().cdn.out < 50 << 20)
        staging.assert_staged(server.env, server.hub)
        assert.are.equal(0, #staging.uploads(server))
    end)

    it("of a web identity are renewed on the way", function()
        local server <close> = helper.server { hub = staging.hub "32MiB", rate = 16 << 20 }
        local token = helper.tmp() .. "/token"
        helper.write(token, "the-web-identity\n")
        local env = helper.env(server.env, {
            AWS_ACCESS_KEY_ID = false, AWS_SECRET_ACCESS_KEY = false, AWS_WEB_IDENTITY_TOKEN_FILE = token,
            AWS_ROLE_ARN = "arn:aws:iam::1:role/x", AWS_ENDPOINT_URL_STS = server.admin .. "/sts",
        })
        local child <close> = staging.start(env, "part_size=5MiB")
        helper.eventually(30, "some parts", function()
            local op = server:counters().s3.ops.UploadPart
            return op and op["in"] > 6 << 20
        end)
        local code, _, err = helper.run { "curl", "-sSf", "-X", "POST", "-d", "",
            server.admin .. "/rotate?access_key=other&secret_key=another-secret" }
        assert.are.equal(0, code, err)
        code, _, err = child:wait(60)
        assert.are.equal(0, code, err)
        staging.assert_staged(helper.env(server.env, {
            AWS_ACCESS_KEY_ID = "other", AWS_SECRET_ACCESS_KEY = "another-secret",
        }), server.hub)
    end)
end)
