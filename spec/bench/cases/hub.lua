--- A checkpoint from the hub into a bucket, with no disk in between, and onto a disk.
--
-- Into the bucket all take the files' names from a list or from the hub and read from the hub's resolve URLs. What they
-- check differs: ncrun compares every file's SHA-256 with the hub's, sends the SHA-256 of each part and
-- commits with a manifest. rclone and aws send digests of each part (SHA-256, rclone MD5 too) but can't
-- know whether what came is what was published. "rclone, unchecked" puts each file in one request
-- that is not even hashed, which S3 allows up to 5 GiB.
--
-- Two cases hold the way beside its halves: over links that are the bottleneck, where it should take as
-- long as the slower half, and over none, where the processors are and it should take what both do.
--
-- Onto the disk, where bytes count once they are synced, ncrun compares SHA-256 too; curl checks nothing.

local peers = require "peers"

local REPOSITORY <const> = "bench/checkpoint"
local PREFIX <const> = "models/checkpoint/"
local LINK_S <const> = 12 -- how long all of it takes on one link

local function setup(site, scheme)
    site:make_checkpoint(REPOSITORY)
    site:serve(scheme)
    local list = {}
    for path in pairs(site.sizes) do list[#list + 1] = path .. "\n" end
    site.list = site:write("files", table.concat(list))
end

local function resolve_url()
    return os.getenv "HF_ENDPOINT" .. "/" .. REPOSITORY .. "/resolve/main/"
end

-- More, larger or smaller parts made no clear difference to its time; more of them cost memory.
local function rclone(site, ...)
    return peers.rclone(":http:", peers.rclone_place(site, PREFIX), "--no-traverse",
        "--files-from-raw", site.list, "--http-url", resolve_url(), ...)
end

local function against_peers(name, scheme)
    return {
        name = name,
        describe = function(site) return ("%s, hub to bucket over %s"):format(site:describe_large(), scheme) end,
        setup = function(site) setup(site, scheme) end,
        clear = function(site) site:empty_bucket() end,
        check = function(site) site:check_bucket(PREFIX) end,

        contestants = {
            { name = "ncrun", command = function() return peers.ncrun_stage(REPOSITORY) end },
            { name = "rclone", command = function(site) return rclone(site) end },
            { name = "rclone, unchecked", command = function(site)
                return rclone(site, "--s3-upload-cutoff", "5Gi", "--s3-disable-checksum")
            end },
            { name = "curl | aws", command = function(site)
                return { "xargs", "-a", site.list, "-P", "4", "-I{}", "sh", "-c",
                    ("curl -sSfL '%s{}' | %s cp --quiet - '%s{}'"):format(
                        resolve_url(), table.concat(peers.aws_s3(site), " "), site:url(PREFIX)) }
            end },
        },
        gates = {
            { "wall", "ncrun", "rclone", 0.6 },
            { "memory", "ncrun", nil, 300 << 20 },
        },
    }
end

local WHOLE <const>, DOWN <const>, UP <const> = "ncrun", "hub to nowhere", "folder to bucket"

local function against_halves(name, what, limited, gate)
    return {
        name = name,
        describe = function(site)
            return ("%s, hub to bucket and its halves alone, %s"):format(site:describe_large(), what)
        end,

        setup = function(site)
            setup(site, "http")
            if limited then site:limit(site.size // LINK_S) end
        end,

        clear = function(site) site:empty_bucket() end,
        check = function() end, -- one half leaves nothing to look at; each fails where its files do

        contestants = {
            { name = WHOLE, command = function(site) return peers.engine("hub:" .. REPOSITORY, site:url(PREFIX)) end },
            { name = DOWN, command = function() return peers.engine("hub:" .. REPOSITORY, "none") end },
            { name = UP, command = function(site) return peers.ncrun(site.input, site:url(PREFIX)) end },
        },
        gates = { gate },
    }
end

local function folder(site) return site.disk .. "/out" end

local function to_directory(name, scheme)
    return {
        name = name,
        describe = function(site)
            return ("%s, hub to disk with sync over %s"):format(site:describe_large(), scheme)
        end,

        setup = function(site) setup(site, scheme) end,
        clear = function(site) site:empty_folder(folder(site)) end,
        check = function(site, bytes) site:check_folder(folder(site), bytes) end,

        contestants = {
            { name = "ncrun", command = function(site) return peers.engine("hub:" .. REPOSITORY, folder(site)) end },
            { name = "16 curl, sync", command = function(site)
                return peers.synced(folder(site), peers.curl_hub(site, REPOSITORY, folder(site)))
            end },
        },
        gates = scheme == "http" and { { "wall", "ncrun", "16 curl, sync", 1.0 } } or nil,
    }
end

return {
    against_peers("hub-to-bucket", "http"),
    against_peers("hub-to-bucket-https", "https"),
    against_halves("hub-to-bucket-link", ("each link as fast as to take %d s for it"):format(LINK_S), true, {
        what = "wall: ncrun / the slower half", most = 1.1,
        of = function(m) return m[WHOLE].wall / math.max(m[DOWN].wall, m[UP].wall) end,
    }),
    against_halves("hub-to-bucket-cpu", "no limit but the processors", false, {
        what = "wall: ncrun / the sum of its halves", most = 1.15,
        of = function(m) return m[WHOLE].wall / (m[DOWN].wall + m[UP].wall) end,
    }),
    to_directory("hub-to-directory", "http"),
    to_directory("hub-to-directory-https", "https"),
}
