-- The pure parts of reading a hub's tree; whole answers are in spec/e2e/hub_spec.lua.
local errors = require "nc.errors"
local hub    = require "nc.hub"
local json   = require "nc.json"

local SHA <const>, BLOB <const> = ("0aB1"):rep(16), ("0aB1"):rep(10)

local function refused(f, ...)
    local ok, e = pcall(f, ...)
    assert.is_false(ok)
    assert.is_true(errors.is(e, "HubError"), tostring(e))
    return tostring(e)
end

describe("hub.files_of", function()
    local function files_of(text) return hub.files_of(json.decode(text), "list x") end

    it("gives files with the digest that the hub has of them, and no folders", function()
        local files = files_of(([=[[
            {"type":"directory","path":"d","oid":"%s","size":0},
            {"type":"file","path":"d/small","oid":"%s","size":3},
            {"type":"file","path":"big","oid":"%s","size":134,"lfs":{"oid":"%s","size":5000000000,"pointerSize":134}}
        ]]=]):format(BLOB, BLOB, BLOB, SHA))
        assert.same({
            { path = "d/small", size = 3, blob = BLOB:lower() },
            { path = "big", size = 5000000000, sha256 = SHA:lower() },
        }, files)
    end)

    it("gives none for an empty list", function()
        assert.same({}, files_of "[]")
    end)

    it("refuses an answer that is no list", function()
        for _, text in ipairs { '{"error":"gone"}', '"x"', "7", "null", "true" } do
            assert.truthy(refused(files_of, text):find("list x", 1, true))
        end
    end)

    it("refuses an entry that is none", function()
        for _, text in ipairs { "[null]", "[7]", '["file"]' } do refused(files_of, text) end
        assert.same({}, files_of "[[]]") -- of no type: not a file
    end)

    it("refuses a file without a path, a size or a digest", function()
        for _, fields in ipairs {
            '"size":1,"oid":"' .. BLOB .. '"', '"path":7,"size":1,"oid":"' .. BLOB .. '"',
            '"path":"a","oid":"' .. BLOB .. '"', '"path":"a","size":-1,"oid":"' .. BLOB .. '"',
            '"path":"a","size":1.5,"oid":"' .. BLOB .. '"', '"path":"a","size":"1","oid":"' .. BLOB .. '"',
            '"path":"a","size":1', '"path":"a","size":1,"oid":"main"',
            '"path":"a","size":1,"oid":"' .. BLOB .. '","lfs":{}',
            '"path":"a","size":1,"lfs":{"oid":"' .. BLOB .. '","size":1}',
        } do
            refused(files_of, '[{"type":"file",' .. fields .. "}]")
        end
    end)
end)

describe("hub.next_page", function()
    local function next_page(header) return hub.next_page(header, "https://hub.example") end

    it("is the path of the link that is the next one", function()
        assert.equal("/api/x?cursor=a%3D", next_page '<https://hub.example/api/x?cursor=a%3D>; rel="next"')
        assert.equal("/api/x?c", next_page '</first>; rel="first", </api/x?c>; rel="next"')
    end)

    it("is nil where there is none", function()
        assert.is_nil(next_page(nil))
        assert.is_nil(next_page "")
        assert.is_nil(next_page '</x>; rel="prev"')
    end)

    it("is not followed to another host, nor where it is no address", function()
        for _, link in ipairs { "https://other.example/x", "//other.example/x", "http://hub.example/x",
                                "https://hub.example:444/x", "ftp://hub.example/x", "/a\0b", "/a\r\nHost: b" } do
            refused(next_page, "<" .. link .. '>; rel="next"')
        end
    end)
end)
