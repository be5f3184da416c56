-- What `ncrun check` says of volumes and disks, asked of real mounts.
local helper  = require "spec.helper"
local json    = require "dkjson"
local volumes = require "spec.volumes"

-- The one finding about a part, and the exit code; run after these lines of sh in mounts of its own.
local function check_after(lines, part, ...)
    local code, out, err = helper.run { "unshare", "-m", "sh", "-ec", lines .. '\nexec "$@"', "sh", helper.NCRUN,
        "check", "json=yes", "only=" .. part, ... }
    local said = json.decode(out)
    if not said then error(out .. err, 2) end
    assert.equal(1, #said.checks)
    return said.checks[1], code
end

local function check(part, ...)
    return check_after("true", part, ...)
end

describe("ncrun check of a shared volume", function()
    it("names its kind and its free space, and leaves nothing on it", function()
        local volume <close> = volumes.mount "juicefs"
        local found, code = check("volume", "volume=" .. volume.path)
        assert.equal(0, code, json.encode(found))
        assert.equal("ok", found.status)
        assert.truthy(found.detail:find("^JuiceFS %(fuse%.juicefs%) at .* GiB free$"), found.detail)
        assert.is_true(found.values.free > 0)
        assert.equal("", select(2, helper.run { "ls", "-A", volume.behind }))
    end)

    it("is content with one that is mounted read-only, and says so", function()
        local volume <close> = volumes.mount "juicefs"
        local found, code = check_after(("mount -o remount,bind,ro %s"):format(volume.path), "volume",
            "volume=" .. volume.path)
        assert.equal(0, code, json.encode(found))
        assert.truthy(found.detail:find("mounted read-only", 1, true), found.detail)
    end)

    it("finds none in a mere folder: no fault, unless somebody said that it is there", function()
        local found, code = check "volume"
        assert.equal(0, code)
        assert.equal("absent", found.status)
        found, code = check("volume", "volume=" .. helper.tmp())
        assert.equal(3, code)
        assert.truthy(found.hint:find("mount the claim there", 1, true), found.hint)
    end)

    it("says which file system of the machine lies there instead", function()
        local found = check_after("mount -t tmpfs none /mnt; mkdir /mnt/shared; mount -t tmpfs none /mnt/shared",
            "volume")
        assert.equal("absent", found.status)
        assert.truthy(found.detail:find("/mnt/shared is a tmpfs file system of this machine", 1, true), found.detail)
    end)

    it("gives up on one that does not answer", function()
        local volume <close> = volumes.mount "juicefs"
        helper.sh(("kill -STOP %d"):format(volume.child.pid))
        local found, code = check("volume", "volume=" .. volume.path, "patience=500ms")
        helper.sh(("kill -CONT %d"):format(volume.child.pid))
        assert.equal(1, code)
        assert.equal("Timeout", found.code)
        assert.truthy(found.detail:find("did not answer in 0.5s", 1, true), found.detail)
        assert.truthy(found.hint:find("mount it again", 1, true))
    end)

    it("names one whose server has ended", function()
        local volume <close> = volumes.mount "juicefs"
        helper.sh(("kill -KILL %d"):format(volume.child.pid))
        volume.child:wait(10)
        local found = check("volume", "volume=" .. volume.path)
        assert.equal("failed", found.status)
        assert.truthy(found.hint:find("mount it again", 1, true), json.encode(found))
    end)
end)

describe("ncrun check of the node's own disks", function()
    it("names one that is full", function()
        local dir = helper.tmp()
        local found, code = check_after(("mount -t tmpfs -o size=64k none %s; head -c 65536 /dev/zero >%s/all || true")
            :format(dir, dir), "scratch", "scratch=" .. dir)
        assert.equal(5, code)
        assert.equal("ENOSPC", found.code)
        assert.truthy(found.hint:find("no space is left", 1, true))
    end)

    it("tells memory from a disk, by the mount that a folder lies on", function()
        local dir = helper.tmp()
        local found, code = check_after(("mount -t tmpfs none %s; mkdir %s/job"):format(dir, dir), "scratch",
            "scratch=" .. dir .. "/job")
        assert.equal(0, code)
        assert.truthy(found.detail:find("memory (tmpfs) at " .. dir .. "/job", 1, true), found.detail)
    end)

    it("refuses scratch and NVMe that lie on the network", function()
        local volume <close> = volumes.mount "juicefs"
        for _, part in ipairs { "scratch", "nvme" } do
            local found, code = check(part, part .. "=" .. volume.path)
            assert.equal(2, code)
            assert.truthy(found.hint:find(part .. "= to a folder on the node's own disk", 1, true), found.hint)
        end
    end)

    it("names an NVMe that was asked for and is not there", function()
        assert.equal("absent", check("nvme").status)
        local found, code = check("nvme", "nvme=/no/such/folder")
        assert.equal(3, code)
        assert.truthy(found.hint:find("hostPath", 1, true), found.hint)
    end)

    it("takes scratch from TMPDIR", function()
        local dir = helper.tmp()
        local found = check_after("export TMPDIR=" .. dir, "scratch")
        assert.equal(dir, found.values.path)
    end)
end)

describe("ncrun check of the hub", function()
    local function hub(env)
        local code, out, err = helper.ncrun({ "check", "only=hub", "json=yes" }, { env = env })
        local said = json.decode(out)
        if not said then error(out .. err, 2) end
        local found = {}
        for _, finding in ipairs(said.checks) do found[finding.name] = finding end
        assert.is_nil((out .. err):find("hf_", 1, true))
        return found, code
    end

    it("finds it, and a token that it takes", function()
        local server <close> = helper.server { hf_token = "hf_good" }
        local found, code = hub { HF_ENDPOINT = server.env.HF_ENDPOINT, HF_TOKEN = "hf_good" }
        assert.equal(0, code)
        assert.equal("ok", found.hub.status)
        assert.equal("found in HF_TOKEN, and the hub takes it", found["hub token"].detail)
    end)

    it("needs no token", function()
        local server <close> = helper.server { hf_token = "hf_good" }
        local found, code = hub { HF_ENDPOINT = server.env.HF_ENDPOINT }
        assert.equal(0, code)
        assert.equal("absent", found["hub token"].status)
    end)

    it("names a token that is refused, by where it was found", function()
        local server <close> = helper.server { hf_token = "hf_good" }
        local path = helper.tmp() .. "/token"
        helper.write(path, "hf_bad\n")
        local found, code = hub { HF_ENDPOINT = server.env.HF_ENDPOINT, HF_TOKEN_PATH = path }
        assert.equal(4, code)
        assert.truthy(found["hub token"].detail:find(path .. " is refused (401)", 1, true))
        assert.truthy(found["hub token"].hint:find("HF_TOKEN", 1, true))
    end)

    it("names a hub that is not there, and leaves it be where HF_HUB_OFFLINE says so", function()
        local found, code = hub { HF_ENDPOINT = "http://127.0.0.1:1" }
        assert.equal(1, code)
        assert.truthy(found.hub.hint:find("HF_ENDPOINT", 1, true))
        found, code = hub { HF_ENDPOINT = "http://127.0.0.1:1", HF_HUB_OFFLINE = "1" }
        assert.equal(0, code)
        assert.equal("absent", found.hub.status)
    end)
end)
