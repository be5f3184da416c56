local compare = require "nc.trees.compare"
local errors  = require "nc.errors"
local files   = require "nc.files"
local names   = require "nc.trees.names"
local stores  = require "nc.stores"
local sys     = require "nc.core.sys"

local function listed(...)
    local list, at = { ... }, 0
    return function()
        at = at + 1
        return list[at] and { path = list[at] }
    end
end

-- The message that refuses these names, or nil.
local function refusal(kind, ...)
    local check = names.checker(kind, 10)
    for _, path in ipairs { ... } do
        local ok, e = pcall(check, { path = path, size = path:sub(-1) == "!" and 1 or 0 })
        if not ok then
            assert.is_true(errors.is(e, "BadPath"))
            return tostring(e)
        end
    end
end

describe("the names of a copy", function()
    it("may be anything that a folder can hold", function()
        assert.is_nil(refusal("folder", ".hidden", "a", "a b", "a-b", "a.b/c", "a0", "a1/", "b/", "b/c.d", "b/c/",
            "b/c/d", "é"))
    end)

    it("never leave the folder", function()
        for _, path in ipairs { "../x", "a/../../x", "..", "/x" } do
            assert.truthy(refusal("folder", path), path)
        end
        assert.is_nil(refusal("folder", "..x", "a..b", "x.."))
    end)

    it("never lie over each other, however far apart they are listed", function()
        assert.truthy(refusal("folder", "a", "a-1", "a.b", "a/b"):find('"a" is also the folder of "a/b"', 1, true))
        assert.truthy(refusal("folder", "a", "a.b", "a.b/c"):find('"a.b" is also the folder of "a.b/c"', 1, true))
        assert.truthy(refusal("folder", "x/y", "x/y-", "x/y/z/1"))
        assert.truthy(refusal("folder", "x", "x/"))
        assert.is_nil(refusal("bucket", "a", "a/", "a//b", "a/b"))
    end)

    it("come in order and once", function()
        assert.truthy(refusal("bucket", "a", "a"):find("is there twice", 1, true))
        assert.truthy(refusal("bucket", "b", "a"):find("out of order", 1, true))
    end)

    it("hold no control characters, and are no longer than they may be", function()
        assert.truthy(refusal("bucket", "a\nb"):find('"a?b" holds a control character', 1, true))
        assert.truthy(refusal("folder", "a/" .. ("x"):rep(256)))
        assert.is_nil(refusal("folder", "a/" .. ("x"):rep(255)))
        assert.is_nil(refusal("bucket", ("x"):rep(1014)))
        assert.truthy(refusal("bucket", ("x"):rep(1015)))
    end)
end)

describe("two lists", function()
    it("are paired by path", function()
        local next_pair = compare.side_by_side(listed("a", "c", "d"), listed("a", "b", "d", "e"))
        local seen = {}
        for i = 1, 6 do
            local a, b = next_pair()
            seen[i] = (a and a.path or "-") .. (b and b.path or "-")
        end
        assert.are.same({ "aa", "-b", "c-", "dd", "-e", "--" }, seen)
    end)

    it("are compared by digest, then ETag, then time", function()
        local file = { size = 5, modified = 100, etag = '"x"' }
        local function same(there, known, known_there)
            return compare.is_same(file, there, known, known_there)
        end
        assert.is_false(same { size = 4, modified = 200, etag = '"x"' })
        assert.is_true(same { size = 5, modified = 100 })
        assert.is_false(same { size = 5, modified = 99 })
        assert.is_true(same { size = 5, modified = 99, etag = '"x"' })
        assert.is_true(same { size = 5, modified = 200, etag = '"y"' })
        assert.is_false(same({ size = 5, modified = 200, etag = '"x"' }, { sha256 = "1" }, { sha256 = "2" }))
        assert.is_true(same({ size = 5, modified = 1 }, { sha256 = "1" }, { sha256 = "1" }))
        assert.is_false(same({ size = 5, modified = 1 }, { sha256 = "1" }, {}))
    end)
end)

describe("a folder", function()
    it("is listed in the order in which a bucket lists its keys", function()
        local root = sys.mkdtemp()
        local expected = { "a-b", "a.b", "a/x", "a/z/q", "a/z.q", "a0/y", "b" }
        table.sort(expected)
        for _, path in ipairs(expected) do
            sys.mkdir(root .. "/" .. (path:match "^(.*)/" or ""))
            assert(io.open(root .. "/" .. path, "w")):close()
        end
        local listed_paths = {}
        for file in stores.open(root):list() do listed_paths[#listed_paths + 1] = file.path end
        assert.are.same(expected, listed_paths)
        stores.open(root):remove(expected)
        for _, folder in ipairs { "/a/z", "/a", "/a0", "" } do assert(os.remove(root .. folder)) end
    end)
end)

describe("an address", function()
    it("is an object's or a path", function()
        assert.are.same({ bucket = "b", key = "a/b c" }, stores.parse "s3://b/a/b c")
        assert.are.same({ bucket = "b", key = "" }, stores.parse "S3://b")
        assert.are.same({ bucket = "b", key = "/x" }, stores.parse "s3://b//x")
        assert.are.same({ path = "./s3:/b" }, stores.parse "./s3:/b")
        for _, bad in ipairs { "", "s3://", "s3:///x" } do
            local ok, e = pcall(stores.parse, bad)
            assert.is_true(not ok and errors.is(e, "Usage"), bad)
        end
    end)

    it("of a copy's target takes the file's name where it is a folder", function()
        assert.are.equal("s3://b/f", files.target("s3://b", "f"))
        assert.are.equal("s3://b/f", files.target("s3://b/", "f"))
        assert.are.equal("s3://b/x/f", files.target("s3://b/x/", "f"))
        assert.are.equal("s3://b/x", files.target("s3://b/x", "f"))
        assert.are.equal("/tmp/f", files.target("/tmp", "f"))
        assert.are.equal("/none/f", files.target("/none/", "f"))
        assert.are.equal("/none/g", files.target("/none/g", "f"))
    end)
end)
