local helper = require "spec.helper"

local UP <const>, DOWN <const> = "spec/rigs/ceph-up", "spec/rigs/ceph-down"

local function up(dir, port, ...)
    return helper.run({ UP, dir, port or "0", ... }, { timeout = 90 })
end

local function down(dir)
    return helper.run({ DOWN, dir }, { timeout = 90 })
end

local function port_of(exports)
    return exports:match "AWS_ENDPOINT_URL='http://127.0.0.1:(%d+)'"
end

describe("the Ceph rig", function()
    local dir = helper.tmp()

    teardown(function()
        down(dir)
    end)

    it("starts, and says how to reach it", function()
        local code, out, err = up(dir)
        assert.are.equal(0, code, err)
        assert.is_truthy(port_of(out))
        assert.is_truthy(out:find "export NC_BUCKET='ncbucket'")
    end)

    it("says the same when it is up already", function()
        local code, out = up(dir)
        assert.are.equal(0, code)
        assert.are.equal(helper.read(dir .. "/env"), out)
    end)

    it("refuses a port that is taken, and leaves nothing behind", function()
        local other = helper.tmp()
        local code, out, err = up(other, port_of(helper.read(dir .. "/env")))
        assert.are.equal(4, code)
        assert.are.equal("", out)
        assert.is_truthy(err:find "in use")
        assert.is_nil(helper.read(other .. "/pids"))
    end)

    it("says so when one of its daemons is gone", function()
        local gateway = helper.read(dir .. "/pids"):match "rgw (%d+)"
        helper.sh("kill -KILL " .. gateway)
        local code, _, err = up(dir)
        assert.are.equal(3, code)
        assert.is_truthy(err:find "2 of 3 daemons")
    end)

    it("ends all that it started and stays down", function()
        local pids = {}
        for pid in helper.read(dir .. "/pids"):gmatch "%w+ (%d+)" do pids[#pids + 1] = pid end
        assert.are.equal(0, (down(dir)))
        assert.are.equal(0, (down(dir)))
        for _, pid in ipairs(pids) do
            local status = helper.read("/proc/" .. pid .. "/status")
            assert.is_truthy(not status or status:find "State:%s+[ZX]")
        end
        assert.is_nil(helper.read(dir .. "/env"))
    end)

    it("starts again where it was, with https", function()
        local code, out, err = up(dir, "0", "tls_port=0", "store=bluestore")
        assert.are.equal(0, code, err)
        local curl = "curl -sS -f --cacert \"$NC_TLS_CA\" \"$NC_TLS_ENDPOINT_URL\""
        assert.are.equal(0, (helper.sh("eval \"$EXPORTS\"; " .. curl, { EXPORTS = out })))
    end)

    it("adds a CephFS, and takes its mount point away with the rest", function()
        local mount = helper.tmp()
        local code, _, err = helper.run({ "spec/rigs/cephfs-up", dir, mount }, { timeout = 90 })
        assert.are.equal(0, code, err)
        assert.are.equal(0, (helper.sh(("grep -q ' %s .* fuse.ceph-fuse ' /proc/self/mountinfo"):format(mount))))
        helper.write(mount .. "/sub/file", "text")
        assert.are.equal("text", helper.read(mount .. "/sub/file"))
        assert.are.equal(0, (down(dir)))
        assert.are.equal(1, (helper.sh(("grep -q ' %s ' /proc/self/mountinfo"):format(mount))))
    end)

    it("refuses a CephFS where no rig is up", function()
        local code = helper.run { "spec/rigs/cephfs-up", helper.tmp(), helper.tmp() }
        assert.are.equal(3, code)
    end)

    it("stops what it started when the time is over", function()
        local other = helper.tmp()
        local code, _, err = up(other, "0", "timeout=0")
        assert.are.equal(1, code)
        assert.is_truthy(err:find "what was started has been stopped")
        assert.are.equal("", helper.read(other .. "/pids"))
    end)

    it("leaves a folder alone that is not its own", function()
        local other = helper.tmp()
        helper.write(other .. "/thesis.txt", "years of work")
        assert.are.equal(3, (up(other)))
        assert.are.equal(3, (down(other)))
        assert.are.equal("years of work", helper.read(other .. "/thesis.txt"))
    end)
end)
