--- A checkpoint from the hub into a bucket, over http, with no disk in between.
--
-- All take the files' names from a list or from the hub and read from the hub's resolve URLs. What they
-- check differs: ncrun compares every file's SHA-256 with the hub's, sends the SHA-256 of each part and
-- commits with a manifest. rclone and aws send digests of each part (SHA-256, rclone MD5 too) but can't
-- know whether what came is what was published. "rclone, unchecked" puts each file in one request
-- that is not even hashed, which S3 allows up to 5 GiB.

local REPOSITORY <const> = "bench/checkpoint"
local PREFIX <const> = "models/checkpoint/"

local function resolve_url()
    return os.getenv "HF_ENDPOINT" .. "/" .. REPOSITORY .. "/resolve/main/"
end

-- More, larger or smaller parts made no clear difference to its time; more of them cost memory.
local function rclone(site, ...)
    local words = {
        "rclone", "copy", "--no-traverse", "--files-from-raw", site.dir .. "/files",
        "--transfers", "8", "--s3-no-check-bucket", "--s3-no-head",
        "--retries", "1", "--low-level-retries", "3", ...,
    }
    local to = (":s3,provider=Other,env_auth,region=us-east-1,endpoint='%s':%s/%s"):format(
        os.getenv "AWS_ENDPOINT_URL", os.getenv "NC_BUCKET", PREFIX)
    return table.move({ "--http-url", resolve_url(), ":http:", to }, 1, 4, #words + 1, words)
end

return {
    describe = function(site) return site:describe_input() .. ", hub to bucket over http" end,

    setup = function(site)
        site:checkpoint(REPOSITORY)
        site:serve()
        local list <close> = assert(io.open(site.dir .. "/files", "w"))
        for path in pairs(site.files) do list:write(path, "\n") end
    end,

    clear = function(site) site:empty_bucket() end,
    check = function(site) site:check_bucket(PREFIX) end,

    contestants = {
        { name = "ncrun", command = function()
            return { "build/ncrun", "recipes/stage-weights.lua", "model=" .. REPOSITORY }
        end },
        { name = "rclone", command = function(site)
            return rclone(site, "--s3-upload-cutoff", "16Mi", "--s3-chunk-size", "16Mi",
                "--s3-upload-concurrency", "4")
        end },
        { name = "rclone, unchecked", command = function(site)
            return rclone(site, "--s3-upload-cutoff", "5Gi", "--s3-disable-checksum")
        end },
        { name = "curl | aws", command = function(site)
            return { "xargs", "-a", site.dir .. "/files", "-P", "4", "-I{}", "sh", "-c",
                ("curl -sSfL '%s{}' | aws --endpoint-url '%s' s3 cp --quiet - 's3://%s/%s{}'"):format(
                    resolve_url(), os.getenv "AWS_ENDPOINT_URL", os.getenv "NC_BUCKET", PREFIX) }
        end },
    },
}
