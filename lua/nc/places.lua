--- What people write for a place: keys of the job's bucket, addresses of others, paths.
--
--     places.list("dataset.tar.gz, s3://other/data/ /mnt/shared/x", "mine")
--         --> { "s3://mine/dataset.tar.gz", "s3://other/data/", "/mnt/shared/x" }
--
-- A word that begins with "/", "./" or "../" is a path, one that begins with "s3://" an address; any other
-- is a key of the bucket. Pure.

local errors = require "nc.errors"

local places = {}

--- The address of one place.
---@param bucket string?  the job's
---@return string
function places.address(word, bucket)
    if word:find "^[sS]3://" or word:find "^%.?%.?/" then return word end
    if bucket and bucket ~= "" then return ("s3://%s/%s"):format(bucket, word) end
    error(errors.usage('"%s" is a key, and no bucket is set: set NC_BUCKET, or write s3://bucket/%s, or ./%s',
        word, word, word), 0)
end

--- The addresses of places separated by commas or blanks.
---@return string[]
function places.list(text, bucket)
    local list = {}
    for word in text:gmatch "[^,%s]+" do list[#list + 1] = places.address(word, bucket) end
    return list
end

--- The address of a folder, with "/" at its end.
---@return string
function places.folder(word, bucket)
    local address = places.address(word, bucket)
    return address:sub(-1) == "/" and address or address .. "/"
end

--- A folder below another, unless it is a path of its own.
---@return string
function places.below(folder, name)
    if name:sub(1, 1) == "/" then return name end
    return folder .. "/" .. name
end

--- A folder of this task's own, where the job has several.
---@param task string?
---@return string
function places.task(folder, task)
    return task and folder .. "/" .. task or folder
end

-- Names that are resolved inside a cluster alone.
local INSIDE <const> = { "%.rook$", "%.svc$", "%.cluster%.local$", "^[^.]+$" }

--- An S3 endpoint that can be reached from a node outside the cluster; refused with the reason where it
--- can't be, or where the keys' holder would not be sure who answers.
---@return string
function places.outside(url)
    local host = url:match "^https?://([^/:]+)" or ""
    host = host:lower():gsub("%.$", "")
    for _, pattern in ipairs(INSIDE) do
        if host:find(pattern) and host ~= "localhost" then
            error(errors.usage("the endpoint %s: the name %s resolves only inside the cluster, and this job runs "
                .. "outside: set the outside one, such as https://s3-west.nrp-nautilus.io", url, host), 0)
        end
    end
    if not url:find "^https://" then
        error(errors.usage("the endpoint %s: this job runs outside the cluster, where only https is safe: "
            .. "set the outside one, such as https://s3-west.nrp-nautilus.io", url), 0)
    end
    return url
end

return places
