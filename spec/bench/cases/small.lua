--- Many objects of 16 KiB, down and up, where requests cost and bytes don't: into and out of memory.
--
-- s3cmd, which has one connection, is left out: it needs some minutes for each round.

local peers = require "peers"

local SIZE <const> = 16 << 10
local PREFIX <const> = "small/"

local GATES <const> = {
    { "wall", "ncrun", "rclone", 0.4 },
    { "wall", "ncrun", "aws", 0.1 },
}

local function describe(site, way, scheme) return ("%d x 16 KiB %s over %s"):format(site.files, way, scheme) end

local function down(name, scheme)
    local function folder(site) return site.dir .. "/out" end
    return {
        name = name,
        describe = function(site) return describe(site, "down to tmpfs", scheme) end,

        setup = function(site)
            site:make_files(site.files, SIZE)
            site:serve(scheme)
            peers.fill(site, PREFIX)
        end,

        clear = function(site) site:empty_folder(folder(site)) end,
        check = function(site) site:check_folder(folder(site)) end,

        contestants = {
            { name = "ncrun", command = function(site) return peers.ncrun(site:url(PREFIX), folder(site)) end },
            { name = "rclone", command = function(site)
                return peers.rclone_small(peers.rclone_place(site, PREFIX), folder(site))
            end },
            { name = "aws", command = function(site) return peers.aws(site, site:url(PREFIX), folder(site)) end },
        },
        gates = GATES,
    }
end

local function up(name, scheme)
    return {
        name = name,
        describe = function(site) return describe(site, "up", scheme) end,

        setup = function(site)
            site:make_files(site.files, SIZE)
            site:serve(scheme)
        end,

        clear = function(site) site:empty_bucket() end,
        check = function(site) site:check_bucket(PREFIX) end,

        contestants = {
            { name = "ncrun", command = function(site) return peers.ncrun(site.input, site:url(PREFIX)) end },
            { name = "rclone", command = function(site)
                return peers.rclone_small(site.input, peers.rclone_place(site, PREFIX))
            end },
            { name = "aws", command = function(site) return peers.aws(site, site.input, site:url(PREFIX)) end },
        },
        gates = GATES,
    }
end

return {
    down("small-down", "http"), down("small-down-https", "https"),
    up("small-up", "http"), up("small-up-https", "https"),
}
