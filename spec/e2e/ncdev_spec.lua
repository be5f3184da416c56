--- The local server itself: what it keeps, what it refuses, what its faults look like from outside.

local helper = require "spec.helper"

-- One request by curl, signed where asked; what came back, with header names in lower case.
local function ask(server, method, path, opts)
    opts = opts or {}
    local url = path:match "^http" and path or server.env.AWS_ENDPOINT_URL .. path
    local body = helper.tmp() .. "/body"
    local argv = { "curl", "-sS", "-i", "-m", opts.timeout or 5, "-o", body, "--path-as-is", "-X", method }
    if method == "HEAD" then argv[#argv + 1] = "-I" end
    if opts.signed then
        table.move({ "--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
            "--user", server.env.AWS_ACCESS_KEY_ID .. ":" .. (opts.secret or server.env.AWS_SECRET_ACCESS_KEY) },
            1, 6, #argv + 1, argv)
    end
    for _, header in ipairs(opts.headers or {}) do
        table.move({ "-H", header }, 1, 2, #argv + 1, argv)
    end
    if opts.body then table.move({ "--data-binary", "@-" }, 1, 2, #argv + 1, argv) end
    argv[#argv + 1] = url
    local code = helper.run(argv, { timeout = 20, stdin = opts.body })
    local answer = (helper.read(body) or ""):gsub("^HTTP/%S+ 100 [^\n]*\n\r\n", "")
    local head, rest = answer:match "^(.-\r\n)\r\n(.*)$"
    local res = { curl = code, status = tonumber((head or ""):match "^HTTP/%S+ (%d+)"), body = rest or "" }
    for name, value in (head or ""):gmatch "([%w-]+): ([^\r]*)\r\n" do
        res[name:lower()] = value
    end
    return res
end

local function s3(server, method, key, opts)
    return ask(server, method, "/" .. server.env.NC_BUCKET .. "/" .. key, helper.env({ signed = true }, opts or {}))
end

local function code_of(res)
    return res.body:match "<Code>(%w+)</Code>"
end

local PARTIAL <const>, TIMED_OUT <const>, RESET <const> = 18, 28, 56

describe("the local server's options", function()
    local function refused(...)
        local code, out, err = helper.run { helper.NCDEV, ... }
        assert.are.equal(2, code)
        assert.are.equal("", out)
        return err
    end

    it("are refused where unknown, with the list of those there are", function()
        assert.matches("colour=red is not an option; valid are root= .*fault=", refused("root=/tmp", "colour=red"))
    end)

    it("are refused where their value is no good", function()
        assert.matches("port=: bad value 'many'", refused("root=/tmp", "port=many"))
        assert.matches("'stal' is not understood", refused("root=" .. helper.tmp(), "fault=GET * stal=1"))
        assert.matches("root=DIR or memory=yes", refused "hub=/tmp")
    end)

    it("are all in its help", function()
        local code, out = helper.run { helper.NCDEV, "help" }
        assert.are.equal(0, code)
        assert.matches("lfs_over.*drop%-part.*/%-/counters", out)
    end)
end)

describe("the local server", function()
    it("finds its objects and uploads again after a kill -9", function()
        local root = helper.tmp()
        local first <close> = helper.server { root = root }
        assert.are.equal(200, s3(first, "PUT", "a/../b", { body = "kept" }).status)
        local upload = s3(first, "POST", "big?uploads=").body:match "<UploadId>(%w+)"
        assert.are.equal(200, s3(first, "PUT", "big?partNumber=1&uploadId=" .. upload, { body = "part" }).status)
        first.child:kill "KILL"
        first.child:wait()

        local second <close> = helper.server { root = root }
        assert.matches("<PartNumber>1</PartNumber>.*<Size>4</Size>", s3(second, "GET", "big?uploadId=" .. upload).body)
        assert.matches("<Key>a/%.%./b</Key>", s3(second, "GET", "?list-type=2").body)
        assert.are.equal("0\n", select(2, helper.sh("find . -name b | wc -l", {}, { cwd = root })))
    end)

    it("ends at once on SIGTERM, whoever is still waiting for an answer", function()
        local server <close> = helper.server { faults = { "GET * accept-stall" } }
        local waiting <close> = helper.start { "curl", "-s", server.env.AWS_ENDPOINT_URL .. "/x" }
        helper.eventually(5, "a connection", function() return server:counters().connections > 1 end)
        local began = os.time()
        assert.are.equal(0, (server:stop()))
        assert.is_true(os.time() - began <= 3)
        waiting:wait(5)
    end)

    it("sends what it has in memory, of one part and of several, where something else was before too", function()
        local server <close> = helper.server { root = false, memory = "yes", etag = "fast", keep = "64m" }
        local patient = { timeout = 20 }
        for _, letter in ipairs { "a", "b" } do
            local large, last = letter:rep(5 << 20), "the end of " .. letter
            local upload = s3(server, "POST", "big?uploads=").body:match "<UploadId>(%w+)"
            local list = {}
            for i, part in ipairs { large, last } do
                local etag = s3(server, "PUT", ("big?partNumber=%d&uploadId=%s"):format(i, upload),
                    helper.env(patient, { body = part })).etag
                assert.matches('^"%x+%-xxh3"$', etag) -- no client can take it for an MD5
                list[i] = ("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>"):format(i, etag)
            end
            assert.are.equal(200, s3(server, "POST", "big?uploadId=" .. upload, {
                body = "<CompleteMultipartUpload>" .. table.concat(list) .. "</CompleteMultipartUpload>",
            }).status)
            assert.is_true(s3(server, "GET", "big", patient).body == large .. last)
            assert.are.equal(letter:rep(3) .. "the", s3(server, "GET", "big", {
                headers = { ("Range: bytes=%d-%d"):format((5 << 20) - 3, (5 << 20) + 2) },
            }).body)
            assert.are.equal(204, s3(server, "DELETE", "big").status)
            assert.are.equal(200, s3(server, "PUT", "one", helper.env(patient, { body = large })).status)
            assert.is_true(s3(server, "GET", "one", patient).body == large)
        end
    end)

    it("holds each direction to a rate that may change while it serves", function()
        local server <close> = helper.server { rate = "64k" }
        local body = ("x"):rep(1 << 20) -- 16 s
        assert.are.equal(TIMED_OUT, s3(server, "PUT", "slow", { body = body, timeout = 1 }).curl)
        local function rate(bytes)
            return ask(server, "POST", server.env.NCDEV_ADMIN .. "/rate?bytes=" .. bytes, { body = "" }).status
        end
        assert.are.equal(204, rate "0")
        assert.are.equal(200, s3(server, "PUT", "slow", { body = body, timeout = 15 }).status)
        assert.are.equal(204, rate "64k")
        assert.are.equal(TIMED_OUT, s3(server, "GET", "slow", { timeout = 1 }).curl)
        assert.are.equal(400, rate "much")
    end)

    it("tells a wrong secret, a wrong key, no signature and a wrong clock apart", function()
        local server <close> = helper.server { clock = 3600 }
        local rotated <close> = helper.server {}
        assert.are.equal("RequestTimeTooSkewed", code_of(s3(server, "GET", "")))
        assert.are.equal("SignatureDoesNotMatch", code_of(s3(rotated, "GET", "", { secret = "wrong" })))
        assert.are.equal("AccessDenied", code_of(s3(rotated, "GET", "", { signed = false })))
        ask(rotated, "POST", rotated.admin .. "/rotate?access_key=other")
        assert.are.equal("InvalidAccessKeyId", code_of(s3(rotated, "GET", "")))
    end)

    it("answers pages about itself to loopback, and keeps them apart from buckets", function()
        local server <close> = helper.server {}
        s3(server, "PUT", "one", { body = "12345" })
        s3(server, "GET", "one", { headers = { "Range: bytes=1-2" } })
        local log = server:log()
        assert.are.equal("PutObject", log[1].op)
        assert.are.equal(5, log[1]["in"])
        assert.are.equal("bytes=1-2", log[2].range)
        assert.are.equal(2, log[2].out)
        server:reset()
        assert.are.equal(0, server:counters().s3.requests)
    end)
end)

describe("a fault rule", function()
    local SIZE <const> = 300000
    local server

    setup(function()
        server = helper.server {}
        s3(server, "PUT", "file", { body = ("x"):rep(SIZE) })
    end)

    teardown(function()
        server:stop()
    end)

    local function with(rule, ...)
        server:faults { rule }
        local res = s3(server, ...)
        server:faults {}
        return res
    end

    it("answers a status, a code and a time to wait", function()
        local res = with("GET */file status=503:SlowDown:7", "GET", "file")
        assert.are.same({ 503, "SlowDown", "7" }, { res.status, code_of(res), res["retry-after"] })
    end)

    it("acts on the nth request alone", function()
        server:faults { "GET */file nth=2 status=500" }
        local got = {}
        for i = 1, 3 do got[i] = s3(server, "GET", "file").status end
        server:faults {}
        assert.are.same({ 200, 500, 200 }, got)
    end)

    it("cuts a body, with its length promised and without", function()
        local cut = with("GET */file cut=1000", "GET", "file")
        assert.are.same({ PARTIAL, 1000, tostring(SIZE) }, { cut.curl, #cut.body, cut["content-length"] })
        local chunked = with("GET */file cut-chunked=1000", "GET", "file")
        assert.are.same({ PARTIAL, 1000, "chunked" }, { chunked.curl, #chunked.body, chunked["transfer-encoding"] })
    end)

    it("stalls after some bytes, or before any", function()
        local res = with("GET */file stall=1000", "GET", "file", { timeout = 1 })
        assert.are.same({ TIMED_OUT, 1000 }, { res.curl, #res.body })
        local none = with("GET */file accept-stall", "GET", "file", { timeout = 1 })
        assert.are.same({ TIMED_OUT }, { none.curl, none.status })
    end)

    it("resets the connection", function()
        local res = with("GET */file reset", "GET", "file")
        assert.are.same({ RESET }, { res.curl, res.status })
        assert.are.equal(RESET, with("GET */file reset=1000", "GET", "file").curl)
    end)

    it("loses the answer but not the work", function()
        local res = with("PUT */lost lost-answer", "PUT", "lost", { body = "done" })
        assert.are.same({ RESET }, { res.curl, res.status })
        assert.are.equal("done", s3(server, "GET", "lost").body)
    end)

    it("flips a bit at an offset of the file, whatever range holds it", function()
        local range = { headers = { "Range: bytes=100-199" } }
        local res = with("GET */file flip=150", "GET", "file", range)
        assert.are.equal(("x"):rep(50) .. "y" .. ("x"):rep(49), res.body)
        assert.are.equal(("x"):rep(100), with("GET */file flip=50", "GET", "file", range).body)
    end)

    it("lies about ranges and validators", function()
        local range = { headers = { "Range: bytes=100-199" } }
        local honest = s3(server, "GET", "file", range)
        assert.are.equal("bytes 100-199/300000", honest["content-range"])
        assert.are.equal("bytes 101-200/300000",
            with("GET */file wrong-range", "GET", "file", range)["content-range"])
        assert.are.equal(200, with("GET */file ignore-range", "GET", "file", range).status)
        assert.are_not.equal(honest.etag, with("GET */file etag-change", "GET", "file", range).etag)
    end)

    it("says yes to a part and drops it, or to a completion and fails", function()
        local upload = s3(server, "POST", "parts?uploads=").body:match "<UploadId>(%w+)"
        local part = "parts?partNumber=1&uploadId=" .. upload
        local etag = with("PUT */parts drop-part", "PUT", part, { body = "x" }).etag
        assert.is_string(etag)
        local list = { body = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" .. etag ..
            "</ETag></Part></CompleteMultipartUpload>" }
        local done = "parts?uploadId=" .. upload
        assert.are.equal("InvalidPart", code_of(s3(server, "POST", done, list)))
        s3(server, "PUT", part, { body = "x" })
        local res = with("POST */parts ok-error=InternalError", "POST", done, list)
        assert.are.same({ 200, "InternalError" }, { res.status, code_of(res) })
        assert.are.equal("", with("POST */parts empty-ok", "POST", done, list).body)
        assert.is_nil(with("POST */parts half-xml", "POST", done, list).body:match "</Complete")
        assert.are.equal("x", s3(server, "GET", "parts").body)
        assert.are.equal("NoSuchUpload", code_of(s3(server, "POST", done, list)))
    end)
end)

describe("the local hub", function()
    local dir, server

    setup(function()
        dir = helper.tmp()
        helper.write(dir .. "/o/m/config.json", "{}")
        helper.write(dir .. "/o/m/sub/w.safetensors", ("w"):rep(100))
        helper.write(dir .. "/o/gated/.gated", "")
        helper.write(dir .. "/o/private/.private", "")
        server = helper.server { hub = dir, hf_token = "good", page = 2, expires_s = 1 }
    end)

    teardown(function()
        server:stop()
    end)

    local function commit()
        return ask(server, "GET", "/api/models/o/m/revision/main").body:match '"sha":"(%x+)"'
    end

    it("lists a commit in pages, with SHA-256 for large files and git's SHA-1 for small ones", function()
        local tree = "/api/models/o/m/tree/" .. commit() .. "?recursive=true"
        local first = ask(server, "GET", tree)
        assert.matches('"oid":"9e26dfeeb6e641a33dae4961196235bdb965b21b","size":2,"path":"config.json"',
            first.body, 1, true)
        local second = ask(server, "GET", first.link:match '^<(.-)>; rel="next"$')
        local sha256 = select(2, helper.sh("sha256sum <sub/w.safetensors", {}, { cwd = dir .. "/o/m" })):match "%x+"
        assert.matches('"lfs":{"oid":"' .. sha256 .. '","size":100,', second.body, 1, true)
        assert.is_nil(second.link)
        assert.matches('^"api";r=%d+;t=%d+$', first.ratelimit)
    end)

    it("sends large files by a signed address that ends, on another port", function()
        local path = "/o/m/resolve/" .. commit() .. "/sub/w.safetensors"
        local res = ask(server, "HEAD", path)
        assert.are.same({ 302, "100" }, { res.status, res["x-linked-size"] })
        assert.are.equal(("w"):rep(10), ask(server, "GET", res.location, { headers = { "Range: bytes=5-14" } }).body)
        assert.are.equal(403, ask(server, "GET", (res.location:gsub("Signature=", "%00"))).status)
        assert.are.equal(400, ask(server, "GET", res.location, { headers = { "Authorization: Bearer good" } }).status)
        assert.are.equal(1, server:counters().auth_leaks)
        helper.eventually(5, "the address ends", function()
            return ask(server, "GET", res.location).status == 403
        end)
    end)

    it("tells missing, gated, private and mistaken apart", function()
        local function why(path, token)
            local res = ask(server, "GET", path, { headers = { token and "Authorization: Bearer " .. token } })
            return { res.status, res["x-error-code"] }
        end
        assert.are.same({ 401, "RepoNotFound" }, why "/api/models/o/none/revision/main")
        assert.are.same({ 404, "RepoNotFound" }, why("/api/models/o/none/revision/main", "good"))
        assert.are.same({ 401, "GatedRepo" }, why "/o/gated/resolve/main/x")
        assert.are.same({ 403, "GatedRepo" }, why("/o/gated/resolve/main/x", "good"))
        assert.are.same({ 401, "RepoNotFound" }, why "/api/models/o/private/revision/main")
        assert.are.same({ 200 }, why("/api/models/o/private/revision/main", "good"))
        assert.are.same({ 401 }, why("/api/models/o/m/revision/main", "bad"))
        assert.are.same({ 404, "RevisionNotFound" }, why "/api/models/o/m/revision/v9")
        assert.are.same({ 404, "EntryNotFound" }, why "/o/m/resolve/main/none")
    end)

    it("serves the old commit after the branch has moved", function()
        local old = commit()
        os.rename(dir .. "/o/m", dir .. "/o/m@before")
        helper.write(dir .. "/o/m/config.json", "[1]")
        helper.eventually(5, "another commit", function() return commit() ~= old end)
        assert.are.equal("{}", ask(server, "GET", "/o/m/resolve/" .. old .. "/config.json").body)
        assert.are.equal("[1]", ask(server, "GET", "/o/m/resolve/main/config.json").body)
    end)
end)
