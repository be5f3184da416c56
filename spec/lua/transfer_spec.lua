-- The engine through its Lua face: hub -> folder, folder -> nowhere and folder -> folder.
local copies   = require "nc.copy"
local errors   = require "nc.errors"
local helper   = require "spec.helper"
local pipe     = require "spec.pipe"
local sys      = require "nc.core.sys"
local task     = require "nc.task"
local transfer = require "nc.transfer"

local FILES <const> = {
    ["config.json"] = "{}",
    ["empty"] = "",
    ["deep/er/vocab.txt"] = pipe.bytes(5000),
    ["big.bin"] = pipe.bytes(3 * pipe.PART + 17),
    ["even.bin"] = pipe.bytes(2 * pipe.PART),
}

local function place(server, copy, options)
    local model = pipe.model(server)
    return transfer.run(helper.env({
        source = model:source(), sink = copy:sink(), files = model:files(), parallel = 6, part_size = pipe.PART,
    }, options or {}))
end

local function new_copy()
    return copies.in_folder(helper.tmp(), "model")
end

local function path_of(copy, name)
    return copy.location .. name
end

-- What is half-written, and its journals.
local function half_written(copy)
    local _, out = helper.run { "find", copy.location, "-name", "*.part", "-o", "-name", "*.parts" }
    return out
end

-- Every file that is there under its own name is whole; nothing else is there.
local function assert_whole_or_absent(copy, server)
    local there = copy:list()
    for path in pairs(there) do
        assert.is_true(helper.read(path_of(copy, path)) == server.files[path], path)
    end
    assert.equal("", half_written(copy))
    return there
end

local function check(copy, files, options)
    return transfer.run(helper.env({
        source = copy:source(), sink = { kind = "none" }, files = files, part_size = pipe.PART,
    }, options or {}))
end

local function flip(path, offset)
    local file <close> = assert(io.open(path, "r+b"))
    file:seek("set", offset)
    local byte = file:read(1):byte()
    file:seek("set", offset)
    file:write(string.char(byte ~ 1))
end

