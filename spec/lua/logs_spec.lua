local errors = require "nc.errors"
local logs   = require "nc.logs"
local reader = require "nc.logs.read"
local ships  = require "nc.logs.ship"

local MIB <const> = 1 << 20

describe("a log's object, put together", function()
    -- Sizes around every limit, and what S3 wants of the parts.
    it("is made of parts that S3 takes, without a gap, from what is there and the new end", function()
        for _, held in ipairs { -1, 0, 1, 5 * MIB - 1, 5 * MIB, 1 << 30, (1 << 30) + 1, 7 << 30, 1 << 40 } do
            for _, more in ipairs { 1, MIB, 8 * MIB, 8 * MIB + 1, 100 * MIB, 90 << 30 } do
                local size = math.max(held, 0) + more
                local pieces = ships.plan(held, size)
                local at, wrong = 0, nil
                for i, piece in ipairs(pieces) do
                    local bytes = piece[2] - piece[1] + 1
                    local fits = bytes <= 5 << 30 and (i == #pieces or bytes >= 5 * MIB)
                    local copied = held >= 5 * MIB and at < held
                    if piece[1] ~= at or not fits or copied ~= (piece.copy or false) then wrong = i end
                    at = piece[2] + 1
                end
                assert.is_nil(wrong)
                assert.equal(size, at)
                assert.is_true(#pieces <= 10000)
            end
        end
    end)
end)

describe("a log's key", function()
    it("is logs/<job>/<pod>.log", function()
        assert.equal("logs/train/pod-0.log", logs.key("train", "pod-0"))
    end)

    it("has no folders of its own", function()
        for _, word in ipairs { "", "..", "a/b", "a\nb" } do
            local _, e = pcall(logs.key, word, "pod")
            assert.equal(2, errors.exit_code(e))
        end
    end)
end)

-- A store of one log in memory.
local function store_of(text)
    return { read = function(_, _, first, last) return text:sub(first + 1, last + 1), #text end }
end

describe("the last lines of a log", function()
    it("begin after the newline before them, wherever reads are cut", function()
        local lines = {}
        for i = 1, 3000 do lines[i] = ("%d "):format(i) .. ("x"):rep(i % 97) end
        for _, ending in ipairs { "\n", "", "\n\n" } do
            local text = table.concat(lines, "\n") .. ending
            local whole = {}
            for line in (ending == "" and text .. "\n" or text):gmatch "([^\n]*)\n" do whole[#whole + 1] = line end
            for _, n in ipairs { 1, 2, 500, 1999, #whole - 1 } do
                local at = reader.tail_offset(store_of(text), "key", #text, n)
                assert.equal(whole[#whole - n + 1], text:match("^[^\n]*", at + 1), ("%d lines"):format(n))
            end
            assert.equal(0, reader.tail_offset(store_of(text), "key", #text, #whole))
            assert.equal(0, reader.tail_offset(store_of(text), "key", #text, 99999))
        end
    end)
end)
