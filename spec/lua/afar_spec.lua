-- Looks at folders that may not answer. A pipe that nobody writes to holds whoever opens it, as a mount without a
-- server does.
local afar   = require "nc.afar"
local errors = require "nc.errors"
local helper = require "spec.helper"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

describe("a look from afar", function()
    local folder, pipe

    before_each(function()
        folder = helper.tmp()
        pipe = folder .. "/pipe"
        helper.sh("mkfifo " .. pipe)
        helper.write(folder .. "/a", "hello")
        helper.write(folder .. "/below/b", "")
    end)

    it("reads a file, and knows when it was written", function()
        local text, mtime = afar.read(folder .. "/a")
        assert.equal("hello", text)
        assert.equal(sys.stat(folder .. "/a").mtime, mtime)
        assert.equal("", (afar.read(folder .. "/below/b")))
        assert.is_nil(afar.read(folder .. "/c"))
    end)

    it("lists plain files, at any depth", function()
        local list, sizes = afar.list(folder), {}
        for i = 1, #list, 3 do sizes[list[i]] = list[i + 1] end
        assert.same({ a = 5, ["below/b"] = 0 }, sizes)
        assert.is_nil(afar.list(folder .. "/c"))
    end)

    it("knows the folder's clock, and leaves nothing there", function()
        assert.is_true(math.abs(afar.clock(folder .. "/below") - os.time()) < 60)
        assert.equal(3, #afar.list(folder .. "/below"))
    end)

    it("raises why it can't", function()
        local ok, e = pcall(afar.read, folder .. "/below")
        assert.is_false(ok)
        assert.equal("EISDIR", e.code)
        assert.truthy(tostring(e):find("read " .. folder .. "/below: Is a directory", 1, true), tostring(e))
    end)

    it("within some time is an answer, or none, while other tasks go on", function()
        assert.same({ true, "hello" }, { afar.within(20, afar.read, folder .. "/a") })
        local ticks, began = 0, sys.now()
        local _ <close> = task.every("10ms", function() ticks = ticks + 1 end)
        local ok, e = afar.within(0.2, afar.read, pipe)
        assert.is_false(ok)
        assert.equal("NoAnswer", e.code)
        assert.equal("it did not answer in 0.2s", tostring(e))
        assert.is_true(ticks >= 3 and sys.now() - began < 5)
        ok, e = afar.within(20, afar.list, folder .. "/a")
        assert.same({ false, "ENOTDIR" }, { ok, e.code })
    end)

    it("is given up by what cancels its task", function()
        local ok, e = pcall(task.deadline, "200ms", afar.within, 600, afar.read, pipe)
        assert.same({ false, "Timeout" }, { ok, e.code })
        local look = task.spawn(afar.within, 600, afar.read, pipe)
        task.sleep "20ms"
        look:cancel()
        ok, e = pcall(look.wait, look)
        assert.is_false(ok)
        assert.is_true(errors.is(e, "Cancelled"))
        ok, e = pcall(afar.within, 600, error, "a bug", 0)
        assert.same({ false, "a bug" }, { ok, e })
    end)
end)
