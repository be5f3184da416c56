--- A checkpoint from the hub onto a disk, synced. ncrun compares every file's SHA-256 with the hub's, curl
--- checks nothing.

local peers = require "peers"

local REPOSITORY <const> = "bench/checkpoint"

local function folder(site) return site.disk .. "/out" end

local function case(name, scheme)
    return {
        name = name,
        describe = function(site)
            return ("%s, hub to disk with sync over %s"):format(site:describe_large(), scheme)
        end,

        setup = function(site)
            site:make_checkpoint(REPOSITORY)
            site:serve(scheme)
        end,

        clear = function(site) site:empty_folder(folder(site)) end,
        check = function(site, bytes) site:check_folder(folder(site), bytes) end,

        contestants = {
            { name = "ncrun", command = function(site) return peers.ncrun("hub:" .. REPOSITORY, folder(site)) end },
            { name = "16 curl, sync", command = function(site)
                return peers.synced(folder(site), peers.curl_hub(site, REPOSITORY, folder(site)))
            end },
        },
        gates = scheme == "http" and { { "wall", "ncrun", "16 curl, sync", 1.0 } } or nil,
    }
end

return { case("hub-to-directory", "http"), case("hub-to-directory-https", "https") }
