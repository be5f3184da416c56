--- Run an application on a Slurm node behind InterLink: its input comes from Ceph S3, its result goes back
--- there before the process exits, whatever ends it.
--
--   ncrun recipes/interlink-job.lua -- sh -c './run-application "$NC_INPUT/input.dat" > "$NC_OUTPUT/result.dat"'
--   ncrun recipes/interlink-job.lua input=input/a.dat,input/b.dat -- ./simulate
--   ncrun render only=interlink-job            the pod that runs this file through InterLink
--
-- Block volumes don't mount there, the scratch folder goes with the job, and a pod that is deleted has next
-- to no time: so everything goes through the bucket, and goes up while the job runs. NC_INPUT is the folder
-- with the input, NC_OUTPUT that for results, which are output/<hostname>/ in the bucket; NC_CHECKPOINTS
-- that for checkpoints, NC_RESUME the one to go on from (resume=latest). The Secret interlink-s3 has the
-- credentials: access-key, secret-key and endpoint, which the pod gets as AWS_ACCESS_KEY_ID,
-- AWS_SECRET_ACCESS_KEY and S3_ENDPOINT.

local batch    = require "nc.batch"
local cluster  = require "manifests.cluster"
local errors   = require "nc.errors"
local inputs   = require "nc.inputs"
local k8s      = require "nc.k8s"
local logs     = require "nc.logs"
local outgoing = require "nc.outgoing"
local places   = require "nc.places"
local proc     = require "nc.proc"
local recipe   = require "nc.recipe"
local results  = require "nc.results"
local scratch  = require "nc.scratch"
local stores   = require "nc.stores"
local sys      = require "nc.core.sys"

local APPLICATION <const> = { "sh", "-c", './run-application "$NC_INPUT"/* > "$NC_OUTPUT/result.dat"' }

-- What the rendered Job runs unless it is given a command, in an image that has no application.
local EXAMPLE <const> = { "sh", "-c", 'sha256sum "$NC_INPUT"/* >"$NC_OUTPUT/result.dat"' }

local function need(value, what)
    if value == "" then error(errors.usage("needs %s", what), 0) end
    return value
end

-- The name that a job in HOSTNAME's place has; the shell's variable is not always exported.
local function hostname()
    local name = os.getenv "HOSTNAME"
    return name and name ~= "" and not name:find "[/%c]" and name or sys.hostname()
end

return recipe {
    summary = "Run an application on a Slurm node behind InterLink, with its data in Ceph S3.",
    params = {
        bucket   = { "", "the private bucket", env = "NC_BUCKET" },
        endpoint = { "", "the outside https endpoint: the Secret's `endpoint`", env = "S3_ENDPOINT" },
        input    = { "input/input.dat", "what to stage in: keys of the bucket or s3://..., by commas" },
        archive  = { "auto", "archives to unpack: those that input= names, also those in its folders, or none",
                     choices = { "auto", "all", "no" } },
        output   = { "output", "the prefix that results go to, in a folder of the host's name" },
        name     = { "", "that folder's name, where it is not the host's" },
        publish  = { "60s", "how often what is new of the results goes up while the job runs", type = "duration" },
        settle   = { "10s", "a checkpoint that has not changed for so long is whole", type = "duration" },
        complete = { "", "the file that completes a checkpoint: .done is step-1.pt.done, or step-1/.done" },
        keep     = { 3, "checkpoints that stay in the bucket" },
        resume   = { "no", "stage in the newest whole checkpoint first", choices = { "no", "latest" } },
        every    = { "60s", "longest a line of the log waits to reach the bucket", type = "duration" },
        grace    = { "28s", "from SIGTERM to the end of all: a little less than Slurm's KillWait", type = "duration" },
        job      = { "interlink-job", "the job's name: of its log, checkpoints and work folder", env = "JOB_NAME" },
        -- of the manifest
        site     = { "interlink-site", "the virtual node: its kubernetes.io/hostname" },
        flags    = { "", "what its sbatch gets besides, such as --gres=gpu:1 --time=60" },
        image    = { cluster.images.python, "the image that has the application" },
        secret   = { cluster.nrp.interlink.secret, "the Secret: access-key, secret-key, endpoint" },
    },
    command = APPLICATION,

    run = function(p, command)
        proc.hold_signals() -- an early warning must not end us while data comes in
        need(p.bucket, "bucket=, or NC_BUCKET: the private bucket with the input")
        local where = { endpoint = places.outside(need(p.endpoint,
            "endpoint=, or S3_ENDPOINT: the outside https endpoint, which the Secret has as `endpoint`")) }
        local host = p.name ~= "" and p.name or hostname()
        local me = batch.here { job = p.job }
        -- Closed in reverse: the work folder last.
        local work <close> = scratch.open { name = me.job } -- in TMPDIR
        local out_folder, checkpoints = work.path .. "/output", work.path .. "/checkpoints"
        sys.mkdir(out_folder)

        local kept <close> = logs.keep {
            job = me.job, pod = host .. "-" .. me.run, every = p.every, bucket = p.bucket, endpoint = where.endpoint,
        }
        inputs.stage(places.list(p.input, p.bucket), work.path .. "/input", {
            unpack = p.archive, endpoint = where.endpoint,
        })

        local to <close> = stores.open(places.folder(p.output, p.bucket) .. host .. "/", where)
        local shelf <close> = stores.open(places.folder("checkpoints/" .. me.job, p.bucket), where)
        local out <close> = outgoing.keep {
            log = kept, results = results.open { folder = out_folder, to = to }, every = p.publish, scratch = work,
            checkpoints = {
                folder = checkpoints, to = shelf, whose = me.job,
                keep = p.keep, settle = p.settle, complete = p.complete ~= "" and p.complete or nil,
            },
        }
        local resumed = p.resume == "latest" and out:resume()
        return out:run(command, {
            grace = p.grace,
            env = {
                NC_WORK = work.path, NC_INPUT = work.path .. "/input", NC_OUTPUT = out_folder,
                NC_CHECKPOINTS = checkpoints, NC_RESUME = resumed or "",
            },
        })
    end,

    manifest = function(p, this)
        local function key(name) return { secret = p.secret, key = name } end
        -- A site knows Secrets, ConfigMaps and emptyDirs alone, and gives 1 MB to a pod without limits.
        local size = { cpu = "1", memory = "4Gi" }
        return k8s.job(this, {
            k8s.interlink_node {
                host = p.site, flags = p.flags ~= "" and p.flags or nil,
                pre_exec = "trap '' TERM", -- or the site's batch script ends before the application can
            },
            k8s.env {
                AWS_ACCESS_KEY_ID = key "access-key", AWS_SECRET_ACCESS_KEY = key "secret-key",
                S3_ENDPOINT = key "endpoint", AWS_EC2_METADATA_DISABLED = "true",
                AWS_REQUEST_CHECKSUM_CALCULATION = "when_required", AWS_RESPONSE_CHECKSUM_VALIDATION = "when_required",
            },
            image = p.image, requests = size, limits = size, command = EXAMPLE,
            params = {
                job = this.name, bucket = p.bucket ~= "" and p.bucket or "bucket-name",
                site = false, flags = false, image = false, secret = false, endpoint = false,
            },
            grace = "30s",
        })
    end,
}
