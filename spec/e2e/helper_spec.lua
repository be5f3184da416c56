local helper = require "spec.helper"

-- A spec process that starts a child, says where its folder and its child are, and waits.
local BEGUN <const> = [[
local helper = require "spec.helper"
local child = helper.start { "sleep", "600" }
print(helper.tmp(), child.pid)
io.stdout:flush()
os.execute "sleep 60"
]]

describe("the spec helper", function()
    it("gives children an environment that holds nothing of this machine's", function()
        local _, out = helper.sh("env", { NC_BUCKET = "b" })
        local names = {}
        for name in out:gmatch "([%w_]+)=[^\n]*\n" do names[#names + 1] = name end
        table.sort(names)
        local expected = { "HOME", "LANG", "NC_BUCKET", "NO_PROXY", "PATH", "PWD", "no_proxy" }
        for _, name in ipairs { "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS" } do
            if os.getenv(name) then expected[#expected + 1] = name end
        end
        table.sort(expected)
        assert.are.same(expected, names)
    end)

    it("hands over input, words and exit code as they are", function()
        local code, out, err = helper.run({ "sh", "-c", "cat; echo \"$1\" >&2; exit 7", "sh", "it's $HOME" },
            { stdin = "a\nb" })
        assert.are.same({ 7, "a\nb", "it's $HOME\n" }, { code, out, err })
    end)

    it("does not wait longer than it may", function()
        local ok, message = pcall(helper.sh, "echo so far; sleep 60", {}, { timeout = 1 })
        assert.is_false(ok)
        assert.is_truthy(message:find "still running after 1 s\nso far")
    end)

    it("tells how a child in the background ended", function()
        local child <close> = helper.start { "sh", "-c", "echo up; exec sleep 60" }
        helper.eventually(5, "its first word", function() return child:stdout() == "up\n" end)
        child:kill "INT"
        assert.are.equal(130, (child:wait(5)))
    end)

    it("leaves neither children nor folders behind when the spec is killed", function()
        local begun <close> = helper.start { "lua5.4", "-e", BEGUN }
        local folder, pid = helper.eventually(10, "the folder", function()
            return begun:stdout():match "(%S+)%s+(%d+)\n" and begun:stdout()
        end):match "(%S+)%s+(%d+)"
        begun:kill "KILL"
        helper.eventually(10, "the end of folder and child", function()
            local status = helper.read("/proc/" .. pid .. "/status")
            return (not status or status:find "State:%s+[ZX]")
                and helper.sh("test -e " .. folder) == 1
        end)
    end)
end)
