local errors = require "nc.errors"
local json   = require "nc.json"

describe("nc.json", function()
    it("reads every kind of value", function()
        local v = json.decode '{"a":[1,-2.5,"x\\u00e9",true,false,null,{}],"big":9007199254740993}'
        assert.equal(1, v.a[1])
        assert.equal("integer", math.type(v.a[1]))
        assert.equal(-2.5, v.a[2])
        assert.equal("xé", v.a[3])
        assert.is_true(v.a[4])
        assert.is_false(v.a[5])
        assert.equal(json.null, v.a[6])
        assert.is_nil(next(v.a[7]))
        assert.equal(9007199254740993, v.big)
    end)

    it("reads a value that is no container", function()
        assert.equal("x", json.decode ' "x" ')
        assert.is_false(json.decode "false")
        assert.equal(json.null, json.decode "null")
    end)

    it("refuses what is not JSON, with an error object", function()
        for _, text in ipairs {
            "", "{", "[1,]", "{'a':1}", '{"a":1}x', "nul", "01", '"\xff"', '"\\u0000"', "1e999",
            "123456789012345678901234567890",
        } do
            local ok, e = pcall(json.decode, text)
            assert.is_false(ok, text)
            assert.is_true(errors.is(e, "BadJson"), text)
        end
    end)

    it("refuses a key that comes twice", function()
        local ok, e = pcall(json.decode, '{"size":1,"size":2}')
        assert.is_false(ok)
        assert.is_true(errors.is(e, "BadJson"))
    end)

    it("bounds the depth", function()
        local deep = ("["):rep(64) .. ("]"):rep(64)
        assert.is_table(json.decode(deep))
        assert.is_false((pcall(json.decode, "[" .. deep .. "]")))
        assert.is_false((pcall(json.decode, ("["):rep(100000))))
        assert.is_false((pcall(json.decode, "[[1]]", { max_depth = 1 })))
    end)

    it("writes keys sorted, on one line or indented", function()
        assert.equal('{"a":1,"b":[true,"x"],"c":{"d":1.5}}',
            json.encode { c = { d = 1.5 }, b = { true, "x" }, a = 1 })
        assert.equal('{\n  "a": [\n    1\n  ]\n}', json.encode({ a = { 1 } }, { indent = 2 }))
    end)

    it("keeps empty lists, null and whole numbers through a round trip", function()
        local text = '{"empty":[],"map":{},"n":null,"size":1561000000000,"x":0.1}'
        assert.equal(text, json.encode(json.decode(text)))
        assert.equal("[]", json.encode(json.array {}))
        assert.equal("[]", json.encode(json.array()))
        assert.equal("{}", json.encode {})
        assert.equal("3", json.encode(3))
        assert.equal("3.0", json.encode(3.0))
        assert.equal('"a\\"\\n"', json.encode 'a"\n')
    end)

    it("refuses what JSON can't hold, at the caller's line", function()
        local cycle = {}
        cycle.self = cycle
        for what, value in pairs {
            ["a function"] = { f = print },
            ["a hole"] = { 1, nil, 3 },
            ["a list with words"] = { 1, a = 2 },
            ["a number as key"] = { [7] = 1 },
            ["a float as key"] = { [1.5] = 1 },
            ["nan"] = { 0 / 0 },
            ["infinity"] = { math.huge },
            ["bytes that are not UTF-8"] = { "\xff" },
            ["a key that is not UTF-8"] = { ["\xff"] = 1 },
            ["a table in itself"] = cycle,
            ["a marked list with words"] = json.array { a = 1 },
        } do
            local ok, e = pcall(json.encode, value)
            assert.is_false(ok, what)
            assert.is_string(e, what)
        end
        local ok, e = pcall(function() json.encode(print) end)
        assert.is_false(ok)
        assert.matches("json_spec.lua:%d+: can't write JSON: the value holds function", e)
    end)

    it("lists the valid options", function()
        local ok, e = pcall(json.encode, {}, { ident = 2 })
        assert.is_false(ok)
        assert.matches("indent", e)
    end)
end)
