--- Weights from a shared volume's copy to the node's NVMe, with markers and all, every part compared with
--- the digest in the copy's manifest: out of memory onto a disk; off a cold disk into memory; and on one
--- file system that clones blocks (XFS in a file, mounted for each run; needs root).
--
-- The others check nothing, mark nothing, and onto the disk are followed by a sync, as ncrun syncs what
-- it marks.

local peers = require "peers"

local REPOSITORY <const> = "bench/checkpoint"

-- A staged copy, marked complete, as the input: models/checkpoint/ below the folder.
local function make_copy(site, root)
    site:make_checkpoint(REPOSITORY)
    site:serve()
    peers.run(peers.ncrun_stage(REPOSITORY))
    local copy = root .. "/volume/models/checkpoint"
    peers.run { "mkdir", "-p", copy }
    peers.run(peers.ncrun(site:url "models/checkpoint/", copy))
    site:use(copy)
    site:stop() -- the memory is needed for better things
end

local function place(from, to)
    return { "build/ncrun", "spec/bench/place.lua", "from=" .. from, "to=" .. to }
end

local function case(name, what, cold, gates)
    local function root(site) return (cold and site.dir or site.disk) .. "/out" end
    local function folder(site) return root(site) .. "/models/checkpoint" end
    local function synced(site, argv) return cold and argv or peers.synced(folder(site), argv) end
    return {
        name = name,
        describe = function(site) return ("%s, volume to NVMe, %s"):format(site:describe_large(), what) end,

        setup = function(site) make_copy(site, cold and site.disk or site.dir) end,

        clear = function(site)
            site:empty_folder(root(site))
            peers.run { "mkdir", "-p", folder(site) }
            if cold then site:forget(site.input) end
        end,
        check = function(site, bytes) site:check_folder(folder(site), bytes) end,

        contestants = {
            { name = "ncrun", command = function(site) return place(site.input:match "^(.*)/models/", root(site)) end },
            { name = "cp -r", command = function(site)
                return synced(site, { "cp", "-r", site.input .. "/.", folder(site) })
            end },
            { name = "rsync -a", command = function(site)
                return synced(site, { "rsync", "-a", site.input .. "/", folder(site) })
            end },
            { name = "rclone copy", command = function(site)
                return synced(site, { "rclone", "copy", "--transfers", "16", "--multi-thread-streams", "4",
                    site.input, folder(site) })
            end },
        },
        gates = gates,
    }
end

-- In a mount namespace of its own, so that nothing stays mounted whatever happens.
local function on_xfs(site, script)
    return { "unshare", "-m", "sh", "-euc", 'mount -o loop "$0" "$1"; ' .. script, site.disk .. "/xfs", site.disk
        .. "/mnt", site.input }
end

local function clone_case(gates)
    local COUNT <const> = 'test "$(ls "$1/out/models/checkpoint" | wc -l)" = "$(ls "$1/models/checkpoint" | wc -l)"'
    return {
        name = "volume-to-nvme-clone",
        describe = function(site) return site:describe_large() .. ", volume to NVMe, on one XFS" end,

        setup = function(site)
            make_copy(site, site.dir)
            peers.run { "sh", "-euc", 'mkdir -p "$1"; truncate -s "$2" "$0"; mkfs.xfs -q "$0"', site.disk .. "/xfs",
                site.disk .. "/mnt", ("%d"):format(2 * site.size + (1 << 30)) }
            peers.run(on_xfs(site, 'mkdir "$1/models"; cp -r "$2" "$1/models/checkpoint"'))
        end,

        clear = function(site)
            peers.run(on_xfs(site, 'rm -rf "$1/out"; mkdir -p "$1/out/models/checkpoint"; sync -f "$1"'))
        end,
        check = function(site) peers.run(on_xfs(site, COUNT)) end,

        contestants = {
            { name = "ncrun", command = function(site)
                return on_xfs(site, 'exec build/ncrun spec/bench/place.lua from="$1" to="$1/out"')
            end },
            { name = "cp -r", command = function(site)
                return on_xfs(site, 'exec cp -r --reflink=never "$1/models/checkpoint/." "$1/out/models/checkpoint"')
            end },
        },
        gates = gates,
    }
end

return {
    case("volume-to-nvme-warm", "from tmpfs to disk with sync", false, { {
        what = "wall: ncrun / the fastest other", most = 1.0,
        of = function(m)
            return m.ncrun.wall / math.min(m["cp -r"].wall, m["rsync -a"].wall, m["rclone copy"].wall)
        end,
    } }),
    case("volume-to-nvme-cold", "from a cold disk to tmpfs", true, { { "wall", "ncrun", "cp -r", 0.5 } }),
    clone_case { { what = "seconds: ncrun", most = 1.0, of = function(m) return m.ncrun.wall end } },
}
