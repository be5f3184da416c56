--- Serve a model: place its weights on this node's NVMe, then start the engine that loads them from there.
--
--   ncrun recipes/serve.lua model=inkling vendor=amd                 both, one after the other
--   ncrun recipes/serve.lua model=inkling vendor=amd phase=place     the weights only: an init container
--   ncrun recipes/serve.lua model=inkling vendor=amd phase=engine    the engine only: the container itself
--   ncrun recipes/serve.lua model=owner/name -- vllm serve '{dir}' --port 8000       any other engine
--
-- The weights come from the first of these that holds a complete copy: the NVMe itself, the shared
-- volume, the bucket (NC_BUCKET), else the model hub. While somebody is staging them it waits; nothing is
-- downloaded twice. Every byte is checked, and what is there already is not moved again. The engine's
-- flags are in manifests/engines.lua; {dir} in a command of your own, and MODEL_DIR in its environment,
-- is the folder with the weights. Its readiness is its own port's matter; on SIGTERM it is told, and has
-- grace= to answer what it has begun.

local caches  = require "nc.caches"
local catalog = require "nc.catalog"
local cluster = require "manifests.cluster"
local copies  = require "nc.copy"
local engines = require "nc.engine"
local k8s     = require "nc.k8s"
local log     = require "nc.log"
local place   = require "nc.place"
local proc    = require "nc.proc"
local recipe  = require "nc.recipe"
local s3      = require "nc.s3"
local units   = require "nc.units"
local volume  = require "nc.volume"

local function place_weights(p, model, name, nvme)
    local bucket <close> = p.bucket ~= "" and s3.bucket(p.bucket, { endpoint = p.endpoint ~= "" and p.endpoint or nil })
        or nil
    local done = place.run {
        model = { repository = model.repository, revision = p.revision }, nvme = nvme,
        volume = volume.is_mounted(p.volume) and copies.on_volume(p.volume, name) or nil,
        bucket = bucket and copies.in_bucket(bucket, name),
        job = p.job, wait = p.wait, every = p.every, stale = p.stale, pause = p.pause,
        patience = p.patience, verify = p.verify, memory = p.memory, parallel = p.parallel, stall = p.stall,
        limit_rate = p.limit_rate,
    }
    if done.from == "nvme" then
        log.info(("already on the NVMe: %d files, %s in %s"):format(
            done.files, units.format_size(done.total), nvme.location))
    else
        log.info(("placed %d files, %s in %s: moved %d files, %s from the %s in %s, %s, %d retries"):format(
            done.files, units.format_size(done.total), nvme.location, done.moved, units.format_size(done.bytes),
            done.from, units.format_duration(done.seconds),
            units.format_rate(done.seconds > 0 and done.bytes / done.seconds or 0), done.retries))
    end
end

local function run_engine(p, engine, name, folder)
    -- Closed in reverse: the engine ends first, then what it has compiled is kept.
    local compiled <close> = caches.open {
        name = name, image = engine:cache_name(), nvme = p.nvme, volume = p.volume, every = p.sync,
        patience = p.patience,
    }
    local env = { MODEL_DIR = folder }
    for _, variables in ipairs { compiled:env(), engine.env, { HF_HUB_OFFLINE = "1" } } do
        for variable, value in pairs(variables) do env[variable] = os.getenv(variable) or value end -- the pod's own win
    end
    local server <close> = proc.supervise(engine:command(folder), {
        env = env, grace = math.max(1, p.grace - compiled:share()),
    })
    return server:wait()
end

return recipe {
    summary = "Place a model's weights on this node's NVMe, and serve it from there.",
    params = {
        model      = { nil, "a name of the catalog (" .. table.concat(catalog.names(), ", ") .. ") or owner/name",
                       required = true, env = "MODEL" },
        vendor     = { "nvidia", "whose GPUs serve it", choices = { "nvidia", "amd" }, env = "GPU_VENDOR" },
        phase      = { "all", "place the weights, run the engine, or both", choices = { "all", "engine", "place" } },
        nvme       = { "/mnt/nvme", "the node's own disk; the weights are in its models/<name>/", type = "path" },
        volume     = { "/mnt/shared", "where the shared volume is mounted", type = "path" },
        bucket     = { "", "the bucket's name", env = "NC_BUCKET" },
        endpoint   = { "", "the S3 endpoint, where AWS_ENDPOINT_URL does not say it" },
        revision   = { "main", "what to take from the hub, where nothing holds a copy" },
        name       = { "", "the copy's folder below models/, where it is not the model's own name" },
        wait       = { "6h", "how long to wait for others who stage or place this model", type = "duration" },
        stale      = { "10m", "a stage whose heartbeat is older than that is dead", type = "duration" },
        patience   = { "30s", "how long the volume has for its answer, before it counts as absent", type = "duration" },
        every      = { "5s", "how often to look at what is waited for", type = "duration" },
        pause      = { "1s", "after a try that was broken; twice as long after each", type = "duration" },
        verify     = { false, "read back all that is on the NVMe" },
        parallel   = { 0, "parts in flight; 0: by the number of CPUs" },
        limit_rate = { "0", "bytes a second, at most; 0: no limit", type = "size" },
        memory     = { "0", "most memory for parts in flight; 0: by what the machine has", type = "size" },
        stall      = { "30s", "a request that moves nothing for so long is cut and tried again", type = "duration" },
        sync       = { "15s", "how often compiled modules are copied to a volume that is NFS", type = "duration" },
        grace      = { "60s", "from SIGTERM to the end of all: the pod's terminationGracePeriodSeconds",
                       type = "duration" },
        job        = { "serve", "this job's name, for others who wait", env = "JOB_NAME" },
    },
    command = {}, -- that of manifests/engines.lua

    run = function(p, command)
        local model = catalog.find(p.model, p.vendor)
        local name = p.name ~= "" and p.name or model.name
        local engine
        if p.phase ~= "place" then -- asked for first: a model without one should not be placed for hours
            engine = #command > 0 and engines.custom(command) or engines.find(p.model, p.vendor)
        end
        local nvme = copies.in_folder(p.nvme, name)

        if p.phase ~= "engine" then place_weights(p, model, name, nvme) end
        if engine then return run_engine(p, engine, name, place.require(nvme)) end
    end,

    -- The weights are placed in an init container; the engine's own port says when it is ready.
    manifest = function(p, this)
        local engine = engines.find(p.model, p.vendor)
        local function answers(failures)
            return k8s.probe { path = engine.row.health, port = "http", period = "10s", failures = failures }
        end
        local placing = k8s.init_container(this, {
            k8s.bucket_secret(), k8s.hub_token(), k8s.shared_volume { path = p.volume }, k8s.nvme(p.nvme),
            name = "place", image = cluster.images.client, params = { phase = "place", job = this.name },
            requests = { cpu = "8", memory = "16Gi" },
        })
        return k8s.deployment(this, {
            placing, k8s.gpu_node { vendor = p.vendor }, k8s.shared_volume { path = p.volume }, k8s.nvme(p.nvme),
            k8s.shm "32Gi",
            image = engine.image, params = { phase = "engine", grace = ("%ds"):format(p.grace) },
            requests = { cpu = "16", memory = "128Gi" },
            ports = { { name = "http", containerPort = engine.port } },
            startup = answers(360), readiness = answers(3), liveness = answers(12), -- an hour to load
            load_time = p.wait + 2 * 3600, grace = p.grace + 5,
        })
    end,
}
