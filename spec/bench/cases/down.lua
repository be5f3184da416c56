--- A bucket's large objects into a folder: on a disk, where they count once they are synced, and in
--- memory, where nothing but the network and the processors slows anybody down.
--
-- curl has each object's URL and one process for each; the others list the bucket first. s3cmd moves
-- one object at a time.

local peers = require "peers"

local PREFIX <const> = "down/"

local function case(name, scheme, on_disk)
    local function folder(site) return (on_disk and site.disk or site.dir) .. "/out" end
    local function synced(site, argv) return on_disk and peers.synced(folder(site), argv) or argv end
    local curl = on_disk and "16 curl, sync" or "16 curl"
    local gates = {
        { "wall", "ncrun", curl, on_disk and 0.65 or 1.0 },
        { "cpu", "ncrun", curl, on_disk and 0.6 or nil },
        { "wall", "ncrun", "rclone", on_disk and 0.65 or nil },
        { "wall", "ncrun", "aws", on_disk and 0.5 or nil },
    }
    return {
        name = name,
        describe = function(site)
            return ("%s down to %s over %s"):format(site:describe_large(),
                on_disk and "disk with sync" or "tmpfs", scheme)
        end,

        setup = function(site)
            site:make_large()
            site:serve(scheme)
            peers.fill(site, PREFIX)
        end,

        clear = function(site) site:empty_folder(folder(site)) end,
        check = function(site, bytes) site:check_folder(folder(site), bytes) end,

        contestants = {
            { name = "ncrun", command = function(site) return peers.ncrun(site:url(PREFIX), folder(site)) end },
            { name = curl, command = function(site)
                return synced(site, peers.curl_bucket(site, PREFIX, folder(site)))
            end },
            { name = "rclone", command = function(site)
                return synced(site, peers.rclone(peers.rclone_place(site, PREFIX), folder(site)))
            end },
            { name = "aws", command = function(site)
                return synced(site, peers.aws(site, site:url(PREFIX), folder(site)))
            end },
            { name = "s3cmd", command = function(site)
                return synced(site, peers.s3cmd(site, "get", site:url(PREFIX), folder(site) .. "/"))
            end },
        },
        gates = scheme == "http" and gates or nil,
    }
end

return {
    case("down-disk", "http", true),
    case("down-disk-https", "https", true),
    case("down-tmpfs", "http", false),
    case("down-tmpfs-https", "https", false),
}
