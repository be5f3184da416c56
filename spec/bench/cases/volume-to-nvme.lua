--- Weights from a shared volume's copy to the node's NVMe, with markers and all, every part compared with
--- the digest in the copy's manifest: out of memory onto a disk; off a cold disk into memory; and on one
--- file system that clones blocks (XFS in a file, mounted for each run; needs root).
--
-- The others check nothing, mark nothing, and onto the disk are followed by a sync, as ncrun syncs what
-- it marks.

local json   = require "nc.json"
local marker = require "nc.marker"
local peers  = require "peers"
local proc   = require "nc.proc"

local function must(argv)
    local done = proc.capture(argv)
    if done.code ~= 0 then error(("%s: %s"):format(argv[1], done.stderr), 0) end
end

-- The input becomes the copy models/checkpoint/ below its own folder, with a manifest.
local function make_copy(site)
    local digests = site.dir .. "/digests.json"
    must(peers.ncrun(site.input, "none", "record=" .. digests))
    local file <close> = assert(io.open(digests))
    local files = {}
    for path, known in pairs(json.decode(file:read "a")) do
        files[#files + 1] = { path = path, size = site.sizes[path], part_size = known.part_size, parts = known.parts }
    end
    table.sort(files, function(a, b) return a.path < b.path end)
    local complete <close> = assert(io.open(site.input .. "/.complete", "w"))
    assert(complete:write(marker.encode_complete {
        repository = "bench/checkpoint", commit = ("0"):rep(40), files = files, finished = "2026-01-01T00:00:00Z",
        by = "bench",
    }))
    must { "sh", "-euc", 'cd "$0/.."; mkdir models; ln -s "../${0##*/}" models/checkpoint', site.input }
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

        setup = function(site)
            site:make_large(cold and site.disk or site.dir)
            make_copy(site)
        end,

        clear = function(site)
            site:empty_folder(root(site))
            must { "mkdir", "-p", folder(site) }
            if cold then site:forget(site.input) end
        end,
        check = function(site, bytes) site:check_folder(folder(site), bytes) end,

        contestants = {
            { name = "ncrun", command = function(site) return place(site.input .. "/..", root(site)) end },
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
    local COUNT <const> = 'test "$(ls "$1/out/models/checkpoint" | wc -l)" = "$(ls "$1/input" | wc -l)"'
    return {
        name = "volume-to-nvme-clone",
        describe = function(site) return site:describe_large() .. ", volume to NVMe, on one XFS" end,

        setup = function(site)
            site:make_large()
            make_copy(site)
            must { "sh", "-euc", 'mkdir -p "$1"; truncate -s "$2" "$0"; mkfs.xfs -q "$0"', site.disk .. "/xfs",
                site.disk .. "/mnt", ("%d"):format(2 * site.size + (1 << 30)) }
            must(on_xfs(site, 'cp -r "$2" "$1/input"; mkdir "$1/models"; ln -s ../input "$1/models/checkpoint"'))
        end,

        clear = function(site)
            must(on_xfs(site, 'rm -rf "$1/out"; mkdir -p "$1/out/models/checkpoint"; sync -f "$1"'))
        end,
        check = function(site) must(on_xfs(site, COUNT)) end,

        contestants = {
            { name = "ncrun", command = function(site)
                return on_xfs(site, 'exec build/ncrun spec/bench/place.lua from="$1" to="$1/out"')
            end },
            { name = "cp -r", command = function(site)
                return on_xfs(site, 'exec cp -r --reflink=never "$1/input/." "$1/out/models/checkpoint"')
            end },
            { name = "cp -r --reflink", command = function(site)
                return on_xfs(site, 'exec cp -r --reflink=always "$1/input/." "$1/out/models/checkpoint"')
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
