local helper = require "spec.helper"
local errors = require "nc.errors"
local http   = require "nc.http"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

local raw = helper.raw

local OK <const> = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

local function failure(options)
    local ok, e = pcall(http.request, options)
    assert.is_false(ok, "it did not fail")
    assert.is_true(errors.is(e), tostring(e))
    return e
end

local function count(text, pattern)
    return select(2, text:gsub(pattern, ""))
end

describe("an HTTP request", function()
    it("returns status, headers and body", function()
        local server <close> = raw "HTTP/1.1 203 So so\r\nX-One: 1\r\nx-two:   two  \r\nContent-Length: 2\r\n\r\nhi"
        local res = http.request { url = server.url .. "/a?b=c" }
        assert.are.equal(203, res.status)
        assert.are.equal("1", res.headers["x-one"])
        assert.are.equal("two", (res.headers["x-two"]:gsub("%s+$", "")))
        assert.are.equal("hi", res.body)
        assert.are.equal(1, res.attempts)
        assert.is_truthy(server.asked():find("GET /a?b=c HTTP/1.1", 1, true))
    end)

    it("takes every status for an answer", function()
        for _, status in ipairs { 204, 301, 400, 401, 403, 404, 412, 429, 500, 503, 599 } do
            local server <close> = raw(("HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n"):format(status))
            assert.are.equal(status, http.request({ url = server.url }).status)
        end
    end)

    it("follows no redirect", function()
        local other <close> = raw(OK)
        local server <close> = raw("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " .. other.url .. "/x\r\n\r\n")
        local res = http.request { url = server.url, headers = { Authorization = "Bearer secret" } }
        assert.are.equal(302, res.status)
        assert.are.equal(other.url .. "/x", res.headers.location)
        assert.are.equal("", other.asked())
    end)

    it("sends method, headers and body as they are", function()
        local server <close> = helper.server()
        local res = http.request {
            url = server.env.NCDEV_ADMIN .. "/faults", method = "POST", body = "GET nothing status=503\n",
        }
        assert.are.equal(204, res.status)
        local echo <close> = raw(OK)
        http.request { url = echo.url, method = "PUT", body = "", headers = { ["X-Empty"] = "", ["X-Set"] = "a b" } }
        local head = echo.asked()
        assert.is_truthy(head:find "^PUT / HTTP/1.1\n")
        assert.is_truthy(head:find "\nX%-Set: a b\n")
        assert.is_truthy(head:find "\nX%-Empty: ?\n")
        assert.is_truthy(head:find "\nContent%-Length: 0\n")
        assert.is_nil(head:find "Expect")
        assert.is_nil(head:find "Transfer%-Encoding")
    end)

    it("refuses what would smuggle a header in", function()
        for _, headers in ipairs { { A = "b\r\nC: d" }, { ["A: b\nC"] = "d" }, { A = "b\0c" } } do
            local ok, e = pcall(http.request, { url = "http://127.0.0.1:9", headers = headers })
            assert.is_false(ok)
            assert.is_truthy(tostring(e):find "control character")
        end
        assert.is_truthy(tostring(failure { url = "http://127.0.0.1:9/a\r\nHost: x" }):find "control character")
    end)

    it("speaks http and https only", function()
        for _, url in ipairs { "file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1", "x", "" } do
            assert.is_false(pcall(http.request, { url = url }))
        end
    end)

    it("refuses an answer that is longer than max_body", function()
        local server <close> = raw("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" .. ("x"):rep(2000))
        assert.are.equal(2000, #http.request({ url = server.url, max_body = 2000 }).body)
        assert.are.equal("LongBody", failure({ url = server.url, max_body = 1999 }).code)
        local endless <close> = raw("HTTP/1.1 200 OK\r\n\r\n" .. ("x"):rep(2 << 20))
        assert.are.equal("LongBody", failure({ url = endless.url }).code)
    end)

    it("refuses an endless head", function()
        local server <close> = raw("HTTP/1.1 200 OK\r\n" .. ("X-Long: " .. ("y"):rep(1000) .. "\r\n"):rep(500))
        assert.are.equal("NetworkError", failure({ url = server.url, timeout = "10s" }).code)
    end)

    it("takes no body for whole that is cut", function()
        local cut <close> = raw "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello"
        assert.are.equal("ShortBody", failure({ url = cut.url }).code)
        local chunked <close> = raw "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
        assert.is_true(failure({ url = chunked.url }).retryable)
        local reset <close> = raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", "then=reset")
        assert.is_true(failure({ url = reset.url }).retryable)
    end)

    it("takes no silence for an answer", function()
        local nothing <close> = raw ""
        assert.are.equal("NetworkError", failure({ url = nothing.url }).code)
        local garbage <close> = raw "SSH-2.0-OpenSSH_9.2\r\n"
        assert.is_false(pcall(http.request, { url = garbage.url }))
    end)

    it("reads a chunked body, and one that ends with the connection", function()
        local chunked <close> = raw "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        assert.are.equal("hello", http.request({ url = chunked.url }).body)
        local plain <close> = raw "HTTP/1.1 200 OK\r\n\r\nhello"
        assert.are.equal("hello", http.request({ url = plain.url }).body)
    end)

    it("leaves the coding of a body as it is", function()
        local server <close> = raw "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"
        assert.are.equal("hello", http.request({ url = server.url }).body)
    end)

    it("is over when its time is", function()
        local server <close> = raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "then=hold")
        local began = sys.now()
        local e = failure { url = server.url, timeout = "0.5s" }
        assert.are.equal("Timeout", e.code)
        assert.is_true(sys.now() - began < 3)
    end)

    it("is cut where nothing moves", function()
        for _, answer in ipairs { "", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe" } do
            local server <close> = raw(answer, "then=hold")
            local began = sys.now()
            local e = failure { url = server.url, stall = "1s" }
            assert.are.equal("Timeout", e.code)
            assert.is_true(e.retryable)
            assert.is_true(sys.now() - began < 4)
        end
    end)

    it("is cut where next to nothing moves", function()
        local server <close> = raw("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" .. ("x"):rep(900), "drip=0.05")
        assert.are.equal("Timeout", failure({ url = server.url, stall = "1s" }).code)
    end)

    it("tries again on a new connection, as often as it may", function()
        local server <close> = raw { "", "", OK }
        assert.are.equal("NetworkError", failure({ url = server.url }).code)
        local res = http.request { url = server.url, attempts = 3 }
        assert.are.equal("hello", res.body)
        assert.are.equal(2, res.attempts)
        assert.are.equal(3, count(server.asked(), "GET / HTTP"))
    end)

    it("does not count a connection that the server has closed while nobody used it", function()
        local server <close> = raw(OK)
        for _ = 1, 6 do
            assert.are.equal(1, http.request({ url = server.url, attempts = 2 }).attempts)
            task.sleep "0.05s"
        end
    end)

    it("is cut where a handshake does not end", function()
        local server <close> = raw("", "then=hold")
        local began = sys.now()
        local e = failure { url = "https" .. server.url:match "^http(.*)", stall = "2s" }
        assert.are.equal("Timeout", e.code)
        assert.is_true(sys.now() - began < 8)
    end)

    it("says who did not answer", function()
        local e = failure { url = "http://127.0.0.1:9/x" }
        assert.are.equal("ConnectFailed", e.code)
        assert.is_truthy(tostring(e):find("127.0.0.1:9", 1, true))
        e = failure { url = "http://no-such-host.invalid/" }
        assert.are.equal("DnsFailed", e.code)
        assert.is_truthy(tostring(e):find("no-such-host.invalid", 1, true))
    end)

    it("shows no secret of its address or headers", function()
        local e = failure {
            url = "http://127.0.0.1:9/x?X-Amz-Signature=topsecret", headers = { Authorization = "Bearer topsecret" },
        }
        assert.is_nil(tostring(e):find "topsecret")
    end)

    it("stops at once when its task is cancelled", function()
        local server <close> = raw("", "then=hold")
        local began = sys.now()
        local t = task.spawn(http.request, { url = server.url })
        task.sleep "0.2s"
        t:cancel()
        local ok, e = pcall(t.wait, t)
        assert.is_false(ok)
        assert.is_true(errors.is(e, "Cancelled"))
        assert.is_true(sys.now() - began < 2)
    end)

    it("goes on beside others", function()
        local server <close> = raw("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "drip=0.005")
        local began, asks = sys.now(), {}
        for i = 1, 20 do
            asks[i] = function() assert.are.equal("abc", http.request({ url = server.url }).body) end
        end
        task.all(asks)
        assert.is_true(sys.now() - began < 5)
    end)
end)

describe("the room for connections", function()
    it("is what the system allows, whatever it gives to begin with", function()
        local script = helper.tmp() .. "/limits.lua"
        helper.write(script, [[for line in io.lines "/proc/self/limits" do print(line) end]])
        for limits, want in pairs { ["300:5000"] = 5000, ["300:300"] = 300, ["300:500000"] = 65536 } do
            local code, out, err = helper.run { "prlimit", "--nofile=" .. limits, helper.NCRUN, script }
            if not err:find "Operation not permitted" then -- to raise the hard limit may not be ours
                assert.are.equal(0, code, err)
                assert.are.equal(want, tonumber(out:match "Max open files%s+(%d+)"))
            end
        end
    end)
end)

-- What the environment decides is read at the start of a process.
describe("the environment of HTTP", function()
    local script = helper.tmp() .. "/get.lua"
    helper.write(script, [[
        local http = require "nc.http"
        local ok, res = pcall(http.request, { url = os.getenv "URL", timeout = "5s" })
        print(ok and res.status .. " " .. res.body or res.code)
    ]])

    local function get(url, env)
        local code, out, err = helper.ncrun({ script }, {
            env = helper.env({ URL = url, NO_PROXY = false, no_proxy = false }, env), timeout = 20,
        })
        assert.are.equal(0, code, err)
        return out
    end

    it("sends requests by way of http_proxy", function()
        local proxy <close> = raw(OK)
        assert.are.equal("200 hello\n", get("http://far.example/x", { http_proxy = proxy.url }))
        assert.is_truthy(proxy.asked():find("GET http://far.example/x HTTP/1.1", 1, true))
    end)

    it("opens a tunnel by way of https_proxy", function()
        local proxy <close> = raw "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
        for _, name in ipairs { "https_proxy", "HTTPS_PROXY" } do
            get("https://far.example/x", { [name] = proxy.url })
        end
        assert.are.equal(2, count(proxy.asked(), "CONNECT far.example:443 HTTP/1.1"))
    end)

    it("leaves the proxy out for hosts of NO_PROXY", function()
        local proxy <close> = raw "HTTP/1.1 500 Wrong\r\nContent-Length: 0\r\n\r\n"
        local server <close> = raw(OK)
        for _, list in ipairs { "127.0.0.1", "example.org, 127.0.0.1", "*" } do
            assert.are.equal("200 hello\n", get(server.url, { http_proxy = proxy.url, NO_PROXY = list }))
        end
        assert.are.equal("", proxy.asked())
    end)

    it("says when the proxy is not there", function()
        local url <const> = "http://far.example/"
        assert.are.equal("ConnectFailed\n", get(url, { http_proxy = "http://127.0.0.1:9" }))
        assert.are.equal("DnsFailed\n", get(url, { http_proxy = "http://no-such-proxy.invalid:3128" }))
    end)

    it("falls through a CA file that is not there to the system's", function()
        local out = get("https://127.0.0.1:9/", { SSL_CERT_FILE = "/no/such/file.pem" })
        assert.are.equal("ConnectFailed\n", out)
    end)
end)
