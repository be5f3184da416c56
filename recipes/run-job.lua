--- Run any command as a job: data in from S3 or a volume, checkpoints out as they appear, results
--- published before the node is gone. On Kubernetes and on Slurm.
--
--   ncrun recipes/run-job.lua input=dataset.tar.gz -- python train.py        in a pod, or here
--   ncrun recipes/run-job.lua input=s3://other/data/,/mnt/shared/labels.csv resume=latest -- ./train.sh
--   sbatch --signal=B:USR1@120 --wrap 'exec ncrun recipes/run-job.lua resume=latest -- ./train.sh'
--
-- The command finds in its environment: NC_INPUT, the folder with what input= names (archives unpacked);
-- NC_OUTPUT, for its results; NC_CHECKPOINTS, for its checkpoints; NC_RESUME, the checkpoint to go on
-- from, empty where there is none; NC_WORK, the folder that all of them are in. It runs where ncrun was
-- started. Results go to <user>/<job>/ in the bucket, or where output= says, checkpoints to checkpoints/
-- below that, the log to logs/<job>/. On TERM, on Slurm's USR1 and on preemption all of it goes up at once.
-- Write a checkpoint under another name and rename it, and it is never seen half.

local batch    = require "nc.batch"
local cluster  = require "manifests.cluster"
local errors   = require "nc.errors"
local inputs   = require "nc.inputs"
local k8s      = require "nc.k8s"
local log      = require "nc.log"
local logs     = require "nc.logs"
local outgoing = require "nc.outgoing"
local places   = require "nc.places"
local proc     = require "nc.proc"
local recipe   = require "nc.recipe"
local results  = require "nc.results"
local scratch  = require "nc.scratch"
local stores   = require "nc.stores"
local sys      = require "nc.core.sys"

-- What the rendered Job runs unless it is given a command: it shows where things are.
local EXAMPLE <const> = { "sh", "-c", 'ls -R "$NC_INPUT" && ls "$NC_INPUT" >"$NC_OUTPUT/result.txt"' }

local function given(text) return text ~= "" and text or nil end

-- Where the results go; nil where there is neither an address nor a bucket.
local function place_of_results(p, me, bucket)
    if p.output == "" and not bucket then return nil end
    if p.output == "" and not me.user then
        error(errors.usage "results go to <user>/<job>/ in the bucket: set user=, or output=", 0)
    end
    local address = places.folder(given(p.output) or ("%s/%s/"):format(me.user, me.job), bucket)
    return me.task and address .. me.task .. "/" or address -- tasks of an array don't share a folder
end

