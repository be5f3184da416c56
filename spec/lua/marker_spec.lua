local errors = require "nc.errors"
local json   = require "nc.json"
local marker = require "nc.marker"

local COMMIT <const> = ("0123456789"):rep(4)
local SHA <const> = ("0123456789abcdef"):rep(4)
local DIGEST <const> = ("0123456789abcdef"):rep(2)

local function manifest(change)
    local m = {
        version = 1, repository = "owner/model", commit = COMMIT, total_files = 1, total_bytes = 9,
        files = json.array {
            { path = "a", size = 9, sha256 = SHA, part_size = 8, parts = json.array { DIGEST, DIGEST } },
        },
    }
    for name, value in pairs(change or {}) do m[name] = value end
    return m
end

local function refusal(text)
    local ok, e = pcall(marker.decode_complete, type(text) == "table" and json.encode(text) or text)
    assert.is_false(ok)
    assert.is_true(errors.is(e, "BadMarker"), tostring(e))
    return tostring(e)
end

local function bad_path(...)
    local files = {}
    for i, path in ipairs { ... } do files[i] = { path = path } end
    local ok, e = pcall(marker.check_paths, files)
    if ok then return nil end
    assert.is_true(errors.is(e, "BadPath"), tostring(e))
    return tostring(e)
end

describe("a .complete marker", function()
    it("is read back as it was written", function()
        local m = manifest { finished = "2026-01-02T03:04:05Z", by = "ncrun 0.1.0" }
        local again = marker.decode_complete(marker.encode_complete(m))
        assert.equal(marker.DIGEST, again.part_digest)
        assert.same(m.files[1].parts, again.files[1].parts)
        for _, name in ipairs { "repository", "commit", "total_files", "total_bytes", "finished", "by" } do
            assert.equal(m[name], again[name])
        end
    end)

    it("counts its totals by itself", function()
        local again = marker.decode_complete(marker.encode_complete(manifest { total_files = 7, total_bytes = 7 }))
        assert.equal(1, again.total_files)
        assert.equal(9, again.total_bytes)
    end)

    it("is the same text each time", function()
        assert.equal(marker.encode_complete(manifest()), marker.encode_complete(manifest()))
    end)

    it("may be what older tools left: nothing, a word, JSON without a version", function()
        for _, text in ipairs { "", "\n", "done", "null", "1", "[]", '{"finished":true}', "\xff\0" } do
            assert.same({ bare = true }, marker.decode_complete(text))
        end
    end)

    it("may list nothing", function()
        local text = json.encode(manifest { files = json.array {}, total_files = 0, total_bytes = 0 })
        local m = marker.decode_complete(text)
        assert.same({}, m.files)
    end)

    it("is refused when it is of another version, or names no source", function()
        assert.truthy(refusal(manifest { version = 2 }):find("version 2", 1, true))
        refusal(manifest { version = json.null })
        refusal(manifest { repository = 1 })
        refusal(manifest { commit = "main" })
        refusal(manifest { commit = COMMIT:sub(2) .. "G" })
        refusal(manifest { files = "none" })
    end)

    it("is refused when its totals are not those of its files", function()
        refusal(manifest { total_bytes = 10 })
        refusal(manifest { total_files = 2 })
        refusal(manifest { total_files = json.null })
    end)

    it("is refused when a file in it makes no sense", function()
        for _, f in ipairs {
            json.null, 7, {}, { path = "" }, { path = "a" }, { path = "a", size = -1 }, { path = "a", size = 1.5 },
            { path = "a", size = "9" }, { path = "a", size = 9, sha256 = "x" },
            { path = "a", size = 9, sha256 = json.null },
            { path = "a", size = 9, parts = {} }, { path = "a", size = 9, part_size = 0, parts = { DIGEST } },
            { path = "a", size = 9, part_size = 8, parts = { DIGEST } },
            { path = "a", size = 9, part_size = 9, parts = { DIGEST:upper() } },
            { path = "a", size = 9, part_size = 9, parts = { 1 } },
        } do
            refusal(manifest { files = json.array { f } })
        end
    end)

    it("has one part digest for an empty file", function()
        local f = { path = "a", size = 0, part_size = 8, parts = json.array { DIGEST } }
        assert.equal(0, marker.decode_complete(json.encode(
            manifest { files = json.array { f }, total_bytes = 0 })).files[1].size)
    end)
end)

