-- What the specs of staging share: a hub with a checkpoint, runs of the recipe, looks at the bucket.
local assert = require "luassert"
local helper = require "spec.helper"
local json = require "dkjson"

local staging = {}

staging.SHARD = "model-00002-of-00004.safetensors"

---A hub folder that holds acme/tiny: shards of several parts each, and five small files.
function staging.hub(size, shards)
    local hub = helper.tmp()
    helper.checkpoint(hub .. "/acme/tiny", { size = size or "64MiB", shards = shards or 4 })
    return hub
end

---@return integer code, string stdout, string stderr
function staging.run(env, ...)
    return helper.ncrun({ "recipes/stage-weights.lua", "model=acme/tiny", ... }, { env = env, timeout = 200 })
end

---A stage that goes on in the background.
function staging.start(env, ...)
    return helper.start({ helper.NCRUN, "recipes/stage-weights.lua", "model=acme/tiny", ... }, { env = env })
end

---A signed request by a client that is not ours.
function staging.curl(env, method, key)
    return helper.run { "curl", "-sS", "-f", "-m", "60", "-X", method,
        "--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        "--user", env.AWS_ACCESS_KEY_ID .. ":" .. env.AWS_SECRET_ACCESS_KEY,
        ("%s/%s/%s"):format(env.AWS_ENDPOINT_URL, env.NC_BUCKET, key) }
end

---Puts a file into the bucket by a client that is not ours.
function staging.put(env, path, key, ...)
    local code, _, err = helper.run({ "aws", "--endpoint-url", env.AWS_ENDPOINT_URL, "s3", "cp", path,
        ("s3://%s/%s"):format(env.NC_BUCKET, key), ... }, { env = env })
    if code ~= 0 then error(err, 2) end
end

---@return string|nil
function staging.object(env, key)
    local code, body = staging.curl(env, "GET", key)
    return code == 0 and body or nil
end

---The marker of that name, decoded; `.complete` unless said otherwise.
function staging.marker(env, name)
    local body = staging.object(env, "models/tiny/" .. (name or ".complete"))
    return body and json.decode(body)
end

---The local server's unfinished uploads.
function staging.uploads(server)
    local _, uploads = helper.run { "curl", "-sSf", server.admin .. "/uploads" }
    return json.decode(uploads)
end

---@return string 64 hex digits
function staging.sha256(path)
    local _, out = helper.run({ "sha256sum", path }, { timeout = 60 })
    return out:match "^%x+"
end

local function files_of(hub)
    local _, out = helper.sh("cd " .. hub .. "/acme/tiny && find . -type f -printf '%P\n' | sort")
    local files = {}
    for file in out:gmatch "[^\n]+" do files[#files + 1] = file end
    return files
end

---Asserts that every file is in the bucket byte for byte, and that the manifest says what is true.
---@return table manifest
function staging.assert_staged(env, hub)
    local manifest = assert(staging.marker(env), "no .complete")
    local listed = {}
    for _, f in ipairs(manifest.files) do listed[f.path] = f end
    local files = files_of(hub)
    assert.equal(#files, manifest.total_files)
    for _, file in ipairs(files) do
        local path = hub .. "/acme/tiny/" .. file
        local original = helper.read(path)
        local staged = assert(staging.object(env, "models/tiny/" .. file), file .. " is not there")
        assert.is_true(original == staged, file .. " differs")
        assert.equal(#original, listed[file].size)
        assert.equal(staging.sha256(path), listed[file].sha256)
        local _, xxh = helper.sh(("head -c %d %s | xxh128sum"):format(listed[file].part_size, path))
        assert.equal(xxh:match "^%x+", listed[file].parts[1])
    end
    return manifest
end

---One field of all operations of one side of the counters.
function staging.sum(ops, field)
    local n = 0
    for _, op in pairs(ops) do n = n + op[field] end
    return n
end

return staging
