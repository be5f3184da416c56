--- Large files out of memory into a bucket.
--
-- Over http all but s3cmd's parts carry the SHA-256 of the payload in their signature; over https it is
-- left unsigned, as TLS protects it, but for s3cmd, which always signs it.

local peers = require "peers"

local PREFIX <const> = "up/"

local function case(name, scheme)
    return {
        name = name,
        describe = function(site) return ("%s up over %s"):format(site:describe_large(), scheme) end,

        setup = function(site)
            site:make_large()
            site:serve(scheme)
        end,

        clear = function(site) site:empty_bucket() end,
        check = function(site) site:check_bucket(PREFIX) end,

        contestants = {
            { name = "ncrun", command = function(site) return peers.ncrun(site.input, site:url(PREFIX)) end },
            { name = "aws", command = function(site) return peers.aws(site, site.input, site:url(PREFIX)) end },
            { name = "rclone", command = function(site)
                return peers.rclone(site.input, peers.rclone_place(site, PREFIX))
            end },
            { name = "s3cmd", command = function(site)
                return peers.s3cmd(site, "put", site.input .. "/", site:url(PREFIX))
            end },
        },
        gates = {
            { "wall", "ncrun", "aws", 0.65 },
            { "wall", "ncrun", "rclone", 0.65 },
        },
    }
end

return { case("up-http", "http"), case("up-https", "https") }
