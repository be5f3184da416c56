local errors = require "nc.errors"
local recipe = require "nc.recipe"

local function declare(extra)
    local r = {
        summary = "Copy things.",
        params = {
            model    = { nil, "what to copy", required = true, env = "MODEL" },
            to       = { "bucket", "where to", choices = { "bucket", "volume" } },
            nodes    = { 1, "how many nodes", choices = { 1, 2 } },
            parallel = { 8, "at once" },
            every    = { "60s", "how often", type = "duration" },
            part     = { "16MiB", "part size", type = "size", env = "PART_SIZE" },
            verify   = { true, "check it" },
            folder   = { nil, "a folder", type = "path" },
            note     = { "none", "any text" },
        },
        run = function() end,
    }
    for k, v in pairs(extra or {}) do r[k] = v end
    return recipe(r)
end

local function no_env() end

local function parse(args, env, extra)
    return declare(extra):parse(args, env and function(name) return env[name] end or no_env)
end

-- What a refusal says.
local function refusal(args, env, extra)
    local ok, e = pcall(parse, args, env, extra)
    assert.is_false(ok)
    assert.is_true(errors.is(e, "Usage"), tostring(e))
    return tostring(e)
end

describe("a recipe's parameters", function()
    it("have their defaults, parsed", function()
        assert.same({
            model = "m", to = "bucket", nodes = 1, parallel = 8, every = 60.0, part = 16777216, verify = true,
            note = "none", log = "text",
        }, (parse { "model=m" }))
    end)

    it("are read by their types", function()
        local p = parse {
            "model=a=b", "to=volume", "nodes=2", "parallel=0", "every=1.5h", "part=64MB", "verify=no", "folder=~/x",
            "note=", "log=json",
        }
        assert.same({
            model = "a=b", to = "volume", nodes = 2, parallel = 0, every = 5400.0, part = 64000000, verify = false,
            folder = os.getenv "HOME" .. "/x", note = "", log = "json",
        }, p)
    end)

    it("come from the command line, then the environment, then the default", function()
        local env = { MODEL = "env", PART_SIZE = "8MiB" }
        assert.equal("env", (parse({}, env)).model)
        assert.equal(8388608, (parse({}, env)).part)
        assert.equal("arg", (parse({ "model=arg" }, env)).model)
        assert.equal(16777216, (parse({}, { MODEL = "m", PART_SIZE = "" })).part)
    end)

    it("are refused in one sentence that lists what is valid", function()
        local names = "every, folder, log, model, nodes, note, parallel, part, to, verify"
        assert.equal('unknown parameter "modle" (did you mean "model"?); valid: ' .. names, refusal { "modle=x" })
        assert.equal('"model" is not name=value; names: ' .. names, refusal { "model" })
        assert.equal('to: "disk" is not one of bucket, volume', refusal { "model=m", "to=disk" })
        assert.equal('nodes: "3" is not one of 1, 2', refusal { "model=m", "nodes=3" })
        assert.equal('parallel: "-1" is not a whole number, 0 or more', refusal { "model=m", "parallel=-1" })
        assert.equal('every: "often" is not a time such as "90s", "5m" or "1.5h"', refusal { "model=m", "every=often" })
        assert.equal('PART_SIZE: "big" is not a size such as "64MiB", "10MB" or "2TiB"',
            refusal({ "model=m" }, { PART_SIZE = "big" }))
        assert.equal('verify: "perhaps" is not yes or no', refusal { "model=m", "verify=perhaps" })
        assert.equal('folder: "" is not a path', refusal { "model=m", "folder=" })
        assert.equal("needs model=...: what to copy (or set MODEL)", refusal {})
    end)

    it("end at --, where the command begins", function()
        local extra = { command = { "echo", "default" } }
        local _, command = parse({ "model=m", "--", "python", "a=b" }, nil, extra)
        assert.same({ "python", "a=b" }, command)
        _, command = parse({ "model=m" }, nil, extra)
        assert.same({ "echo", "default" }, command)
        assert.equal("-- needs a command after it", refusal({ "model=m", "--" }, nil, extra))
        assert.equal("this recipe runs no command of yours (after --)", refusal { "model=m", "--", "ls" })
    end)

    it("are described one a line", function()
        assert.same({
            "  every=DURATION    how often (default 60s)",
            "  folder=PATH       a folder",
            "  log=text|json     lines for people or for machines (default text; or NCRUN_LOG)",
            "  model=STRING      what to copy (required; or MODEL)",
            "  nodes=1|2         how many nodes (default 1)",
            "  note=STRING       any text (default none)",
            "  parallel=COUNT    at once (default 8)",
            "  part=SIZE         part size (default 16MiB; or PART_SIZE)",
            "  to=bucket|volume  where to (default bucket)",
            "  verify=BOOL       check it (default yes)",
        }, declare():describe())
    end)
end)

describe("a recipe's declaration", function()
    it("is refused at its own line", function()
        for _, wrong in ipairs {
            { { sumary = "x" }, 'unknown field of a recipe "sumary" %(did you mean "summary"%?%)' },
            { { run = 5 }, "needs run = function" },
            { { params = { a = { 1 } } }, 'parameter a: write { default, "help" }' },
            { { params = { a = { 1, "h", tipe = "size" } } }, 'parameter a: unknown field "tipe"' },
            { { params = { a = { 1, "h", type = "sise" } } }, 'parameter a: unknown type "sise"' },
            { { params = { a = { "x", "h", type = "size" } } }, 'parameter a: the default "x" is not a size' },
            { { params = { a = { 3, "h", choices = { 1, 2 } } } }, 'parameter a: the default "3" is not one of 1, 2' },
            { { params = { ["a-b"] = { 3, "h" } } }, "parameter a%-b: a name has" },
        } do
            local _, e = pcall(function() declare(wrong[1]) end)
            assert.matches("^spec/lua/recipe_spec.lua:%d+: .*" .. wrong[2], e)
        end
    end)
end)

describe("a recipe's run", function()
    it("decides the exit code", function()
        local function code_of(result)
            return declare { run = function() return result end }:main { "model=m" }
        end
        assert.equal(0, code_of(nil))
        assert.equal(0, code_of(true))
        assert.equal(7, code_of(7))
        assert.equal(5, code_of { code = 5 })
        assert.equal(137, code_of { signal = 9 })
        assert.has_error(function() code_of "done" end)
        assert.has_error(function() code_of(256) end)
    end)
end)
