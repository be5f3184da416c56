local helper = require "spec.helper"
local json = require "dkjson"

describe("the bench", function()
    it("runs every contestant to a right result and writes down what it measured", function()
        local out = helper.tmp() .. "/bench.json"
        local code, table_of, err = helper.run({ helper.NCRUN, "spec/bench/run.lua", "bench=hub-to-bucket",
            "size=16MiB", "shards=1", "rounds=1", "out=" .. out }, { timeout = 120 })
        assert.equal(0, code, err)
        local report = json.decode(helper.read(out))
        local names = {}
        for i, contestant in ipairs(report.benchmarks[1].contestants) do
            names[i] = contestant.name
            assert.is_truthy(table_of:find("| " .. contestant.name:gsub("|", "\\|"), 1, true), contestant.name)
        end
        table.sort(names)
        assert.same({ "curl | aws", "ncrun", "rclone", "rclone, unchecked" }, names)
    end)
end)
