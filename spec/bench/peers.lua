--- Command lines of the contestants, each with the settings that its own users reach for where there is
--- much to move: 32 connections, parts of 16 MiB, no requests that only make sure.

local proc = require "nc.proc"

local peers = {}

local function join(...)
    local words = {}
    for _, list in ipairs { ... } do table.move(list, 1, #list, #words + 1, words) end
    return words
end

--- The command, and then a sync of all files of the folder, which ncrun does by itself.
function peers.synced(folder, argv)
    return join({ "sh", "-c", [["$@" && find "$0" -type f -exec sync {} +]], folder }, argv)
end

--- Runs a command that prepares something.
function peers.run(argv)
    local done = proc.capture(argv)
    if done.code ~= 0 then error(("%s: %s"):format(table.concat(argv, " "), done.stderr), 0) end
end

-- ---- ncrun ----

--- A tree from one place to another; more words are options of `ncrun cp`.
function peers.ncrun(from, to, ...)
    return { "build/ncrun", "cp", "-r", "--quiet", from, to, ... }
end

--- The engine between places that `ncrun cp` does not know: hub:owner/name, none.
function peers.engine(from, to)
    return { "build/ncrun", "spec/bench/move.lua", "from=" .. from, "to=" .. to }
end

--- A model of the hub into the bucket, below models/.
function peers.ncrun_stage(repository)
    return { "build/ncrun", "recipes/stage-weights.lua", "model=" .. repository }
end

-- ---- rclone ----

--- A prefix of the bucket as rclone knows it.
function peers.rclone_place(site, prefix)
    return (":s3,provider=Other,env_auth,region=us-east-1,endpoint='%s':%s/%s"):format(
        os.getenv "AWS_ENDPOINT_URL", site.bucket.name, prefix)
end

local RCLONE <const> = {
    "rclone", "copy", "--retries", "1", "--low-level-retries", "3", "--s3-no-check-bucket", "--s3-no-head",
}

--- Large files: eight at a time, each in four streams.
function peers.rclone(from, to, ...)
    return join(RCLONE, {
        "--transfers", "8", "--multi-thread-streams", "4", "--multi-thread-cutoff", "16Mi",
        "--s3-upload-cutoff", "16Mi", "--s3-chunk-size", "16Mi", "--s3-upload-concurrency", "4",
        "--use-server-modtime", ...,
    }, { from, to })
end

--- Small files: 32 at a time, and no question about any of them.
function peers.rclone_small(from, to)
    return join(RCLONE, { "--transfers", "32", "--checkers", "32", "--use-server-modtime", from, to })
end

--- Brings the site's input into the bucket, each file in one request where S3 allows it.
function peers.fill(site, prefix)
    peers.run(join(RCLONE, {
        "--transfers", "16", "--s3-upload-cutoff", "5Gi", "--s3-chunk-size", "16Mi", "--s3-disable-checksum",
        site.input, peers.rclone_place(site, prefix),
    }))
    site:check_bucket(prefix)
end

-- ---- aws ----

local AWS_CONFIG <const> = [[
[default]
s3 =
    max_concurrent_requests = 32
    multipart_threshold = 16MB
    multipart_chunksize = 16MB
    addressing_style = path
    signature_version = s3v4
]]

--- "aws s3" with its settings, which are no one else's; what it does is to follow.
function peers.aws_s3(site, ...)
    local config = AWS_CONFIG .. (site.scheme == "https" and "ca_bundle = " .. os.getenv "SSL_CERT_FILE" or "")
    return { "env", "AWS_CONFIG_FILE=" .. site:write("aws-config", config),
        "aws", "--endpoint-url", os.getenv "AWS_ENDPOINT_URL", "s3", ... }
end

function peers.aws(site, from, to)
    return peers.aws_s3(site, "cp", "--recursive", "--only-show-errors", from, to)
end

-- ---- s3cmd ----

--- words: "put" or "get", from, to
function peers.s3cmd(site, verb, from, to)
    local host = os.getenv("AWS_ENDPOINT_URL"):match "//(.*)"
    local transport = site.scheme == "https" and { "--ssl", "--ca-certs=" .. os.getenv "SSL_CERT_FILE" }
        or { "--no-ssl" }
    return join({
        "s3cmd", verb, "--recursive", "--quiet", "--force", "--config=/dev/null",
        "--host=" .. host, "--host-bucket=" .. host,
        "--access_key=" .. os.getenv "AWS_ACCESS_KEY_ID", "--secret_key=" .. os.getenv "AWS_SECRET_ACCESS_KEY",
        "--multipart-chunk-size-mb=16",
    }, transport, { from, to })
end

-- ---- curl ----

-- One process a file, 16 at a time.
local function curls(site, folder, url_of)
    local list = {}
    for path in pairs(site.sizes) do
        list[#list + 1] = ("-o %s/%s %s\n"):format(folder, path, url_of(path))
    end
    table.sort(list)
    return { "xargs", "-a", site:write("curls", table.concat(list)), "-n", "3", "-P", "16", "curl", "-sSfL" }
end

--- Objects below a prefix, by presigned URLs.
function peers.curl_bucket(site, prefix, folder)
    return curls(site, folder, function(path)
        local done = proc.capture(peers.aws_s3(site, "presign", "--expires-in", "86400", site:url(prefix .. path)))
        if done.code ~= 0 then error("aws s3 presign: " .. done.stderr, 0) end
        return done.stdout:match "%S+"
    end)
end

--- Files of a repository of the hub.
function peers.curl_hub(site, repository, folder)
    return curls(site, folder, function(path)
        return ("%s/%s/resolve/main/%s"):format(os.getenv "HF_ENDPOINT", repository, path)
    end)
end

return peers
