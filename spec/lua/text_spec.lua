local errors = require "nc.errors"
local text   = require "nc.core.text"

describe("nc.core.text", function()
    it("encodes and decodes what goes into a URL", function()
        assert.equal("a/b%20c%2B%C3%A9", text.url_encode("a/b c+é", true))
        assert.equal("a%2Fb%00", text.url_encode "a/b\0")
        assert.equal("a/b c+", text.url_decode "a%2Fb%20c+")
        assert.equal("a b", text.url_decode("a+b", true))
        assert.equal("", text.url_decode "")
        assert.is_nil(text.url_decode "a%2")
    end)

    it("takes a URL apart", function()
        assert.same({
            scheme = "https", host = "[::1]", port = 8443, authority = "[::1]:8443", path = "/a//b",
            query = "x=1",
        }, text.url_parse "https://[::1]:8443/a//b?x=1#f")
        local parsed, e = text.url_parse "https://me:secret@host/"
        assert.is_nil(parsed)
        assert.is_true(errors.is(e, "BadUrl"))
        assert.is_nil(e.message:find "secret")
    end)

    it("resolves a Location and compares origins", function()
        assert.equal("https://hub/x?y", text.url_resolve("https://hub/a/b", "/x?y"))
        assert.equal("https://cdn:81/", text.url_resolve("https://hub/a/b", "//cdn:81"))
        local resolved, e = text.url_resolve("https://hub/a", "ftp://x")
        assert.is_nil(resolved)
        assert.is_true(errors.is(e, "BadUrl"))
        assert.is_true(text.same_origin("https://Hub/a", "https://hub:443/b"))
        assert.is_false(text.same_origin("https://hub/", "http://hub/"))
        assert.is_false(text.same_origin("nonsense", "nonsense"))
    end)

    it("reads and writes dates", function()
        assert.equal(784111777, text.http_date "Sun, 06 Nov 1994 08:49:37 GMT")
        assert.equal("Sun, 06 Nov 1994 08:49:37 GMT", text.format_http_date(784111777))
        assert.equal(1795946400, text.iso_date "2026-11-29T10:00:00.000Z")
        assert.is_nil(text.http_date "yesterday")
        assert.is_nil(text.iso_date "2026-02-30T10:00:00Z")
    end)

    it("digests", function()
        assert.equal("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", text.sha256 "abc")
        assert.equal("XrY7u+Ae7tCTyyK7j1rNww==", text.md5 "hello world")
    end)

    it("matches patterns as the hub means them", function()
        assert.is_true(text.glob("*.json", "a/b.json"))
        assert.is_true(text.glob("original/", "original/a/b"))
        assert.is_false(text.glob("*.json", "a/b.jsonl"))
    end)

    it("refuses a NUL byte, which C would stop at", function()
        assert.has_error(function() text.glob("*", "a\0b") end)
        assert.has_error(function() text.url_parse "http://a\0b" end)
    end)
end)
