-- What counts as a shared volume, asked of real mounts; weights from a real CephFS and back.
local helper  = require "spec.helper"
local placing = require "spec.placing"
local staging = require "spec.staging"
local volumes = require "spec.volumes"

local ASK <const> = [[
local volume = require "nc.volume"
for _, path in ipairs { ... } do print(tostring(volume.kind(path))) end
]]

-- The kind of volume at `path` for a program that runs after these lines of sh, in mounts of its own.
local function kind_after(lines, path)
    local script = helper.tmp() .. "/ask.lua"
    helper.write(script, ASK)
    local code, out, err = helper.run { "unshare", "-m", "sh", "-ec",
        ("%s\nexec %s %s %s"):format(lines, helper.NCRUN, script, path) }
    assert.equal(0, code, err)
    return (out:gsub("\n", ""))
end

-- Places onto an ext4 of its own, and prints the most KiB that were dirty or on their way there.
local DIRTY <const> = [[
dir=$1; shift
cd "$dir"; mkdir nvme debug
truncate -s 1G disk; mkfs.ext4 -q disk; mount -o loop disk nvme
mount -t debugfs none debug
stats=debug/bdi/$(stat -c %Hd:%Ld nvme)/stats
test -e "$stats"
cd "$OLDPWD"
"$@" "nvme=$dir/nvme" & pid=$!
most=0
while kill -0 $pid 2>/dev/null; do
    now=$(awk '/^Bdi(Writeback|Reclaimable):/ { sum += $2 } END { print sum }' "$dir/$stats")
    [ "$now" -le "$most" ] || most=$now
    sleep 0.02
done
wait $pid
echo "$most"
]]

