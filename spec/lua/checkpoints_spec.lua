-- Which checkpoints are whole, and how they are kept: nc.checkpoints.
local disk    = require "nc.core.disk"
local helper  = require "spec.helper"
local json    = require "nc.json"
local marker  = require "nc.marker"
local shape   = require "nc.checkpoints.shape"
local shelves = require "nc.checkpoints.shelf"
local stores  = require "nc.stores"
local sys     = require "nc.core.sys"
local watch   = require "nc.checkpoints.watch"

local function names(list)
    local out = {}
    for i, entry in ipairs(list) do out[i] = entry.name end
    return table.concat(out, " ")
end

-- A safetensors file of one tensor of `size` bytes.
local function safetensors(size)
    local header = json.encode { w = { dtype = "U8", shape = { size }, data_offsets = { 0, size } } }
    return string.pack("<I8", #header) .. header .. ("w"):rep(size)
end

describe("the shape of a file", function()
    local folder = helper.tmp()
    local function is_whole(name, text)
        helper.write(folder .. "/" .. name, text)
        return shape.is_whole(folder .. "/" .. name, #text)
    end

    it("gives away a safetensors file that is cut short, or too long", function()
        local text = safetensors(1000)
        assert.is_true(is_whole("a.safetensors", text))
        for _, length in ipairs { 0, 4, 8, 20, #text - 1 } do
            assert.is_false(is_whole("a.safetensors", text:sub(1, length)), length)
        end
        assert.is_false(is_whole("a.safetensors", text .. "x"))
    end)

    it("gives away a zip, which a .pt is, that is cut short", function()
        local path = folder .. "/a.pt"
        helper.sh(([[python3 -c 'import zipfile
with zipfile.ZipFile("%s", "w") as z:
    z.writestr("archive/data.pkl", "x" * 200000); z.comment = b"a comment"']]):format(path))
        local text = helper.read(path)
        assert.equal("PK\3\4", text:sub(1, 4))
        assert.is_true(is_whole("b.pt", text))
        for _, length in ipairs { 4, 100, #text // 2, #text - 30, #text - 1 } do
            assert.is_false(is_whole("b.pt", text:sub(1, length)), length)
        end
    end)

    it("says nothing of other formats, nor of names alone", function()
        assert.is_true(is_whole("c.bin", "anything"))
        assert.is_true(is_whole("empty.pt", ""))
    end)

    it("is that of an index where it maps weights to files", function()
        assert.same({ a = true, b = true }, shape.files_of_index '{"weight_map": {"x": "a", "y": "b", "z": "a"}}')
        assert.is_nil(shape.files_of_index "{")
        assert.is_nil(shape.files_of_index '{"weight_map": 3}')
    end)
end)

describe("a watched folder", function()
    local function open(options)
        local folder = helper.tmp()
        local seen = watch.new { folder = folder, settle = options.settle or 0, complete = options.complete }
        return seen, function(name, text) helper.write(folder .. "/" .. name, text) end, folder
    end

    -- As often as it takes to believe that a file is closed.
    local function looks(seen)
        seen:look()
        return seen:look()
    end

    it("has whole checkpoints: files and folders that have settled, none twice", function()
        local seen, put = open {}
        put("a.pt", "1")
        put("step-2/model.bin", "2")
        put("step-2/state", "2")
        local list = looks(seen)
        assert.equal("a.pt step-2", names(list))
        assert.equal(2, #list[2].files)
        seen:done(list[1])
        assert.equal("step-2", names(seen:look()))
        put("a.pt", "12")
        assert.equal("step-2 a.pt", names(looks(seen))) -- the oldest first
        seen:skip_all()
        assert.equal("", names(seen:look()))
    end)

    it("waits for the settle time, but not for what was renamed from a temporary name", function()
        local seen, put, folder = open { settle = 1000 }
        put("slow.pt", "1")
        put("tmp-step-1/model.bin", "1")
        put(".x", "1")
        assert.equal("", names(seen:look()))
        disk.rename(folder .. "/.x", folder .. "/x.pt")
        os.rename(folder .. "/tmp-step-1", folder .. "/step-1")
        assert.equal("step-1 x.pt", names(seen:look()))
        os.rename(folder .. "/slow.pt", folder .. "/other.pt") -- was no temporary name
        assert.equal("step-1 x.pt", names(seen:look()))
    end)

    it("has no checkpoint while somebody has it open for writing", function()
        local seen, put, folder = open {}
        put("a.pt", "1")
        local file <close> = assert(io.open(folder .. "/a.pt", "ab"))
        assert.equal("", names(looks(seen)))
        file:close()
        assert.equal("", names(seen:look())) -- its writer may have died this very moment
        assert.equal("a.pt", names(seen:look()))
    end)

    it("believes what it has seen when the command has crashed", function()
        local seen, put, folder = open { settle = 1000 }
        put("closed.pt", "1")
        put("open.pt", "1")
        local file = assert(io.open(folder .. "/open.pt", "ab"))
        assert.equal("", names(looks(seen)))
        file:close()
        put("late.pt", "1") -- never seen while it ran
        assert.equal("closed.pt", names(seen:look { in_order = false }))
        assert.equal("closed.pt late.pt open.pt", (function()
            local words = {}
            for word in names(seen:look { in_order = true }):gmatch "%S+" do words[#words + 1] = word end
            table.sort(words)
            return table.concat(words, " ")
        end)())
    end)

    it("has only what is completed by the file that it is told of, and that by a newer one", function()
        local seen, put, folder = open { complete = ".done", settle = 0 }
        put("a.pt", "1")
        put("b/model.bin", "1")
        assert.equal("", names(seen:look()))
        put("a.pt.done", "")
        put("b/.done", "")
        assert.equal("a.pt b", names(seen:look()))
        helper.sh(("touch -d '1 hour ago' %s/a.pt.done %s/b/.done"):format(folder, folder))
        assert.equal("", names(seen:look()))
    end)

    it("has none with a temporary file, a file cut short or a missing shard in it", function()
        local seen, put = open {}
        put("a/model.bin.tmp", "1")
        put("b/x.safetensors", safetensors(100):sub(1, 50))
        put("c/model.safetensors.index.json", '{"weight_map": {"w": "one.safetensors", "v": "two.safetensors"}}')
        put("c/one.safetensors", safetensors(10))
        assert.equal("", names(seen:look()))
        assert.same({ "a", "b", "c" }, seen:rest())
        put("c/two.safetensors", safetensors(10))
        assert.equal("c", names(looks(seen)))
    end)

    it("may be gone, empty, or full of what is no checkpoint", function()
        local seen, put, folder = open {}
        put("x.pt~", "1")
        put("x.part", "1")
        os.execute(("mkfifo %s/pipe; ln -s nowhere %s/link; mkdir %s/empty"):format(folder, folder, folder))
        assert.equal("", names(seen:look()))
        os.execute("rm -r " .. folder)
        assert.equal("", names(seen:look()))
    end)
end)

describe("a shelf", function()
    for _, kind in ipairs { "bucket", "folder" } do
        local function open()
            if kind == "folder" then return stores.open(helper.tmp() .. "/shelf") end
            local server = helper.server { memory = "yes" }
            for name, value in pairs(server.env) do sys.setenv(name, value) end
            return stores.open("s3://" .. server.env.NC_BUCKET .. "/shelf/")
        end
        local function put(shelf, text, is_same)
            local folder = helper.tmp()
            helper.write(folder .. "/ckpt.pt", text)
            local seen = watch.new { folder = folder, settle = 0 }
            local entry = seen:look({ in_order = true })[1]
            entry.number = shelf:next_number()
            shelf:put(folder, entry, is_same or function() return seen:is_same(entry) end)
        end

        it(("on a %s gives back the newest that is whole, and keeps as many as it is told to"):format(kind), function()
            local store = open()
            local shelf = shelves.open(store, "alice/train")
            for _, text in ipairs { "one", "two", "three", "four" } do put(shelf, text) end
            shelf:prune(2)
            local paths = {}
            for file in store:list() do paths[#paths + 1] = file.path end
            assert.same({ "000003/.complete", "000003/ckpt.pt", "000004/.complete", "000004/ckpt.pt" }, paths)
            local folder = helper.tmp()
            assert.same({ "ckpt.pt", "000004" }, { shelf:fetch_newest(folder) })
            assert.equal("four", helper.read(folder .. "/ckpt.pt"))
            store:remove { "000004/ckpt.pt" }
            local other = helper.tmp()
            assert.same({ "ckpt.pt", "000003" }, { shelf:fetch_newest(other) })
            assert.equal("three", helper.read(other .. "/ckpt.pt"))
            -- A later run goes on with the numbers.
            assert.equal("000005", shelves.open(store, "alice/train"):next_number())
            assert.is_false(shelf:is_wanted("000001", 2))
            assert.is_true(shelf:is_wanted("000001", 4))
        end)

        it(("on a %s has nothing of a checkpoint that changed while it was read"):format(kind), function()
            local store = open()
            local shelf = shelves.open(store, "alice/train")
            local ok, e = pcall(put, shelf, "one", function() return false end)
            assert.is_false(ok)
            assert.equal("Changed", e.code)
            assert.is_nil(store:list { may_be_absent = kind == "folder" or nil }())
            assert.is_nil((shelf:fetch_newest(helper.tmp())))
            put(shelf, "two")
            assert.equal("alice/train", marker.decode_complete(store:read("000002/.complete", 10000)).repository)
        end)
    end
end)