describe("a .staging marker", function()
    it("is what was written, closed by the engine", function()
        local text = marker.encode_staging {
            owner = { job = "j", pod = "p", pid = 1 }, repository = "owner/model", commit = COMMIT,
            started = "2026-01-02T03:04:05Z",
            journal = {
                done = { a = { size = 9, sha256 = SHA }, b = { size = 1, sha256 = SHA } },
                unverified = json.array { "c" },
            },
        } .. ',"bytes_done":5,"bytes_total":19}'
        local s = marker.decode_staging(text)
        assert.same({ job = "j", pod = "p", pid = 1 }, s.owner)
        assert.equal(COMMIT, s.commit)
        assert.equal(5, s.bytes_done)
        assert.equal(19, s.bytes_total)
        assert.same({ path = "a", size = 9, sha256 = SHA }, s.done.a)
        assert.is_true(s.unverified.c)
        assert.is_nil(s.ended)
    end)

    it("reads as an unknown stage, whatever is in it", function()
        for _, text in ipairs {
            "", "{", "[]", "null", '"x"',
            '{"owner":1,"commit":[],"started":{},"ended":0,"bytes_done":-1,"journal":[]}',
            '{"journal":{"done":[1,null],"unverified":{"a":1}},"bytes_total":"9"}',
        } do
            local s = marker.decode_staging(text)
            assert.same({ owner = {}, done = {}, unverified = {}, bytes_done = 0, bytes_total = 0 }, s)
        end
    end)

    it("counts a file as done only when all that is said of it holds", function()
        local s = marker.decode_staging(json.encode { journal = { done = {
            right = { size = 9, sha256 = SHA },
            undigested = { size = 9 },
            unsized = { sha256 = SHA },
            wrong_parts = { size = 9, sha256 = SHA, part_size = 8, parts = { DIGEST } },
            odd = 1,
        } } })
        assert.same({ right = { path = "right", size = 9, sha256 = SHA } }, s.done)
    end)
end)

describe("marker.check_paths", function()
    it("takes the names that checkpoints have", function()
        assert.is_nil(bad_path("config.json", "model-00001-of-00002.safetensors", "a/b/c.bin", ".gitattributes",
            "..a", "a..", "...", "ünï/cödé", "a b", "a/.staging", "x.complete", ".stagings"))
    end)

    it("refuses what would leave the folder", function()
        for _, path in ipairs {
            "../a", "a/../b", "a/..", "..", ".", "./a", "a/./b", "/etc/passwd", "a//b", "a/", "/",
        } do
            assert.truthy(bad_path(path), path)
        end
    end)

    it("refuses empty names, control characters and names too long to keep", function()
        assert.truthy(bad_path(""))
        for _, path in ipairs { "a\nb", "a\0b", "\27[2J", "a\127" } do
            local message = bad_path(path)
            assert.truthy(message)
            assert.is_nil(message:find "%c")
        end
        assert.truthy(bad_path(("a"):rep(256)))
        assert.is_nil(bad_path(("a"):rep(255)))
        assert.truthy(bad_path(("a/"):rep(450) .. "b"))
    end)

    it("refuses the markers' names, also as those of folders", function()
        for _, path in ipairs { ".staging", ".complete", ".complete/a", ".staging/a/b" } do
            assert.truthy(bad_path(path):find("marker", 1, true), path)
        end
    end)

    it("refuses two files in one place, and a file where a folder has to be", function()
        assert.truthy(bad_path("a", "b", "a"):find("twice", 1, true))
        assert.truthy(bad_path("a", "a/b"):find('folder of "a/b"', 1, true))
        assert.truthy(bad_path("x/y/z", "x/y"))
        assert.is_nil(bad_path("a", "ab/c", "a.b"))
    end)
end)
