local units = require "nc.units"

describe("units", function()
    it("reads durations", function()
        for text, seconds in pairs {
            ["250ms"] = 0.25, ["30s"] = 30, ["5m"] = 300, ["1.5h"] = 5400, ["2d"] = 172800, ["7"] = 7, [" 1 s "] = 1,
        } do
            assert.equal(seconds, units.duration(text), text)
        end
        assert.equal(2.5, units.duration(2.5))
    end)

    it("reads sizes, binary and decimal", function()
        for text, bytes in pairs {
            ["64MiB"] = 67108864, ["10MB"] = 10000000, ["2TiB"] = 2199023255552, ["0.5KiB"] = 512, ["8M"] = 8388608,
            ["12"] = 12, ["12B"] = 12, ["1gib"] = 1073741824,
        } do
            assert.equal(bytes, units.size(text), text)
            assert.equal("integer", math.type(units.size(text)))
        end
        assert.equal(5, units.size(5))
    end)

    it("refuses nonsense at the caller's line, with what is valid", function()
        for _, bad in ipairs { "", "s", "10 parsecs", "-1s", "1e3s", "1,5h", {}, -1, 0 / 0, 1 / 0, true } do
            local ok, e = pcall(function() units.duration(bad) end)
            assert.is_false(ok, tostring(bad))
            assert.matches('^spec/lua/units_spec.lua:%d+: .* is not a duration; write "250ms"', e)
        end
        for _, bad in ipairs { "", "MiB", "10 MiBs", "-1", "9999999PiB", -5 } do
            local ok, e = pcall(function() units.size(bad) end)
            assert.is_false(ok, tostring(bad))
            assert.matches('^spec/lua/units_spec.lua:%d+: .* is not a size; write "64MiB"', e)
        end
    end)

    it("writes sizes, rates and durations for people", function()
        assert.equal("0 B", units.format_size(0))
        assert.equal("1023 B", units.format_size(1023))
        assert.equal("1.0 KiB", units.format_size(1024))
        assert.equal("1.0 MiB", units.format_size(1024 * 1024 - 1))
        assert.equal("527.3 GiB", units.format_size(566142738432))
        assert.equal("1.5 GiB/s", units.format_rate(1.5 * 2 ^ 30))
        assert.equal("0.4s", units.format_duration(0.42))
        assert.equal("10s", units.format_duration(9.96))
        assert.equal("1m 00s", units.format_duration(59.7))
        assert.equal("14m 03s", units.format_duration(843))
        assert.equal("2h 05m", units.format_duration(7500))
        assert.equal("3d 04h", units.format_duration(273600))
    end)
end)
