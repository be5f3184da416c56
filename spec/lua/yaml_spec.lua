local errors = require "nc.errors"
local json   = require "nc.json"
local yaml   = require "nc.yaml"

local function refused(text, what)
    local ok, e = pcall(yaml.decode, text)
    assert.is_false(ok, text)
    assert.is_true(errors.is(e, "BadYaml"), tostring(e))
    assert.truthy(tostring(e):find(what, 1, true), tostring(e))
end

describe("nc.yaml", function()
    it("writes people's key order first, the others sorted, lists below their key", function()
        local value = { spec = { b = 1, a = { { name = "x", image = "y:1" } } }, kind = "Job", apiVersion = "batch/v1" }
        assert.equal([[
apiVersion: batch/v1
kind: Job
spec:
  a:
  - name: x
    image: y:1
  b: 1
]], yaml.encode(value, { order = { "apiVersion", "kind", "name" } }))
    end)

    it("quotes what a reader could take for something else, as a value and as a key", function()
        for _, s in ipairs {
            "on", "On", "no", "y", "Y", "yes", "off", "true", "False", "null", "NULL", "~", "", "0", "8", "-1", "+1",
            "0123", "0o17", "0x1F", "0b11", "1e3", "1E3", "12e45", "1.10", ".5", "5.", "1_000", "12:30", "190:20:30",
            "2026-11-29", ".inf", "-.Inf", ".NaN", "nan", "inf", "=", "<<", "*a", "&a", "!a", "- x", "-", "?", "? x",
            ":",
            "a:", "a: b", "a #b", "#a", "@a", "`a", "%a", "|", ">", "{a", "[a", "]", "}", ",", "'a'", '"a"', " a", "a ",
            "a  b", "---", "...", "500m", "1Gb", "01Gi",
        } do
            assert.equal('"' .. s:gsub('"', '\\"') .. '"\n', yaml.encode(s), s)
            assert.equal(('"%s": 1\n'):format((s:gsub('"', '\\"'))), yaml.encode { [s] = 1 }, s)
            assert.equal(s, yaml.decode(yaml.encode(s)))
            assert.equal(1, yaml.decode(yaml.encode { [s] = 1 })[s])
        end
    end)

    it("leaves words, paths, images, addresses and binary quantities as they are", function()
        for _, s in ipairs {
            "Job", "batch/v1", "/mnt/shared", "a b c", "https://a.b/c?d=e", "lmsysorg/sglang:v1.2-rc", "64Gi",
            "name=value",
            "node-role.kubernetes.io/cpu", "_x", "yesterday", "nullable", "e3",
        } do
            local quoted = s:find "?" and '"' .. s .. '"' or s
            assert.equal(quoted .. "\n", yaml.encode(s))
        end
    end)

    it("writes lines of text as a literal block, byte for byte", function()
        for _, s in ipairs {
            "a\nb", "a\nb\n", "a\nb\n\n", "a\n\n\nb\n", "#!/bin/sh\n  if x; then\n\n    y\n  fi\n",
            "a\n---\n...\n# c\n- d: e\n",
            "a\n b", "a: b\nc\n", "ü\n€\n", "a\n\"'\\\n", "x\n%a\n@b\n`c\n",
        } do
            local text = yaml.encode { script = s, list = { s } }
            assert.truthy(text:find "script: |" and text:find "\n%- |", text)
            local back = yaml.decode(text)
            assert.equal(s, back.script)
            assert.equal(s, back.list[1])
        end
    end)

    it("quotes text that a block would change", function()
        for _, s in ipairs {
            "\n", "\n\n", "\na", " a\nb", "a \nb", "a\n \nb", "a\nb ", "a\tb\nc", "\ta\nb", "a\r\nb\r\n", "a\0b\n",
            "a\27[0m\n",
            "a\u{85}b\n", "a\u{2028}\n", "\u{feff}a\n", "a\u{7f}\n", "a\n\u{fffe}", "a\n😀\n",
        } do
            local text = yaml.encode { s = s }
            assert.truthy(text:find '^s: "', text)
            assert.equal(s, yaml.decode(text).s)
        end
    end)

    it("never folds a line", function()
        local long = ("word "):rep(100) .. "end"
        assert.equal(long .. "\n", yaml.encode(long))
        assert.equal('"' .. long .. '!"\n', yaml.encode(long .. "!"))
    end)

    it("keeps empty lists, empty maps, null, and numbers whole", function()
        local text = 'a: []\nb: {}\nc: null\nd: 8\ne: 0.1\nf: 1.0e+30\ng: -1.0e-07\nh: 9223372036854775807\n'
        local value = yaml.decode(text)
        assert.equal(text, yaml.encode(value))
        assert.equal(yaml.null, value.c)
        assert.equal("d: 8\n", yaml.encode { d = 8 / 1 })
        assert.equal("[]\n", yaml.encode(json.decode "[]"))
        for _, x in ipairs { 0.1, 1 / 3, 2 ^ 0.5, 1e300, 5e-324, -1.5, 1e15 + 0.5 } do
            assert.equal(x, yaml.decode(yaml.encode(x)))
        end
        assert.equal(math.huge, yaml.decode(yaml.encode(math.huge)))
    end)

    it("refuses to write what is neither list nor map, with the path", function()
        for value, what in pairs {
            [{ spec = { args = {} } }] = "spec.args: an empty table is neither",
            [{ a = { 1, nil, 3 } }] = "a: a table that is neither",
            [{ a = { { 1, x = 2 } } }] = "a[0]: a table that is neither",
            [{ a = print }] = "a: a function",
            [{ a = "\xff" }] = "not UTF-8",
        } do
            local ok, e = pcall(function() return (yaml.encode(value)) end)
            assert.is_false(ok)
            assert.truthy(tostring(e):find(what, 1, true), tostring(e))
            assert.truthy(tostring(e):find "yaml_spec.lua", tostring(e))
        end
        local loop = {}
        loop.a = loop
        assert.is_false((pcall(yaml.encode, loop)))
    end)

    it("reads what 1.1 and 1.2 agree on, and leaves the rest strings", function()
        local v = yaml.decode [[
- [1, -2, +3, 0, 1.5, 2.5e+3, .inf, true, False, ~, null]
- [yes, No, on, y, 0123, 0o17, 0x1F, 1e3, 1_000, 12:30, 2026-11-29]
- !!str 12
- "8"
- '8'
]]
        assert.same({ 1, -2, 3, 0, 1.5, 2500.0, math.huge, true, false, yaml.null, yaml.null }, v[1])
        for _, s in ipairs(v[2]) do assert.equal("string", type(s)) end
        assert.same({ "12", "8", "8" }, { v[3], v[4], v[5] })
    end)

    it("follows anchors, but not into themselves", function()
        local v = yaml.decode "base: &b {image: x}\ncopy: *b\nword: &w on\nagain: *w\n"
        assert.equal("x", v.copy.image)
        assert.equal("on", v.again)
        refused("a: &a [*a]", "no anchor &a")
        refused("a: *b", "no anchor &b")
    end)

    it("refuses what it can't tell, with the line", function()
        refused("a: 1\nb: 2\na: 3\n", 'line 3: the key "a" comes twice')
        refused("a: 1\n<<: {b: 1}\n", "line 2: merge keys")
        refused("? [a]\n: b\n", "line 1: a key that is no string")
        refused("a: !mine b\n", "line 1: no value for the tag !mine")
        refused("a: !!int x\n", "no value for the tag")
        refused("a: b: c\n", "line 1")
        refused("a:\n\t- b\n", "line 2")
        refused("a: \"\xff\"\n", "line 1")
        refused("a: 1\n---\nb: 2\n", "2 documents")
        refused(("["):rep(65) .. ("]"):rep(65), "nested too deep")
    end)

    it("reads documents one by one, and none at all", function()
        assert.same({ { a = 1 }, yaml.null, "x" }, yaml.decode_all "---\na: 1\n---\n---\nx\n...\n")
        assert.same({}, yaml.decode_all "# nothing\n")
        assert.equal(yaml.null, yaml.decode "")
        assert.equal("a: 1\n---\nb: |+\n  x\n\n...\n---\n- 2\n", yaml.encode_all { { a = 1 }, { b = "x\n\n" }, { 2 } })
        assert.same({ { a = 1 }, { b = "x\n\n" }, { 2 } },
            yaml.decode_all(yaml.encode_all { { a = 1 }, { b = "x\n\n" }, { 2 } }))
    end)
end)
