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
        assert.is_truthy(table_of:find("| hub-to-bucket, wall: ncrun / rclone | 0.60 |", 1, true))
        table.sort(names)
        assert.same({ "curl | aws", "ncrun", "rclone", "rclone, unchecked" }, names)
    end)

    it("runs one over https too", function()
        local dir = helper.tmp()
        local code, _, err = helper.run({ helper.NCRUN, "spec/bench/run.lua", "bench=up-https", "size=1MiB",
            "shards=2", "rounds=1", "disk=" .. dir, "out=" .. dir .. "/bench.json" }, { timeout = 180 })
        assert.equal(0, code, err)
        local report = json.decode(helper.read(dir .. "/bench.json"))
        assert.equal(1, #report.benchmarks)
        assert.equal("up-https", report.benchmarks[1].name)
        assert.equal(4, #report.benchmarks[1].contestants)
    end)
end)