return recipe {
    summary = "Run a command with its data staged in, its checkpoints and results out before the end.",
    params = {
        input       = { "", "what to stage in, by commas: keys or prefixes/ of the bucket, s3://..., /paths" },
        archive     = { "auto", "archives to unpack: those that input= names, also those in its folders, or none",
                        choices = { "auto", "all", "no" } },
        work        = { "", "the work folder; by default a new one in TMPDIR, /scratch or /tmp" },
        output      = { "", "where results go: a prefix of the bucket, s3://..., a /path; by default <user>/<job>/" },
        checkpoints = { "checkpoints", "the folder with the command's checkpoints; below work= unless it is a /path" },
        complete    = { "", "the file that completes a checkpoint: .done is step-1.pt.done, or step-1/.done" },
        settle      = { "10s", "a checkpoint that has not changed for so long is whole", type = "duration" },
        keep        = { 3, "checkpoints that stay in the bucket" },
        resume      = { "no", "stage in the newest whole checkpoint first", choices = { "no", "latest" } },
        overwrite   = { false, "publish over what another user has put there" },
        every       = { "60s", "longest a line of the log waits to reach the bucket", type = "duration" },
        publish     = { "0", "how often results go up while the command runs; 0: when it ends or is told to",
                        type = "duration" },
        grace       = { "28s", "from SIGTERM to the end of all: a little less than the pod's or KillWait",
                        type = "duration" },
        job         = { "", "the job's name; by default JOB_NAME, Slurm's, or run-job" },
        user        = { "", "whose job it is; by default NRP_USER, USER" },
        run         = { "", "a line of shell to run (or a command after --)" },
        bucket      = { "", "the bucket's name; or S3_BUCKET", env = "NC_BUCKET" },
        endpoint    = { "", "the S3 endpoint, where AWS_ENDPOINT_URL does not say it" },
        volume      = { "/mnt/shared", "where a shared volume is mounted, for the log", type = "path" },
        logs        = { "/logs", "folder for the log file, where there is such a folder", type = "path" },
        -- of the manifest
        image       = { cluster.images.python, "the image that has the command" },
        secret      = { cluster.nrp.bucket_secret, "the Secret: keys, AWS_ENDPOINT_URL, S3_BUCKET" },
        claim       = { "", "a claim of a shared volume, to mount at volume=" },
        scratch     = { "100Gi", "how much scratch space at /scratch" },
        gpus        = { 0, "NVIDIA GPUs" },
    },
    command = {},

    run = function(p, command)
        if (p.run ~= "") == (#command > 0) then error(errors.usage "needs a command after --, or run=", 0) end
        if p.run ~= "" then command = { "sh", "-c", p.run } end
        proc.hold_signals() -- an early warning must not end us while data comes in
        local me = batch.here { job = given(p.job), user = given(p.user) }
        local bucket = given(p.bucket) or given(os.getenv "S3_BUCKET" or "")
        local where = { endpoint = given(p.endpoint) }

        -- Another user's place is refused before anything is done.
        local address = place_of_results(p, me, bucket)
        local to <close> = address and stores.open(address, where) or nil
        local work <close> = scratch.open { name = me.job, path = given(p.work) and places.task(p.work, me.task) }
        local out_folder, checkpoints = work.path .. "/output", places.below(work.path, p.checkpoints)
        sys.mkdir(out_folder)
        sys.mkdir(checkpoints)
        local published = to and results.open {
            folder = out_folder, to = to, user = me.user, job = me.job, overwrite = p.overwrite,
        }
        if published then published:claim() end

        -- Closed in reverse: the command and its uploads end first, then the log's last lines go up.
        local kept <close> = logs.keep {
            job = me.job, pod = me.run, every = p.every, bucket = bucket, endpoint = where.endpoint,
            folder = p.logs, volume = p.volume,
        }
        if not to then log.info "no output= and no bucket: results and checkpoints stay on this node" end

        inputs.stage(places.list(p.input, bucket), work.path .. "/input", {
            unpack = p.archive, endpoint = where.endpoint,
        })

        local shelf <close> = to and stores.open(address .. "checkpoints/", where) or nil
        local out <close> = outgoing.keep {
            log = kept, results = published, every = p.publish, scratch = work,
            checkpoints = shelf and {
                folder = checkpoints, to = shelf, whose = ("%s/%s"):format(me.user or "nobody", me.job),
                keep = p.keep, settle = p.settle, complete = given(p.complete),
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
        local size = { cpu = "4", memory = "10Gi", ["ephemeral-storage"] = p.scratch }
        local limits = { cpu = "4", memory = "10Gi", ["ephemeral-storage"] = p.scratch }
        if p.gpus > 0 then limits[cluster.gpus.nvidia] = tostring(p.gpus) end
        return k8s.job(this, {
            k8s.bucket_secret { name = p.secret, optional = false }, k8s.scratch("scratch", "/scratch", p.scratch),
            p.claim ~= "" and k8s.claim_volume { claim = p.claim, path = p.volume },
            image = p.image, requests = size, limits = limits, command = EXAMPLE,
            params = {
                job = this.name, resume = "latest", grace = "85s",
                image = false, secret = false, claim = false, scratch = false, gpus = false,
            },
            env = { NC_BUCKET = { secret = p.secret, key = "S3_BUCKET" } },
            retries = 3, final = { 2, 4 }, -- usage, access refused
            grace = "90s",
        })
    end,
}
