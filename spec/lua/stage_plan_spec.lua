local copies  = require "nc.copy"
local helper  = require "spec.helper"
local marker  = require "nc.marker"
local pipe    = require "spec.pipe"
local plans   = require "nc.stage.plan"
local stage   = require "nc.stage"
local uploads = require "nc.stage.uploads"

local A <const>, B <const> = ("a"):rep(64), ("b"):rep(64)
local BLOB <const>, OTHER <const> = ("1"):rep(40), ("2"):rep(40)
local MIB <const> = 1 << 20

-- What plans.make decides, as "kept", "check" or "move" by path.
local function decide(files, o)
    local there = {}
    for _, f in ipairs(files) do there[f.path] = { size = (o.sizes or {})[f.path] or f.size } end
    for _, path in ipairs(o.absent or {}) do there[path] = nil end
    local copy = { digest_of = function(_, path) return (o.claims or {})[path] end }
    local plan = plans.make(files, there, copy, o.earlier, o.manifest, o.verify)
    local verdicts, count = {}, 0
    for name, list in pairs(plan) do
        for _, f in ipairs(list) do
            verdicts[f.path] = name
            count = count + 1
        end
    end
    assert.equal(#files, count)
    return verdicts, plan
end

local BIG <const> = { path = "big", size = 9, sha256 = A }
local SMALL <const> = { path = "small", size = 2, blob = BLOB }

local function earlier(done, unverified)
    return { done = done or {}, unverified = unverified or {} }
end

describe("the plan of a stage", function()
    it("moves what is not there or has another size", function()
        local v = decide({ BIG, SMALL }, { absent = { "big" }, sizes = { small = 3 } })
        assert.same({ big = "move", small = "move" }, v)
    end)

    it("moves nothing that the journal of an earlier run knows, and keeps its digests", function()
        local entry = { path = "big", size = 9, sha256 = A, part_size = 5, parts = { "x", "y" } }
        local v, plan = decide({ BIG, SMALL }, {
            earlier = earlier { big = entry, small = { path = "small", size = 2, sha256 = B, blob = BLOB } },
        })
        assert.same({ big = "kept", small = "kept" }, v)
        for _, f in ipairs(plan.kept) do
            if f.path == "big" then assert.same({ "x", "y" }, f.parts) end
            if f.path == "small" then assert.equal(B, f.sha256) end
        end
    end)

    it("moves what is of another revision though the size is the same", function()
        local manifest = { files = { { path = "big", size = 9, sha256 = B } } }
        assert.equal("move", decide({ BIG }, { manifest = manifest }).big)
        local journal = earlier { big = { path = "big", size = 9, sha256 = B } }
        assert.equal("move", decide({ BIG }, { earlier = journal, manifest = manifest }).big)
    end)

    it("reads back what went by another process in parts", function()
        local e = earlier({ big = { path = "big", size = 9, sha256 = A } }, { big = true })
        assert.equal("check", decide({ BIG }, { earlier = e }).big)
    end)

    it("reads small files back that nobody vouches for, and takes large ones by size or claim", function()
        local v, plan = decide({ BIG, SMALL }, {})
        assert.same({ big = "kept", small = "check" }, v)
        assert.equal("size", plan.kept[1].verified)
        assert.is_nil(plan.kept[1].sha256)
        v, plan = decide({ BIG }, { claims = { big = A } })
        assert.equal("kept", v.big)
        assert.equal("upload", plan.kept[1].verified)
    end)

    it("moves what was put there for another digest", function()
        assert.equal("move", decide({ BIG }, { claims = { big = B } }).big)
    end)

    it("reads claimed ones back where a run was interrupted", function()
        local v = decide({ BIG, { path = "missing", size = 1, sha256 = B } },
            { absent = { "missing" }, claims = { big = A }, earlier = earlier() })
        assert.same({ big = "check", missing = "move" }, v)
    end)

    it("reads everything back that is there with verify", function()
        local e = earlier { big = { path = "big", size = 9, sha256 = A } }
        local v = decide({ BIG, SMALL }, { earlier = e, verify = true })
        assert.same({ big = "check", small = "check" }, v)
    end)

    it("does not take a small file of another content for known", function()
        local e = earlier { small = { path = "small", size = 2, sha256 = A, blob = OTHER } }
        assert.equal("check", decide({ SMALL }, { earlier = e }).small)
    end)

    it("does not move again what an earlier manifest lists by its size alone", function()
        local manifest = { files = { { path = "big", size = 9, verified = "size" } } }
        assert.equal("kept", decide({ BIG }, { manifest = manifest }).big)
    end)
end)

describe("an unfinished upload", function()
    local function parts(...)
        local list = {}
        for _, p in ipairs { ... } do list[#list + 1] = { number = p[1], size = p[2] * MIB, etag = "e" .. p[1] } end
        return list
    end

    it("goes on where its parts are those of the file", function()
        local etags, part_size, count = uploads.usable_parts(parts({ 1, 8 }, { 3, 8 }), 30 * MIB)
        assert.same({ "e1", [3] = "e3" }, etags)
        assert.equal(8 * MIB, part_size)
        assert.equal(2, count)
        assert.same({ "e1", "e2" }, (uploads.usable_parts(parts({ 1, 8 }, { 2, 1 }), 9 * MIB)))
    end)

    it("is of no use without parts, with odd ones, or for a file of one part", function()
        assert.is_nil(uploads.usable_parts(nil, 9))
        assert.is_nil(uploads.usable_parts({}, 9))
        assert.is_nil(uploads.usable_parts(parts({ 1, 4 }), 30 * MIB))
        assert.is_nil(uploads.usable_parts(parts({ 1, 8 }, { 2, 7 }), 30 * MIB))
        assert.is_nil(uploads.usable_parts(parts({ 1, 8 }, { 5, 8 }), 30 * MIB))
        assert.is_nil(uploads.usable_parts(parts({ 0, 8 }), 30 * MIB))
        assert.is_nil(uploads.usable_parts(parts({ 1, 8 }), 8 * MIB))
    end)

    it("with most parts is continued, the others are aborted", function()
        local aborted = {}
        local listed = {
            few = parts({ 1, 8 }), most = parts({ 1, 8 }, { 2, 8 }), odd = parts({ 1, 6 }, { 2, 8 }), gone = nil,
            unwanted = parts({ 1, 8 }),
        }
        local copy = {
            parts = function(_, u) return listed[u.upload_id] end,
            abort = function(_, u) aborted[#aborted + 1] = u.upload_id end,
        }
        local file = { path = "big", size = 30 * MIB }
        local list = {}
        for i, id in ipairs { "few", "most", "odd", "gone", "unwanted" } do
            list[i] = { path = id == "unwanted" and "other" or "big", upload_id = id }
        end
        assert.same({ "big" }, uploads.continue(copy, { big = file }, list))
        assert.equal("most", file.upload_id)
        assert.equal(8 * MIB, file.part_size)
        table.sort(aborted)
        assert.same({ "few", "gone", "odd", "unwanted" }, aborted)
    end)

    it("is ours when it came after the strangers, for a file of the stage", function()
        local now = { { path = "big", upload_id = "old" } }
        local copy = { uploads = function() return now end }
        local strangers = uploads.strangers(copy)
        now = {
            { path = "big", upload_id = "old" }, { path = "big", upload_id = "new" }, { path = "x", upload_id = "x" },
        }
        assert.same({ { path = "big", upload_id = "new" } }, uploads.ours(copy, { big = true }, strangers))
    end)
end)

describe("a copy that another tool has made", function()
    it("is marked by its sizes once, and from then on complete", function()
        local files = { ["config.json"] = "{}", ["model.bin"] = pipe.bytes(6 << 20) }
        local server <close> = pipe.server(files)
        local copy = copies.in_folder(helper.tmp(), "model")
        for path, text in pairs(files) do helper.write(copy.location .. path, text) end
        local function run()
            return stage.run { model = pipe.model(server), copy = copy, job = "spec", wait = 1 }
        end
        local first = run()
        assert.equal(0, first.moved)
        local manifest = marker.decode_complete(copy:read_marker(marker.COMPLETE))
        assert.equal(2, manifest.total_files)
        local again = run()
        assert.is_true(again.already)
        assert.is_nil(server:counters().cdn.ops.Get)
    end)
end)
