--- A copy's folder to another file system, as from a shared volume to a node's disk: warm, out of memory
--- onto the disk, where it counts once it is synced; and cold, off the disk into memory.
--
-- The copy is marked complete, so ncrun checks every part against its digest; the others check nothing.

local peers = require "peers"

local REPOSITORY <const> = "bench/checkpoint"

local function case(name, what, cold, gates)
    local function folder(site) return (cold and site.dir or site.disk) .. "/out" end
    local function synced(site, argv) return cold and argv or peers.synced(folder(site), argv) end
    return {
        name = name,
        describe = function(site) return ("%s, folder to folder, %s"):format(site:describe_large(), what) end,

        setup = function(site)
            site:make_checkpoint(REPOSITORY)
            site:serve()
            peers.run(peers.ncrun_stage(REPOSITORY))
            local copy = (cold and site.disk or site.dir) .. "/copy"
            peers.run(peers.ncrun(site:url "models/checkpoint/", copy))
            site:use(copy)
            site:stop() -- the memory is needed for better things
        end,

        clear = function(site)
            site:empty_folder(folder(site))
            if cold then site:forget(site.input) end
        end,
        check = function(site, bytes) site:check_folder(folder(site), bytes) end,

        contestants = {
            { name = "ncrun", command = function(site) return peers.ncrun(site.input, folder(site)) end },
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

return {
    case("directory-warm", "from tmpfs to disk with sync", false, { {
        what = "wall: ncrun / the fastest other", most = 1.0,
        of = function(m)
            return m.ncrun.wall / math.min(m["cp -r"].wall, m["rsync -a"].wall, m["rclone copy"].wall)
        end,
    } }),
    case("directory-cold", "from a cold disk to tmpfs", true, { { "wall", "ncrun", "cp -r", 0.5 } }),
}
