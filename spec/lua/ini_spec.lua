local errors = require "nc.errors"
local ini    = require "nc.ini"

describe("nc.ini", function()
    it("reads sections and settings", function()
        assert.same({
            default = { region = "us-east-1", output = "json" },
            ["profile my work"] = { region = "eu-west-1" },
            ["services x"] = {},
        }, ini.parse([[
# a comment
[default]
region = us-east-1
; another
Output=json

[ profile  "my work" ]
region: eu-west-1
[services x]
]], "config"))
    end)

    it("reads settings within settings", function()
        local parsed = ini.parse("[profile a]\ns3 =\n  addressing_style = path\n\n  # why\n"
            .. "  max_concurrent_requests=20\nregion = x\n", "config")
        assert.same({ addressing_style = "path", max_concurrent_requests = "20" }, parsed["profile a"].s3)
        assert.equal("x", parsed["profile a"].region)
    end)

    it("joins the lines of a long value", function()
        local parsed = ini.parse("[a]\nx = one\n  two\n\tthree\ny = z\n", "config")
        assert.same({ x = "one\ntwo\nthree", y = "z" }, parsed.a)
    end)

    it("keeps what a value is made of", function()
        local parsed = ini.parse("\xEF\xBB\xBF[a]\r\nkey = a=b:c # d \r\nempty =\r\n", "config")
        assert.same({ key = "a=b:c # d", empty = "" }, parsed.a)
    end)

    it("takes the last of two, and a section that comes twice as one", function()
        assert.same({ a = { x = "2", y = "3" }, b = {} }, ini.parse("[a]\nx=1\n[b]\n[a]\nx=2\ny=3", "config"))
    end)

    it("names the line that it can't read, and never shows it", function()
        for text, line in pairs {
            ["secret\n"] = 1,
            ["[a]\nx = 1\nsecret\n"] = 3,
            ["[a]\n\n= secret\n"] = 3,
            ["[]\n"] = 1,
            ["[a]\ns3 =\n  secret\n"] = 3,
        } do
            local ok, e = pcall(ini.parse, text, "the-file")
            assert.is_false(ok)
            assert.is_true(errors.is(e, "BadConfig"))
            assert.matches("the%-file, line " .. line .. ": ", e.message)
            assert.is_nil(e.message:find "secret")
        end
    end)
end)
