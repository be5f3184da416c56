--- What it costs to check each part of a pull against its digest: bucket to memory, where nothing slower
--- hides it.

local peers = require "peers"
local proc  = require "nc.proc"

local PREFIX <const> = "verify/"

local function folder(site) return site.dir .. "/out" end

return { {
    name = "pull-verified",
    describe = function(site) return site:describe_large() .. " down to tmpfs over http, part digests checked" end,

    setup = function(site)
        site:make_large()
        site:serve()
        peers.fill(site, PREFIX)
        site.digests = site.dir .. "/digests.json"
        local done = proc.capture(peers.ncrun(site:url(PREFIX), "none", "record=" .. site.digests))
        if done.code ~= 0 then error(done.stderr, 0) end
    end,

    clear = function(site) site:empty_folder(folder(site)) end,
    check = function(site, bytes) site:check_folder(folder(site), bytes) end,

    contestants = {
        { name = "verified", command = function(site)
            return peers.ncrun(site:url(PREFIX), folder(site), "check=" .. site.digests)
        end },
        { name = "not verified", command = function(site) return peers.ncrun(site:url(PREFIX), folder(site)) end },
    },
    gates = { { "wall", "verified", "not verified", 1.05 } },
} }
