--- Stage a checkpoint: from the model hub that publishes it into the bucket (or onto the shared
--- volume), every byte checked, marked complete only when all of it is there.
--
--   ncrun recipes/stage-weights.lua model=inkling vendor=amd
--   ncrun recipes/stage-weights.lua model=owner/name revision=v1.1     any repository of the hub
--   ncrun recipes/stage-weights.lua model=kimi-k3 to=volume
--
-- The copy lies under models/<name>/. Run it again after whatever happened: only what is missing
-- moves. NC_BUCKET and the AWS_* variables say where the bucket is, HF_TOKEN opens gated models.

local catalog = require "nc.catalog"
local cluster = require "manifests.cluster"
local copies  = require "nc.copy"
local errors  = require "nc.errors"
local hub     = require "nc.hub"
local k8s     = require "nc.k8s"
local log     = require "nc.log"
local recipe  = require "nc.recipe"
local s3      = require "nc.s3"
local stage   = require "nc.stage"
local units   = require "nc.units"
local volume  = require "nc.volume"

-- "*.safetensors,*.json" -> a list of patterns, or nil for none
local function patterns(text)
    local list = {}
    for pattern in text:gmatch "[^,%s]+" do list[#list + 1] = pattern end
    return #list > 0 and list or nil
end

local function open_bucket(p)
    if p.bucket == "" then
        error(errors.usage "to=bucket needs the bucket's name: set NC_BUCKET or bucket=", 0)
    end
    return s3.bucket(p.bucket, { endpoint = p.endpoint ~= "" and p.endpoint or nil })
end

-- NFS stalls when writes run far ahead of the server: there, few parts are in flight, which come nearly
-- in the order of their files.
local function parallel_of(p)
    local nfs = p.to == "volume" and volume.kind(p.volume) == "nfs"
    return p.parallel == 0 and nfs and 8 or p.parallel
end

return recipe {
    summary = "Stage a model's checkpoint from the hub into the bucket or onto the volume.",
    params = {
        model     = { nil, "a name of the catalog (" .. table.concat(catalog.names(), ", ") .. ") or owner/name",
                      required = true, env = "MODEL" },
        vendor    = { "nvidia", "whose GPUs will serve it", choices = { "nvidia", "amd" }, env = "GPU_VENDOR" },
        to        = { "bucket", "where the copy goes", choices = { "bucket", "volume" } },
        revision  = { "main", "branch, tag or commit on the hub" },
        name      = { "", "the copy's folder below models/, where it is not the model's own name" },
        bucket    = { "", "the bucket's name", env = "NC_BUCKET" },
        endpoint  = { "", "the S3 endpoint, where AWS_ENDPOINT_URL does not say it" },
        volume    = { "/mnt/shared", "where the shared volume is mounted", type = "path" },
        allow     = { "", "only these files: patterns such as *.safetensors, separated by commas" },
        ignore    = { "", "not these files" },
        parallel  = { 0, "parts in flight; 0: by the number of CPUs; 8 on a volume that is NFS" },
        part_size = { "0", "bytes of a part, 5MiB to 5GiB; 0: by the file's size", type = "size" },
        limit_rate = { "0", "bytes a second in each direction, at most; 0: no limit", type = "size" },
        memory    = { "0", "most memory for parts in flight; 0: by what the machine has", type = "size" },
        stall     = { "30s", "a request that moves nothing for so long is cut and tried again", type = "duration" },
        soft_cap  = { "2TiB", "warn when the bucket's models are more than this", type = "size" },
        verify    = { false, "read back files that were there before" },
        wait      = { "6h", "how long to wait for another stage of the same model", type = "duration" },
        job       = { "stage-weights", "this job's name in the heartbeat", env = "JOB_NAME" },
    },

    run = function(p)
        local found = catalog.find(p.model, p.vendor)
        local name = p.name ~= "" and p.name or found.name
        local bucket <close> = p.to == "bucket" and open_bucket(p) or nil
        local copy = bucket and copies.in_bucket(bucket, name)
            or copies.in_folder(volume.require(p.volume), name)

        local model = hub.open():pin(found.repository, p.revision) -- one commit for all of it
        log.info(("staging %s at %s into %s"):format(model.repository, model.commit:sub(1, 8), copy.location))

        local done = stage.run {
            model = model, copy = copy, job = p.job,
            allow = patterns(p.allow), ignore = patterns(p.ignore),
            parallel = parallel_of(p), part_size = p.part_size, memory = p.memory,
            stall = p.stall, limit_rate = p.limit_rate,
            soft_cap = bucket and p.soft_cap, verify = p.verify, wait = p.wait,
        }

        if done.already then
            log.info(("already complete: %d files, %s in %s"):format(
                done.files, units.format_size(done.total), copy.location))
        else
            log.info(("staged %d files, %s in %s: moved %d files, %s in %s, %s, %d retries"):format(
                done.files, units.format_size(done.total), copy.location, done.moved,
                units.format_size(done.bytes), units.format_duration(done.seconds),
                units.format_rate(done.seconds > 0 and done.bytes / done.seconds or 0), done.retries))
        end
    end,

    manifest = function(p, this)
        return k8s.job(this, {
            k8s.cpu_worker(), k8s.bucket_secret(), k8s.hub_token(), p.to == "volume" and k8s.shared_volume(),
            image = cluster.images.client, params = { job = this.name },
            requests = { cpu = "4", memory = "8Gi" }, limits = { memory = "16Gi" },
            retries = 6, final = { 2, 3, 4, 5 }, -- usage, not found, access refused, no space
            grace = "60s",
        })
    end,
}
