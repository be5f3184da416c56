--- What it costs to check each part of a pull against its digest: bucket to memory, where nothing slower
--- hides it.

local peers = require "peers"

local REPOSITORY <const> = "bench/checkpoint"
local PREFIX <const> = "models/checkpoint/"

local function folder(site) return site.dir .. "/out" end

return { {
    name = "pull-verified",
    describe = function(site) return site:describe_large() .. " down to tmpfs over http, part digests checked" end,

    setup = function(site)
        site:make_checkpoint(REPOSITORY)
        site:serve()
        peers.run(peers.ncrun_stage(REPOSITORY))
    end,

    clear = function(site) site:empty_folder(folder(site)) end,
    check = function(site, bytes) site:check_folder(folder(site), bytes) end,

    contestants = {
        { name = "verified", command = function(site) return peers.ncrun(site:url(PREFIX), folder(site)) end },
        { name = "not verified", command = function(site)
            return peers.ncrun(site:url(PREFIX), folder(site), "verify=no")
        end },
    },
    gates = { { "wall", "verified", "not verified", 1.05 } },
} }