describe("a shared volume", function()
    it("is no ext4 of a disk", function()
        local dir = helper.tmp()
        assert.equal("nil", kind_after(([[cd %s; mkdir mnt; truncate -s 8M disk; mkfs.ext4 -q disk
            mount -o loop disk mnt
            grep -q " $PWD/mnt .* - ext4 " /proc/self/mountinfo]]):format(dir), dir .. "/mnt"))
    end)

    it("is no tmpfs", function()
        local dir = helper.tmp()
        assert.equal("nil", kind_after("mount -t tmpfs none " .. dir, dir))
    end)

    it("is no overlay", function()
        local dir = helper.tmp() -- its upper folder may not be on an overlay itself
        assert.equal("nil", kind_after(([[mount -t tmpfs none %s; cd %s; mkdir low up work mnt
            mount -t overlay -o lowerdir=low,upperdir=up,workdir=work none mnt
            grep -q " $PWD/mnt .* - overlay " /proc/self/mountinfo]]):format(dir, dir), dir .. "/mnt"))
    end)

    it("is no plain folder, and no bind mount of one", function()
        local dir = helper.tmp()
        assert.equal("nil", kind_after("cd " .. dir .. "; mkdir a mnt", dir .. "/mnt"))
        assert.equal("nil", kind_after("cd " .. dir .. "; mount --bind a mnt", dir .. "/mnt"))
    end)

    it("is a bind mount of a folder on one, as a hostPath makes it", function()
        local volume <close> = volumes.mount "glusterfs"
        helper.sh("mkdir " .. volume.behind .. "/sub")
        local dir = helper.tmp()
        assert.equal("posix", kind_after(("mount --bind %s/sub %s"):format(volume.path, dir), dir))
        assert.equal("posix", kind_after("true", volume.path .. "/"))
        assert.equal("nil", kind_after("true", volume.path .. "/sub"))
    end)

    it("is one of the kind where nothing is compiled, where it is NFS", function()
        local volume <close> = volumes.mount "fuse-nfs"
        assert.equal("nfs", kind_after("true", volume.path))
    end)

    it("is written to with few parts in flight where it is NFS, unless told otherwise", function()
        local volume <close> = volumes.mount "fuse-nfs"
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        local code, _, err = staging.run(server.env, "to=volume", "volume=" .. volume.path)
        assert.equal(0, code, err)
        assert.truthy(err:find(" 8 parts at a time", 1, true), err)
        code, _, err = staging.run(server.env, "to=volume", "volume=" .. volume.path, "name=other", "parallel=3")
        assert.equal(0, code, err)
        assert.truthy(err:find(" 3 parts at a time", 1, true), err)
    end)

    it("is none that is hidden below another mount, and one again where that is gone", function()
        local volume <close> = volumes.mount "juicefs"
        assert.equal("nil", kind_after("mount -t tmpfs none " .. volume.path, volume.path))
        assert.equal("posix", kind_after(("mount -t tmpfs none %s; umount %s"):format(volume.path, volume.path),
            volume.path))
    end)

    it("is a CephFS, which takes a staged copy and gives it to an NVMe", function()
        local volume <close> = volumes.cephfs()
        assert.equal("posix", kind_after("true", volume.path))
        local hub = staging.hub "8MiB"
        local server <close> = helper.server { hub = hub }
        local code, _, err = staging.run(server.env, "to=volume", "volume=" .. volume.path)
        assert.equal(0, code, err)
        server:reset()
        local nvme = helper.tmp()
        code, _, err = placing.run(server.env, nvme, "volume=" .. volume.path)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert.equal(0, placing.sent(server).hub)
        assert.truthy(err:find("the volume holds a complete copy", 1, true), err)
    end)

    -- A complete copy on a volume and in the bucket.
    local function staged_twice()
        local volume, hub = volumes.mount "juicefs", staging.hub "8MiB"
        local server = helper.server { hub = hub }
        assert.equal(0, (staging.run(server.env)))
        assert.equal(0, (staging.run(server.env, "to=volume", "volume=" .. volume.path)))
        server:reset()
        return volume, server, hub
    end

    it("counts as absent where its server does not answer", function()
        local on, at, hub = staged_twice()
        local volume <close> = on
        local server <close> = at
        local nvme = helper.tmp()
        volume:hang()
        local code, _, err = placing.run(server.env, nvme, "volume=" .. volume.path, "patience=1s")
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert.equal(0, placing.sent(server).hub)
        assert.truthy(err:find("the volume holds no complete copy (it did not answer in 1.0s); the bucket holds one", 1,
            true), err)
    end)

    it("is not asked again, once it did not answer", function()
        local volume <close> = volumes.mount "juicefs"
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        local beat = helper.tmp() .. "/staging"
        helper.write(beat, placing.heartbeat())
        staging.put(server.env, beat, "models/tiny/.staging")
        volume:hang()
        local code, _, err = placing.run(server.env, helper.tmp(), "volume=" .. volume.path, "patience=1s", "wait=2s",
            "every=100ms")
        assert.equal(1, code, err)
        assert.truthy(err:find("waiting for it, so that nothing is downloaded twice", 1, true), err)
        assert.equal(1, select(2, err:gsub("warning: the volume [^\n]* did not answer", "")))
    end)

    it("counts as absent where its server is gone", function()
        local on, at, hub = staged_twice()
        local volume <close> = on
        local server <close> = at
        local nvme = helper.tmp()
        volume:die()
        local code, _, err = placing.run(server.env, nvme, "volume=" .. volume.path)
        assert.equal(0, code, err)
        placing.assert_placed(hub, nvme)
        assert.equal(0, placing.sent(server).hub)
        assert.truthy(err:find("Transport endpoint is not connected); the bucket holds one", 1, true), err)
    end)

    it("does not keep a placer that is to end, even if it does not answer", function()
        local on, at = staged_twice()
        local volume <close> = on
        local server <close> = at
        volume:hang()
        local run <close> = placing.start(server.env, helper.tmp(), "volume=" .. volume.path, "patience=10m")
        helper.sh "sleep 0.5"
        assert.is_true(run:running())
        run:kill "TERM"
        local code, _, err = run:wait(10)
        assert.equal(128 + 15, code, err)
    end)

    it("fills no more than 64 MiB of memory with what the NVMe has not written yet", function()
        local volume <close> = volumes.mount "juicefs"
        local hub = staging.hub "256MiB"
        local server <close> = helper.server { hub = hub }
        assert.equal(0, (staging.run(server.env, "to=volume", "volume=" .. volume.path)))
        local code, out, err = helper.run({ "unshare", "-m", "sh", "-ec", DIRTY, "sh", helper.tmp(), helper.NCRUN,
            "recipes/serve.lua", "model=acme/tiny", "phase=place", "volume=" .. volume.path },
            { env = server.env, timeout = 120 })
        assert.equal(0, code, err)
        assert.truthy(err:find("from the volume", 1, true), err)
        local most = tonumber(out)
        assert.is_true(most > 0 and most <= 64 << 10, most .. " KiB")
    end)
end)
