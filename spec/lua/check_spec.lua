local check   = require "nc.check"
local errors  = require "nc.errors"
local folders = require "nc.check.folders"
local volume  = require "nc.volume"

local function failure(code, message)
    return function() error(errors.new { code = code, message = message }, 0) end
end

describe("a report", function()
    it("tells each finding as it comes", function()
        local seen = {}
        local report = check.report(function(finding) seen[#seen + 1] = finding.name .. " " .. finding.status end)
        assert.is_true(report:try("a", function() return "found", { n = 1 } end))
        assert.is_false(report:try("b", failure("NotFound", "b is not there")))
        report:absent("c", "nobody asked for it")
        report:skip({ "d", "e" }, "b failed")
        assert.same({ "a ok", "b failed", "c absent", "d skipped", "e skipped" }, seen)
        assert.same({ ok = 1, failed = 1, absent = 1, skipped = 2 }, report:counts())
        assert.same({ n = 1 }, report.findings[1].values)
    end)

    it("ends with the code of what failed first", function()
        local report = check.report()
        assert.equal(0, report:exit_code())
        report:absent("a", "x")
        assert.equal(0, report:exit_code())
        report:try("b", failure("AccessDenied", "no"))
        report:try("c", failure("NotFound", "no"))
        assert.equal(4, report:exit_code())
    end)

    it("takes the hint that fits the error in place of the error's own advice", function()
        local report = check.report()
        local hints = { NoSuchBucket = "make it", ConnectFailed = function(e) return "from " .. e.code end }
        report:try("a", failure("NoSuchBucket", "GET s3://b: h answered 404 NoSuchBucket: check NC_BUCKET"), hints)
        report:try("b", failure("ConnectFailed", "GET http://h/: refused by h: check the address, and more"), hints)
        report:try("c", failure("SlowDown", "GET s3://b: h answered 503 SlowDown: wait"), hints)
        local a, b, c = table.unpack(report.findings)
        assert.same({ "GET s3://b: h answered 404 NoSuchBucket", "make it" }, { a.detail, a.hint })
        assert.same({ "GET http://h/: refused by h", "from ConnectFailed" }, { b.detail, b.hint })
        assert.same({ "GET s3://b: h answered 503 SlowDown: wait" }, { c.detail, c.hint })
    end)

    it("takes neither a bug nor a cancellation for a finding", function()
        local report = check.report()
        assert.has_error(function() report:try("a", function() error("a bug", 0) end) end, "a bug")
        assert.is_false(pcall(report.try, report, "a", failure("Cancelled", "stopped")))
        assert.same({}, report.findings)
    end)
end)

describe("a disk's kind", function()
    it("is told by its name, and by whether it rotates", function()
        local function kind(name, rotational)
            return folders.disk_kind("MAJOR=1\nDEVNAME=" .. name .. "\n", rotational)
        end
        assert.same({ "NVMe", "nvme0n1p2" }, { kind("nvme0n1p2", "0\n") })
        assert.same({ "SSD", "sda1" }, { kind("sda1", "0\n") })
        assert.same({ "rotating disk", "sdb" }, { kind("sdb", "1\n") })
        assert.same({ "virtual disk", "vda1" }, { kind("vda1", "1\n") })
        assert.same({ "SSD", "dm-0" }, { kind("dm-0", "0\n") })
        assert.is_nil(folders.disk_kind(nil, nil))
    end)
end)

describe("a volume's name", function()
    it("is the one that people use", function()
        assert.equal("CephFS", folders.name_of "ceph")
        assert.equal("CephFS", folders.name_of "fuse.ceph-fuse")
        assert.equal("NFS", folders.name_of "nfs4")
        assert.equal("9p", folders.name_of "9p")
    end)
end)

describe("volume.mount_of", function()
    local MOUNTS <const> = [[
22 1 0:20 / / rw,relatime - overlay overlay rw
23 22 259:2 /data /mnt/nvme rw,relatime shared:5 - ext4 /dev/nvme0n1p2 rw
24 22 0:45 / /mnt/shared ro,relatime shared:5 master:1 - ceph 10.0.0.1:6789:/v rw,acl
25 22 0:46 / /mnt/twice rw - ext4 /dev/sda rw
26 25 0:47 / /mnt/twice rw - tmpfs none rw
27 22 0:48 / /mnt/a\040b rw,romantic - nfs s:/ rw
]]
    local function of(path) return volume.mount_of(MOUNTS, path) end

    it("is the deepest that covers a path, and the one on top", function()
        assert.same({ point = "/mnt/nvme", type = "ext4", device = "259:2", read_only = false }, of "/mnt/nvme/models")
        assert.equal("/mnt/nvme", of("/mnt/nvme").point)
        assert.equal("/", of("/mnt/nvme2").point)
        assert.equal("/", of("/").point)
        assert.equal("tmpfs", of("/mnt/twice/x").type)
        assert.equal("nfs", of("/mnt/a b/c").type)
    end)

    it("knows what is mounted read-only", function()
        assert.is_true(of("/mnt/shared/x").read_only)
        assert.is_false(of("/mnt/a b").read_only)
    end)

    it("is nil where nothing is", function()
        assert.is_nil(volume.mount_of("", "/"))
        assert.is_nil(volume.mount_of("a b c\n", "/"))
    end)
end)
