local helper = require "spec.helper"

local SHARDS <const> = 3
local OPTIONS <const> = { size = "4MiB", shards = SHARDS }

local function sums(dir)
    return select(2, helper.sh("find . -type f | sort | xargs sha256sum", {}, { cwd = dir }))
end

local function shard_name(i)
    return ("model-%05d-of-%05d.safetensors"):format(i, SHARDS)
end

-- The tensors of a shard by name, from its own header, and how many bytes follow it.
local function header(path)
    local bytes = helper.read(path)
    local json, at = string.unpack("<s8", bytes)
    local tensors = {}
    for name, rows, columns, first, last in json:gmatch
        '"([^"]+)":{"dtype":"F16","shape":%[(%d+),(%d+)%],"data_offsets":%[(%d+),(%d+)%]}' do
        tensors[name] = { bytes = rows * columns * 2, first = tonumber(first), last = tonumber(last) }
    end
    return tensors, #bytes - at + 1, at - 1
end

describe("the generated checkpoint", function()
    local dir = helper.checkpoint(helper.tmp(), OPTIONS)

    it("has shards whose tensors lie end to end and fill them", function()
        for i = 1, SHARDS do
            local tensors, size, start = header(dir .. "/" .. shard_name(i))
            assert.are.equal(0, start % 8)
            local ends, total = {}, 0
            for _, t in pairs(tensors) do
                assert.are.equal(t.bytes, t.last - t.first)
                ends[t.last], total = true, total + t.bytes
            end
            for _, t in pairs(tensors) do
                assert.is_true(t.first == 0 or ends[t.first])
            end
            assert.are.equal(size, total)
        end
    end)

    it("has an index that agrees with the shards", function()
        local index = helper.read(dir .. "/model.safetensors.index.json")
        local where, count, total = {}, 0, 0
        for name, file in index:gmatch '"([^"]+)": "([^"]+)"' do
            where[name], count = file, count + 1
        end
        for i = 1, SHARDS do
            for name, t in pairs((header(dir .. "/" .. shard_name(i)))) do
                assert.are.equal(shard_name(i), where[name])
                count, total = count - 1, total + t.bytes
            end
        end
        assert.are.equal(0, count)
        assert.are.equal(total, tonumber(index:match '"total_size": (%d+)'))
        assert.are.equal(4 << 20, total)
    end)

    it("is the same for the same seed, and another for another", function()
        local same = helper.checkpoint(helper.tmp(), OPTIONS)
        local other = helper.checkpoint(helper.tmp(), { size = "4MiB", shards = SHARDS, seed = 2 })
        assert.are.equal(sums(dir), sums(same))
        assert.are_not.equal(sums(dir), sums(other))
    end)

    it("does not repeat itself from shard to shard", function()
        local _, _, first = header(dir .. "/" .. shard_name(2))
        local a = helper.read(dir .. "/" .. shard_name(2)):sub(first + 1, first + 4096)
        for i = 1, SHARDS do
            local found = helper.read(dir .. "/" .. shard_name(i)):find(a, 1, true)
            assert.are.equal(i == 2, found ~= nil)
        end
    end)

    it("refuses a folder that holds something, and nonsense", function()
        assert.are.equal(2, (helper.run { "spec/fixtures/make-checkpoint", dir }))
        for _, word in ipairs { "size=much", "shards=0", "seed=x", "shard=1", "size=1KiB" } do
            assert.are.equal(2, (helper.run { "spec/fixtures/make-checkpoint", helper.tmp(), word }))
        end
    end)
end)

describe("the acoustic model", function()
    it("is laid out as a repository of eleven files, 37 MB", function()
        local hub = helper.acoustic()
        local _, count = helper.sh("find . -type f | wc -l", {}, { cwd = hub .. "/cmusphinx/en-us-acoustic" })
        assert.are.equal(11, tonumber(count))
        local _, size = helper.sh("cat $(find . -type f) | wc -c", {}, { cwd = hub })
        assert.are.equal(37, tonumber(size) // 1000000)
    end)
end)
