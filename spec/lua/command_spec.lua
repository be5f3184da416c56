local command = require "cli.command"
local errors  = require "nc.errors"
local shared  = require "cli.stores"

-- What a command with these words is run with.
local function run(...)
    local seen = {}
    local c = command {
        name = "try", operands = "X", summary = "Try.", text = "Tries.",
        params = { size = { 1, "a number" }, deep = { false, "yes or no" }, only = { nil, "patterns" } },
        flags = { ["-r"] = "deep=yes", ["--deep"] = "deep=yes", ["--size"] = "size", ["--only"] = "only" },
        many = { "only" },
        run = function(p, operands)
            seen.p, seen.operands = p, operands
            return 7
        end,
    }
    seen.code = c.run { ... }
    return seen
end

local function refusal(...)
    local ok, e = pcall(run, ...)
    assert.is_true(not ok and errors.is(e, "Usage"))
    return tostring(e)
end

describe("a command's words", function()
    it("are options as name=value or as flags, and operands", function()
        local seen = run("a", "-r", "size=3", "./x=y", "s3://b/k=v", "-")
        assert.are.same({ "a", "./x=y", "s3://b/k=v", "-" }, seen.operands)
    end)

    it("may carry a flag's value with = or behind it", function()
        assert.are.equal(3, run("--size", "3").p.size)
        assert.are.equal(4, run("--size=4").p.size)
        assert.are.equal(true, run("--deep").p.deep)
        assert.are.equal(false, run("deep=no").p.deep)
        assert.are.equal(7, run().code)
    end)

    it("keep the order of what may come several times", function()
        assert.are.same({ { name = "only", value = "*.a" }, { name = "only", value = "b=c" } },
            run("--only", "*.a", "only=b=c").p.many)
    end)

    it("are all operands after --", function()
        assert.are.same({ "-r", "size=3" }, run("--", "-r", "size=3").operands)
    end)

    it("are refused where they are not known, with those that are", function()
        assert.truthy(refusal("--sise", "3"):find('unknown option "--sise" (did you mean "--size"?)', 1, true))
        assert.truthy(refusal("sise=3"):find('unknown option "sise" (did you mean "size"?)', 1, true))
        assert.truthy(refusal("b=c/d.bin"):find("a file of that name is written ./b=c/d.bin", 1, true))
        assert.truthy(refusal("--size"):find("--size wants a value", 1, true))
        assert.truthy(refusal("--deep=1"):find("--deep=1 takes no value", 1, true))
        assert.truthy(refusal("size=x"):find('"x" is not a whole number', 1, true))
    end)
end)

describe("patterns", function()
    it("decide in their order, the last one that matches", function()
        assert.is_nil(shared.wanted {})
        local wanted = shared.wanted {
            { name = "exclude", value = "*" }, { name = "include", value = "*.txt" },
            { name = "exclude", value = "a/*" },
        }
        assert.is_true(wanted "b/c.txt")
        assert.is_false(wanted "a/c.txt")
        assert.is_false(wanted "b/c.bin")
    end)
end)