describe("from a hub to a folder", function()
    it("every file arrives under its name, with the digests of its parts", function()
        local server <close> = pipe.server(FILES)
        local copy = new_copy()
        local done = place(server, copy)
        local there = assert_whole_or_absent(copy, server)
        for path, text in pairs(FILES) do assert.equal(#text, there[path] and there[path].size, path) end
        assert.same({}, done.failed)
        for _, f in ipairs(done.files) do
            assert.equal(64, #f.sha256)
            assert.equal(math.max(1, (f.size + pipe.PART - 1) // pipe.PART), #f.parts)
        end
    end)

    it("one that is always wrong is left out, with its temporary name; the others come", function()
        local server <close> = pipe.server(FILES, { "GET *big* side=cdn flip=100" })
        local copy = new_copy()
        local done = place(server, copy)
        assert.same({ "big.bin" }, pipe.paths(done.failed))
        assert.is_true(errors.is(done.failed[1].error, "DigestMismatch"))
        local there = assert_whole_or_absent(copy, server)
        assert.is_nil(there["big.bin"])
        assert.equal(4, #pipe.paths(done.files))
    end)

    it("one that is wrong once is fetched again", function()
        local server <close> = pipe.server(FILES, { "GET *even* side=cdn nth=1 flip=0" })
        local copy = new_copy()
        local done = place(server, copy)
        assert.same({}, done.failed)
        assert.truthy(assert_whole_or_absent(copy, server)["even.bin"])
    end)

    it("replaces what had that name before only when it is whole", function()
        local server <close> = pipe.server(FILES, { "GET *big* side=cdn flip=100" })
        local copy = new_copy()
        helper.write(path_of(copy, "big.bin"), "old")
        helper.write(path_of(copy, "even.bin"), "old")
        place(server, copy)
        assert.equal("old", helper.read(path_of(copy, "big.bin")))
        assert.is_true(helper.read(path_of(copy, "even.bin")) == FILES["even.bin"])
    end)

    it("a reason that all files share ends it and leaves no temporary name", function()
        local server <close> = pipe.server(FILES, { "GET *big* op=Resolve status=403" })
        local copy = new_copy()
        local e = pipe.failure(place, server, copy)
        assert.equal("AccessDenied", e.code)
        assert_whole_or_absent(copy, server)
    end)

    it("being cancelled half-way leaves no temporary name", function()
        local server <close> = pipe.server(FILES, { "GET *big* side=cdn accept-stall" })
        local copy = new_copy()
        local e = pipe.failure(task.deadline, "1s", place, server, copy)
        assert.equal("Timeout", e.code)
        assert.is_nil(assert_whole_or_absent(copy, server)["big.bin"])
    end)

    it("fails by name where a folder has to be and a file is", function()
        local server <close> = pipe.server(FILES)
        local copy = new_copy()
        helper.write(path_of(copy, "deep"), "a file")
        local e = pipe.failure(place, server, copy)
        assert.equal("ENOTDIR", e.code)
        assert.truthy(tostring(e):find("deep", 1, true))
    end)
end)

describe("reading a folder back", function()
    local server, copy, files

    setup(function()
        server = pipe.server(FILES)
        files = pipe.model(server):files()
    end)

    teardown(function() server:__close() end)

    before_each(function()
        copy = new_copy()
        place(server, copy)
    end)

    it("finds every file right, and gives the digests of their parts", function()
        local done = check(copy, files)
        assert.same({}, done.failed)
        assert.equal(5, #done.files)
    end)

    it("finds one wrong byte, in the last byte of a file too", function()
        flip(path_of(copy, "big.bin"), 2 * pipe.PART + 1)
        flip(path_of(copy, "even.bin"), 2 * pipe.PART - 1)
        flip(path_of(copy, "config.json"), 0)
        local done = check(copy, files)
        assert.same({ "big.bin", "config.json", "even.bin" }, pipe.paths(done.failed))
        for _, f in ipairs(done.failed) do assert.is_true(errors.is(f.error, "DigestMismatch")) end
    end)

    it("finds one that is gone, and one that is short", function()
        os.remove(path_of(copy, "config.json"))
        helper.write(path_of(copy, "big.bin"), FILES["big.bin"]:sub(1, -2))
        local codes = {}
        for _, f in ipairs(check(copy, files).failed) do codes[f.path] = f.error.code end
        assert.same({ ["config.json"] = "ENOENT", ["big.bin"] = "ShortBody" }, codes)
    end)

    it("goes on beside other tasks, and can be cancelled", function()
        helper.sh(("truncate -s 20G %s"):format(path_of(copy, "zeros"))) -- a hole: 10 GiB a second or so
        local ticks = 0
        local began = sys.now()
        local e
        do
            local _ <close> = task.every("10ms", function() ticks = ticks + 1 end)
            e = pipe.failure(task.deadline, "300ms", check, copy, { { path = "zeros", size = 20 << 30 } })
        end
        assert.equal("Timeout", e.code)
        assert.is_true(ticks >= 3, ticks .. " ticks")
        assert.is_true(sys.now() - began < 5)
    end)

    it("names a folder that is not there", function()
        local done = transfer.run {
            source = { kind = "dir", root = "/no/such/folder" }, sink = { kind = "none" },
            files = { { path = "a", size = 1 } },
        }
        local e = done.failed[1].error
        assert.equal("ENOENT", e.code)
        assert.truthy(tostring(e):find("open /no/such/folder: No such", 1, true), tostring(e))
    end)
end)

describe("from a folder to a folder", function()
    it("every file arrives", function()
        local server <close> = pipe.server(FILES)
        local from, to = new_copy(), new_copy()
        place(server, from)
        local done = transfer.run {
            source = from:source(), sink = to:sink(), files = pipe.model(server):files(), part_size = pipe.PART,
        }
        assert.equal(5, #done.files)
        local there = assert_whole_or_absent(to, server)
        for path, text in pairs(FILES) do assert.equal(#text, there[path].size) end
    end)
end)

describe("a transfer", function()
    it("of nothing ends at once", function()
        local done = transfer.run { source = new_copy():source(), sink = { kind = "none" }, files = {} }
        assert.same({}, done.files)
        assert.same({}, done.failed)
    end)

    it("refuses what can't be planned before the first byte, by its name", function()
        local copy = new_copy()
        local function failure(file, options)
            return pipe.failure(transfer.run, helper.env({
                source = copy:source(), sink = copy:sink(), files = { file },
            }, options or {}))
        end
        assert.equal("EntityTooLarge", failure({ path = "huge", size = (5 << 40) + 1 }).code)
        assert.equal("Usage", failure({ path = "a", size = 1 }, { part_size = 1 << 20 }).code)
        local e = failure({ path = "fat", size = 64 << 20 },
            { part_size = 64 << 20, memory = 16 << 20, sink = { kind = "none" } })
        assert.equal("Usage", e.code)
        assert.truthy(tostring(e):find("fat: a buffer of", 1, true))
        assert.same({}, copy:list())
    end)
end)

describe("a limit of the rate", function()
    local SIZE <const>, RATE <const> = 6 << 20, 4 << 20

    -- Two thirds of what the limit leaves: the first bytes of a booking move at once.
    local function assert_slow(source, sink)
        local done = transfer.run {
            source = source, sink = sink, files = { { path = "f", size = SIZE } }, limit_rate = RATE,
        }
        assert.equal(1, #done.files)
        assert.is_true(done.seconds > SIZE / RATE * 2 / 3, done.seconds .. " s")
    end

    it("is kept from bucket to folder, folder to bucket and folder to folder", function()
        local server <close> = helper.server()
        local bucket, folder = pipe.bucket(server), helper.tmp()
        helper.write(folder .. "/f", pipe.bytes(SIZE))
        local from, to = { kind = "dir", root = folder }, { kind = "s3", client = bucket.client, prefix = "p/" }
        assert_slow(from, to)
        assert_slow(to, { kind = "dir", root = helper.tmp() })
        assert_slow(from, { kind = "dir", root = helper.tmp() })
    end)
end)
