-- What the specs of placing share: a hub with a checkpoint, runs of the recipe, looks at the NVMe.
local assert = require "luassert"
local helper = require "spec.helper"
local json = require "dkjson"
local staging = require "spec.staging"

local placing = {}

placing.SHARDS = {}
for i = 1, 4 do placing.SHARDS[i] = ("model-%05d-of-00004.safetensors"):format(i) end

-- Words of the recipe that only places, onto this folder; volume= is nowhere unless one is given. The
-- folder is any user's, as a pod's is its own user's; files stay as they are, or count as touched.
local function words(nvme, ...)
    helper.sh(("find %s -type d -exec chmod a+rwx {} +"):format(nvme))
    return { helper.NCRUN, "recipes/serve.lua", "model=acme/tiny", "phase=place", "nvme=" .. nvme, ... }
end

---@return integer code, string stdout, string stderr
function placing.run(env, nvme, ...)
    return helper.run(words(nvme, ...), { env = env, timeout = 200 })
end

---A placer that goes on in the background.
function placing.start(env, nvme, ...)
    return helper.start(words(nvme, ...), { env = env })
end

---The copy's folder on the NVMe.
function placing.folder(nvme)
    return nvme .. "/models/tiny"
end

---Asserts that the NVMe holds every file of the hub's checkpoint, byte for byte, marked, with nothing
---half-written and nobody at work.
function placing.assert_placed(hub, nvme)
    local folder = placing.folder(nvme)
    local code, out = helper.sh(("diff -r -x '.complete' -x '.plac*' %s/acme/tiny %s"):format(hub, folder))
    assert.equal(0, code, out)
    assert.truthy(helper.read(folder .. "/.complete"), "no marker")
    assert.truthy(helper.read(folder .. "/.placed"), "no .placed")
    local _, left = helper.sh(("cd %s && find . -name '*.part*' -o -name '.placing.[0-9]*'"):format(folder))
    assert.equal("", left)
end

---@return boolean
function placing.is_marked(nvme)
    return helper.read(placing.folder(nvme) .. "/.complete") ~= nil
end

---Bytes of the hub's checkpoint.
function placing.size(hub)
    local _, out = helper.sh(("cd %s/acme/tiny && find . -type f -printf '%%s\n'"):format(hub))
    local bytes = 0
    for n in out:gmatch "%d+" do bytes = bytes + tonumber(n) end
    return math.tointeger(bytes)
end

---A heartbeat of a stage somewhere else, as text.
function placing.heartbeat(fields)
    return json.encode(helper.env({
        version = 1, owner = { job = "stage-weights", pod = "elsewhere", pid = 1 },
        repository = "acme/tiny", commit = ("a"):rep(40), bytes_done = 1 << 20, bytes_total = 8 << 20,
    }, fields or {}))
end

---Writes the heartbeat into a volume's copy.
function placing.beat(root, fields)
    helper.write(root .. "/models/tiny/.staging", placing.heartbeat(fields))
end

---What each side of the server has sent of files: { hub =, bucket = }. Markers and listings are in it.
function placing.sent(server)
    local counters = server:counters()
    local get = counters.s3.ops.GetObject
    local resolve = counters.hub.ops.Resolve
    return {
        hub = staging.sum(counters.cdn.ops, "out") + (resolve and resolve.out or 0),
        bucket = get and get.out or 0,
    }
end

---A bucket more on the local server.
function placing.make_bucket(env, name)
    local other = helper.env(env, { NC_BUCKET = name })
    local code, _, err = helper.run { "curl", "-sS", "-f", "-m", "20", "-X", "PUT",
        "--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        "--user", env.AWS_ACCESS_KEY_ID .. ":" .. env.AWS_SECRET_ACCESS_KEY,
        env.AWS_ENDPOINT_URL .. "/" .. name }
    assert.equal(0, code, err)
    return other
end

return placing
