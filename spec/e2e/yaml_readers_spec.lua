-- What nc.yaml writes, as the readers that matter read it: PyYAML (1.1), js-yaml (1.2), kubectl (what
-- the API server is sent), libyaml by way of nc.yaml itself.
local helper = require "spec.helper"
local json = require "dkjson"

-- Faults 46 and 47, and what else readers have been seen to change.
local STRINGS <const> = {
    "on", "On", "ON", "off", "no", "No", "yes", "y", "Y", "n", "N", "true", "True", "false", "FALSE", "~", "null",
    "Null", "NULL", "", "0", "00", "7", "-7", "+7", "0123", "0755", "0o17", "0x1F", "0b101", "1e3", "1E3", "1e+3",
    "12e45", "1.10", "1.", ".5", "1_000", "1,000", "12:30", "1:30:00", "190:20:30.15", "2026-11-29",
    "2026-11-29T10:00:00Z", ".inf", "-.inf", ".nan", "NaN", "Infinity", "=", "<<", "*a", "&a", "!a", "!!int 1", "- x",
    "-", "--", "---", "...", "?", "? x", ":", ": x", "a:", "a: b", "a #b", "#a", "@a", "`a", "%a", "|", "|-", ">", ">-",
    "{", "{a: b}", "[", "[a]", "]", "}", ",", "'", "''", "'a'", '"', '"a"', "\\", "\\n", " ", " a", "a ", "  a  b  ",
    "64Gi", "500m", "8Gi", "1G", "0.0.0.0", "1.2.3", "v1", "a/b:c", "https://a.b:80/c?d=e&f=g#h", "$(VAR)", "$$",
    "${A}",
    "ü", "€", "日本", "😀", "\u{a0}", "\u{85}", "\u{2028}", "\u{feff}", "\u{200b}", "\t", "a\tb", "\r", "\27", "\u{7f}",
    ("x"):rep(5000), ("word "):rep(400) .. "end", ("k"):rep(127),
}

local TEXTS <const> = {
    "a\nb", "a\nb\n", "a\nb\n\n", "a\nb\n\n\n\n", "\n", "\n\n", "\na", "\n\na\n", " a\nb\n", "  a\n b\n", "\ta\nb\n",
    "a\n  b\n\tc\n", "a \nb\n", "a\nb ", "a\n \nb\n", "a\n\n \n", "a\tb\nc\n", "a\r\nb\r\n", "a\rb", "a\n---\nb\n",
    "---\n",
    "...\n---\n", "a\n...\nb", "# a\nb\n", "a\n# b\n", "%YAML 1.1\n", "a: b\nc: d\n", "- a\n- b\n", "| a\nb\n",
    "ü\nß\n", "😀\n",
    "a\u{2028}b\nc\n", "#!/bin/sh\nset -eu\nif [ \"$1\" = 'x' ]; then\n    echo \"a\\nb\" # c\n\nfi\nexec \"$@\"\n",
    "local s = [[\n]]\nreturn { a = 1 }\n", ("a line of text\n"):rep(500), ("long "):rep(300) .. "\nb\n",
}

-- { value = { NAME = text } } both ways, and keys; NUL only where a reader has no C strings.
local function samples()
    local all = {}
    for _, list in ipairs { STRINGS, TEXTS } do
        for _, s in ipairs(list) do all[#all + 1] = s end
    end
    return all
end

-- The ConfigMap that a script of ours writes: each sample as a value, below keys that need care themselves.
local WRITE <const> = [[
local yaml, json = require "nc.yaml", require "nc.json"
local f <close> = io.open((...):match "^samples=(.*)")
local samples = json.decode(f:read "a")
local data, keys = {}, {}
for i, s in ipairs(samples) do
    data[("k%03d"):format(i)] = s
    if #s < 200 and s ~= "" then keys[s] = ("v%03d"):format(i) end
end
io.write(yaml.encode {
    apiVersion = "v1", kind = "ConfigMap", metadata = { name = "samples", annotations = keys }, data = data,
    list = samples,
})
]]

local READERS <const> = {
    PyYAML = { "/usr/bin/python3", "-c", [[
import json, sys, yaml
json.dump(yaml.safe_load(open(sys.argv[1], newline='', encoding='utf-8')), sys.stdout)]] },
    ["js-yaml"] = { "node", "-e", [[
const fs = require("fs");
const yaml = require(process.env.JS_YAML);
process.stdout.write(JSON.stringify(yaml.load(fs.readFileSync(process.argv[1], "utf8"))));]] },
    kubectl = { "kubectl", "annotate", "--local", "-o", "json", "read=yes", "-f" },
    ["nc.yaml"] = { "sh", "-c", [[
"$NCRUN" "$READ" "$1"]], "sh" },
}

local READ <const> = [[
local yaml, json = require "nc.yaml", require "nc.json"
local f <close> = io.open((...), "rb")
io.write(json.encode(yaml.decode(f:read "a")))
]]

describe("what nc.yaml writes", function()
    local dir, all
    setup(function()
        dir, all = helper.tmp(), samples()
        helper.write(dir .. "/samples.json", json.encode(all))
        helper.write(dir .. "/write.lua", WRITE)
        helper.write(dir .. "/read.lua", READ)
        local code, out, err = helper.ncrun { dir .. "/write.lua", "samples=" .. dir .. "/samples.json" }
        assert.equal(0, code, err)
        helper.write(dir .. "/all.yaml", out)
        helper.write(dir .. "/cm.yaml", (out:gsub("\nlist:\n.-(\nmetadata:)", "%1")))
    end)

    for name, command in pairs(READERS) do
        it("comes back from " .. name .. " byte for byte", function()
            local argv = { table.unpack(command) }
            argv[#argv + 1] = dir .. (name == "kubectl" and "/cm.yaml" or "/all.yaml")
            local code, out, err = helper.run(argv, { env = {
                NCRUN = helper.NCRUN, READ = dir .. "/read.lua", JS_YAML = "/usr/share/nodejs/js-yaml",
            } })
            assert.equal(0, code, err)
            local value = assert(json.decode(out))
            assert.is_true(#all > 150)
            for i, s in ipairs(all) do
                assert.equal(s, value.data[("k%03d"):format(i)], ("sample %d: %q"):format(i, s))
                if name ~= "kubectl" then assert.equal(s, value.list[i], ("in the list: %q"):format(s)) end
                if #s < 200 and s ~= "" then
                    assert.equal(("v%03d"):format(i), value.metadata.annotations[s], ("as a key: %q"):format(s))
                end
            end
        end)
    end
end)
