-- The client of S3 and servers that are in trouble, or that it has to adapt to.
local helper = require "spec.helper"
local errors = require "nc.errors"
local pipe   = require "spec.pipe"

-- The error object that f raises; no secret may ever be in it.
local function failure(server, f, ...)
    local e = pipe.failure(f, ...)
    assert.is_nil(tostring(e):find(server.env.AWS_SECRET_ACCESS_KEY, 1, true))
    return e
end

describe("a client of S3", function()
    it("sends the session token, and says what is wrong with a bad one", function()
        local server <close> = helper.server { session_token = "the-session-token" }
        local bucket = pipe.bucket(server, { AWS_SESSION_TOKEN = "the-session-token" })
        bucket:put("x", "y")
        assert.are.equal("y", (bucket:get "x"))
        local wrong = pipe.bucket(server, { AWS_SESSION_TOKEN = "some-other-token" })
        local e = failure(server, wrong.get, wrong, "x")
        assert.are.equal("InvalidToken", e.code)
        assert.are.equal(4, errors.exit_code(e))
        assert.is_nil(tostring(e):find("some-other-token", 1, true))
    end)

    it("takes the region from the server's answer, once", function()
        local server <close> = helper.server { region = "eu-central-1" }
        local bucket = pipe.bucket(server, { AWS_REGION = "us-east-1" })
        bucket:put("x", "y")
        assert.are.equal("y", (bucket:get "x"))
        local ops = server:counters().s3.ops
        assert.are.equal(2, ops.PutObject.requests)
        assert.are.equal(1, ops.GetObject.requests)
    end)

    it("follows a bucket to its region", function()
        local server <close> = helper.server { region = "eu-central-1",
            faults = { "ANY * side=s3 nth=1 redirect=eu-central-1" } }
        local bucket = pipe.bucket(server, { AWS_REGION = "us-east-1" })
        bucket:put("x", "y")
        assert.are.equal("y", (bucket:get "x"))
    end)

    it("ends when a server sends it round in circles", function()
        local server <close> = helper.server { faults = { "ANY * side=s3 redirect=eu-central-1" } }
        local bucket = pipe.bucket(server)
        local e = failure(server, bucket.get, bucket, "x")
        assert.is_truthy(tostring(e):find "AWS_REGION")
        assert.is_true(server:counters().s3.requests <= 4)
    end)

    it("takes over the server's clock", function()
        for _, off in ipairs { 3600, -3600 } do
            local server <close> = helper.server { clock = off }
            local bucket = pipe.bucket(server)
            bucket:put("x", "y")
            assert.are.equal("y", (bucket:get "x"))
            assert.are.equal(1, server:counters().s3.ops.GetObject.requests)
            assert.is_true(math.abs(bucket:clock() - os.time() - off) < 5)
        end
    end)

    it("gives up where the clock can't be made to fit", function()
        local server <close> = helper.server { faults = {
            "GET * side=s3 status=403:RequestTimeTooSkewed",
        } }
        local bucket = pipe.bucket(server)
        local e = failure(server, bucket.get, bucket, "x")
        assert.are.equal("RequestTimeTooSkewed", e.code)
        assert.is_true(server:counters().s3.requests <= 3)
    end)

    it("tries again what a server could not do just then", function()
        for _, fault in ipairs { "503:SlowDown", "500:InternalError", "429:TooManyRequests", "502", "504" } do
            local server <close> = helper.server { faults = { "ANY * side=s3 nth=1-2 status=" .. fault } }
            local bucket = pipe.bucket(server)
            bucket:put("x", "y")
            assert.are.equal("y", (bucket:get "x"))
        end
    end)

    it("tries again a limited number of times, and says what the server said", function()
        local server <close> = helper.server { faults = { "ANY * side=s3 status=503:SlowDown" } }
        local bucket = pipe.bucket(server, { AWS_MAX_ATTEMPTS = "3" })
        local e = failure(server, bucket.head, bucket, "x") -- never "it is not there"
        assert.are.equal(503, e.status)
        e = failure(server, bucket.get, bucket, "x")
        assert.are.equal("SlowDown", e.code)
        assert.is_true(e.retryable)
        assert.are.equal(6, server:counters().s3.requests)
    end)

    it("waits as long as Retry-After says", function()
        local server <close> = helper.server { faults = { "GET * side=s3 nth=1 status=503:SlowDown:2" } }
        local bucket = pipe.bucket(server)
        local began = os.time()
        assert.is_nil(bucket:get "x")
        assert.is_true(os.time() - began >= 1)
        local log = server:log()
        assert.is_true(log[#log].start_ms - log[#log - 1].start_ms >= 1900)
    end)

    it("gives the server's reason for a refusal before the body is read", function()
        local server <close> = helper.server { faults = { "PUT * side=s3 early-close" } }
        local bucket = pipe.bucket(server)
        local e = failure(server, bucket.put, bucket, "x", ("y"):rep(8 << 20))
        assert.are.equal("AccessDenied", e.code)
        assert.are.equal(403, e.status)
    end)

    it("takes no listing for whole that stops in the middle", function()
        local server <close> = helper.server()
        local bucket = pipe.bucket(server)
        pipe.fill(bucket, "x/", 2001)
        server:faults { "GET * op=ListObjectsV2 no-truncate-token" }
        assert.is_truthy(tostring(failure(server, pipe.keys, bucket:list "x/")):find "NextContinuationToken")
        server:faults { "GET * op=ListObjectsV2 same-token" }
        assert.are.equal("BadListing", failure(server, pipe.keys, bucket:list "x/").code)
        assert.is_true(server:counters().s3.ops.ListObjectsV2.requests < 10)
    end)

    it("takes no range for right that is not", function()
        local server <close> = helper.server()
        local bucket = pipe.bucket(server)
        bucket:put("x", "0123456789")
        server:faults { "GET * side=s3 ignore-range" }
        assert.are.equal("BadRange", failure(server, bucket.get, bucket, "x", { range = { 2, 5 } }).code)
        server:faults { "GET * side=s3 wrong-range" }
        assert.are.equal("BadRange", failure(server, bucket.get, bucket, "x", { range = { 2, 5 } }).code)
    end)

    it("takes no body for whole that is cut", function()
        local server <close> = helper.server()
        local bucket = pipe.bucket(server, { AWS_MAX_ATTEMPTS = "2" })
        bucket:put("x", ("y"):rep(100000))
        for _, fault in ipairs { "cut=5000", "cut-chunked=5000", "reset=5000" } do
            server:faults { "GET * side=s3 " .. fault }
            failure(server, bucket.get, bucket, "x")
            server:faults { "GET * side=s3 nth=1 " .. fault }
            assert.are.equal(100000, #bucket:get "x", fault)
        end
    end)

    it("takes no 200 for success whose body says otherwise", function()
        local server <close> = helper.server()
        local bucket = pipe.bucket(server)
        for _, fault in ipairs { "ok-error=InvalidPart", "empty-ok", "half-xml" } do
            local id = bucket:create_upload "x"
            local one = bucket:upload_part("x", id, 1, "y")
            server:faults { "POST * op=CompleteMultipartUpload " .. fault }
            failure(server, bucket.complete_upload, bucket, "x", id, { { number = 1, etag = one } })
            server:faults {}
        end
    end)

    it("says which address it could not reach", function()
        local server <close> = helper.server()
        local bucket = pipe.bucket(server, { AWS_ENDPOINT_URL = "http://127.0.0.1:9", AWS_MAX_ATTEMPTS = "2" })
        local e = failure(server, bucket.get, bucket, "x")
        assert.are.equal("ConnectFailed", e.code)
        assert.is_truthy(tostring(e):find("127.0.0.1", 1, true))
        bucket = pipe.bucket(server, { AWS_ENDPOINT_URL = "http://no-such-host.invalid", AWS_MAX_ATTEMPTS = "1" })
        e = failure(server, bucket.get, bucket, "x")
        assert.are.equal("DnsFailed", e.code)
        assert.is_truthy(tostring(e):find("no-such-host.invalid", 1, true))
    end)

    it("keeps the path of its endpoint, and signs for host and port", function()
        local server <close> = helper.raw "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
        local bucket = pipe.bucket { env = {
            NC_BUCKET = "bucket", AWS_ENDPOINT_URL = server.url .. "/base/", AWS_ACCESS_KEY_ID = "access",
            AWS_SECRET_ACCESS_KEY = "secret",
        } }
        assert.are.equal("x", (bucket:get "a//b c"))
        local head = server.asked()
        assert.is_truthy(head:find("GET /base/bucket/a//b%20c HTTP/1.1", 1, true))
        assert.is_truthy(head:find("\nHost: " .. server.url:match "//(.*)", 1, true))
        assert.is_truthy(head:find "SignedHeaders=host;")
    end)

    it("does not wait long for the one answer that does not begin", function()
        local server <close> = helper.server()
        local bucket = pipe.bucket(server)
        bucket:put("x", "y")
        for _ = 1, 20 do bucket:get "x" end
        server:faults { "GET *x nth=1 accept-stall" }
        local began = os.time()
        assert.are.equal("y", (bucket:get "x"))
        assert.is_true(os.time() - began < 20) -- a stall takes 30 s to be one
        assert.are.equal(22, server:counters().s3.ops.GetObject.requests)
    end)

    it("goes without a signature where another host has the bytes", function()
        local other <close> = helper.raw "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
        local elsewhere = other.url:gsub("127%.0%.0%.1", "localhost")
        local first <close> = helper.raw(
            "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " .. elsewhere .. "/x?signed=1\r\n\r\n")
        local bucket = pipe.bucket { env = {
            NC_BUCKET = "bucket", AWS_ENDPOINT_URL = first.url, AWS_ACCESS_KEY_ID = "access",
            AWS_SECRET_ACCESS_KEY = "secret", AWS_SESSION_TOKEN = "session-token",
        } }
        assert.are.equal("x", (bucket:get "key"))
        assert.is_truthy(first.asked():find "Authorization")
        local head = other.asked():lower()
        assert.is_truthy(head:find("get /x?signed=1 http/1.1", 1, true))
        assert.is_nil(head:find "authorization")
        assert.is_nil(head:find "x%-amz")
        assert.is_false(pcall(bucket.put, bucket, "key", "body")) -- and sends nothing there
    end)
end)
