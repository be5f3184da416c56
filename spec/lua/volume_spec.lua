local errors = require "nc.errors"
local volume = require "nc.volume"

local MOUNTS <const> = [[
22 1 0:20 / / rw,relatime - overlay overlay rw,lowerdir=/a:/b,upperdir=/c
23 22 0:21 / /proc rw,nosuid - proc proc rw
31 22 0:45 /volumes/csi/x /mnt/shared rw,relatime shared:5 master:1 - ceph 10.0.0.1:6789:/volumes/csi/x rw,acl
32 22 0:46 / /mnt/nfs rw,relatime - nfs4 server:/export rw,vers=4.2
33 22 0:47 / /mnt/fuse rw,nosuid - fuse.ceph-fuse ceph-fuse rw,user_id=0
34 22 8:1 /var/host /mnt/host rw,relatime master:7 - ext4 /dev/sda1 rw
35 22 0:46 /sub /mnt/bound rw,relatime - nfs4 server:/export rw,vers=4.2
36 22 0:48 / /mnt/a\040b\011c\134d rw - nfs server:/a rw
37 22 8:2 / /mnt/twice rw - ext4 /dev/sdb1 rw
38 37 0:49 / /mnt/twice rw - ceph a:/ rw
39 22 0:50 / /mnt/covered rw - ceph a:/ rw
40 39 8:3 / /mnt/covered rw - tmpfs tmpfs rw
41 22 0:51 / /mnt/many rw,relatime shared:1 master:2 propagate_from:3 unbindable - nfs server:/with\040-\040dash rw
]]

describe("volume.type_at", function()
    local function type_at(path) return volume.type_at(MOUNTS, path) end

    it("knows what is mounted where", function()
        assert.equal("ceph", type_at "/mnt/shared")
        assert.equal("nfs4", type_at "/mnt/nfs")
        assert.equal("fuse.ceph-fuse", type_at "/mnt/fuse")
        assert.equal("overlay", type_at "/")
    end)

    it("tells a hostPath, which is a bind mount of the node's disk", function()
        assert.equal("ext4", type_at "/mnt/host")
    end)

    it("tells the file system below a bind mount", function()
        assert.equal("nfs4", type_at "/mnt/bound")
    end)

    it("reads blanks and backslashes in a path", function()
        assert.equal("nfs", type_at "/mnt/a b\tc\\d")
        assert.is_nil(type_at [[/mnt/a\040b\011c\134d]])
    end)

    it("takes the mount that lies on top", function()
        assert.equal("ceph", type_at "/mnt/twice")
        assert.equal("tmpfs", type_at "/mnt/covered")
    end)

    it("reads past any number of optional fields", function()
        assert.equal("nfs", type_at "/mnt/many")
    end)

    it("knows nothing below or above a mount, and nothing of a mere folder", function()
        for _, path in ipairs { "/mnt", "/mnt/shared/models", "/mnt/share", "/mnt/shared2", "", "/etc" } do
            assert.is_nil(type_at(path), path)
        end
    end)

    it("reads what is no mountinfo as nothing", function()
        for _, text in ipairs { "", "\n\n", "a b c d /mnt e - ", "1 2 3 4 /mnt", [[1 2 3 4 /a\999\400 rw - ext4 x]] } do
            assert.is_nil(volume.type_at(text, "/mnt"))
        end
    end)
end)

describe("volume.require", function()
    local function refusal(path)
        local ok, e = pcall(volume.require, path)
        assert.is_false(ok)
        assert.is_true(errors.is(e, "NotFound"), tostring(e))
        return tostring(e)
    end

    it("refuses a folder that is merely there, and says what to do", function()
        assert.truthy(refusal "/usr/lib":find("no shared volume is mounted at /usr/lib", 1, true))
    end)

    it("minds no slash at the end", function()
        assert.truthy(refusal "/proc//":find("/proc is a proc file system", 1, true))
        assert.truthy(refusal "/":find("/ is a", 1, true))
    end)

    it("refuses a file system that is the node's own, and names it", function()
        assert.truthy(refusal "/proc":find("/proc is a proc file system", 1, true))
    end)
end)
