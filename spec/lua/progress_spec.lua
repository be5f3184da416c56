local helper   = require "spec.helper"
local progress = require "nc.progress"
local task     = require "nc.task"

local GIB <const> = 1 << 30

local function stats(change)
    local s = {
        bytes_total = 4 * GIB, bytes_done = GIB, bytes_in = 0, bytes_out = 0,
        files_total = 9, files_done = 3, retries = 0,
    }
    for name, value in pairs(change or {}) do s[name] = value end
    return s
end

describe("progress.bar", function()
    it("shows share, bytes, files, rate and the time left", function()
        assert.equal("stage [#####...............]  25%  1.0 GiB of 4.0 GiB  3/9 files  512.0 MiB/s  6.0s left",
            progress.bar("stage", stats(), GIB / 2, 200))
    end)

    it("leaves the last column free, whatever the width", function()
        for columns = 0, 120 do
            assert.is_true(#progress.bar("stage", stats(), 1e6, columns) <= math.max(0, columns - 1))
        end
    end)

    it("is full at the end and where there is nothing to do", function()
        local bar = progress.bar("x", stats { bytes_done = 4 * GIB }, 1, 200)
        assert.truthy(bar:find("[" .. ("#"):rep(20) .. "] 100%", 1, true), bar)
        assert.truthy(progress.bar("x", stats { bytes_total = 0, bytes_done = 0 }, 0, 200):find("100%", 1, true))
    end)

    it("never shows more than all, though more went over the wire", function()
        local bar = progress.bar("x", stats { bytes_out = 9 * GIB }, 1, 200)
        assert.truthy(bar:find("100%  4.0 GiB of 4.0 GiB", 1, true), bar)
    end)

    it("counts bytes that are on their way out", function()
        assert.truthy(progress.bar("x", stats { bytes_out = 2 * GIB }, 1, 200):find(" 50%  2.0 GiB", 1, true))
    end)

    it("knows no time left while nothing moves", function()
        assert.truthy(progress.bar("x", stats(), 0, 200):find("- left", 1, true))
    end)
end)

describe("progress.line", function()
    it("is a sentence for a log", function()
        assert.equal("stage: 1.0 GiB of 4.0 GiB, 3 of 9 files, 1.0 GiB/s, 3.0s left",
            progress.line("stage", stats(), GIB))
    end)

    it("tells of retries once there are any", function()
        assert.truthy(progress.line("stage", stats { retries = 2 }, GIB):find("3.0s left, 2 retries", 1, true))
    end)
end)

describe("progress.show", function()
    it("asks for numbers only until it is closed", function()
        local asked = 0
        do
            local _ <close> = progress.show("x", function()
                asked = asked + 1
                return stats()
            end)
        end
        local then_asked = asked
        task.sleep "0.3s"
        assert.equal(then_asked, asked)
    end)

    it("draws a bar on a terminal and takes it away at the end", function()
        local script = helper.tmp() .. "/show.lua"
        helper.write(script, [[
            local progress, recipe, task = require "nc.progress", require "nc.recipe", require "nc.task"
            return recipe { summary = "x", params = {}, run = function()
                local _ <close> = progress.show("stage", function()
                    return {
                        bytes_total = 4, bytes_done = 1, bytes_out = 0, files_total = 1, files_done = 0, retries = 0,
                    }
                end)
                task.sleep "0.5s"
            end }]])
        local code, out = helper.sh(("script -qec 'stty columns 100; %s %s' /dev/null"):format(helper.NCRUN, script))
        assert.equal(0, code, out)
        assert.truthy(out:find("stage [#####...............]  25%", 1, true), out)
        assert.truthy(out:find "\r\27%[K%s*$", out)
    end)
end)
