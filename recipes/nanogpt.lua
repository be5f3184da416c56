--- Train nanoGPT on one node or two; its log is in the bucket while it runs and after the node is gone.
--
--   ncrun recipes/nanogpt.lua                         prepares nanoGPT and trains it, here and now
--   ncrun recipes/nanogpt.lua vendor=amd              on AMD GPUs
--   ncrun recipes/nanogpt.lua job=mine -- python train.py --lr 3e-4        any other training
--   ncrun recipes/nanogpt.lua job=mine run='cd /code && python train.py'   the same, as a line of shell
--   ncrun recipes/nanogpt.lua nodes=2                 in each pod of an Indexed Job of two
--   ncrun render recipes/nanogpt.lua name=mine -- python train.py          the manifest of such a Job
--
-- What the command writes goes to stdout, to a file in logs= where there is such a folder (an emptyDir),
-- to <volume>/logs/ where a shared volume is mounted, and with NC_BUCKET set to logs/<job>/<pod>.log in
-- the bucket: every 60 s, at once on SIGTERM, and at the end. Read it with recipes/read-logs.lua. The
-- exit code is the command's own, 128+n when signal n ended it, whatever became of its log.

local cluster = require "manifests.cluster"
local errors  = require "nc.errors"
local k8s     = require "nc.k8s"
local logs    = require "nc.logs"
local proc    = require "nc.proc"
local recipe  = require "nc.recipe"
local sys     = require "nc.core.sys"

-- Where an image has no PyTorch of its own.
local WHEELS <const> = {
    nvidia = "https://download.pytorch.org/whl/cu126",
    amd    = "https://download.pytorch.org/whl/rocm6.3",
}

-- In the environment: SOURCE, WHEELS, STEPS, NODES, NODE_RANK, MASTER_ADDR, MASTER_PORT. A manifest holds
-- it as a file of its own, so that it is there to run where ncrun is not.
local TRAIN <const> = [[
set -eu
cd "$(mktemp -d)"
python3 -c 'import torch' 2>/dev/null || pip install -q torch --index-url "$WHEELS"
python3 -c 'import numpy, requests' 2>/dev/null || pip install -q numpy requests
python3 -c '
import io, sys, tarfile, urllib.request
tarfile.open(fileobj=io.BytesIO(urllib.request.urlopen(sys.argv[1]).read())).extractall()' "$SOURCE"
cd */
python3 data/shakespeare_char/prepare.py

gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())')
set -- train.py config/train_shakespeare_char.py "--max_iters=$STEPS" "--lr_decay_iters=$STEPS"
if [ "$gpus" = 0 ]; then
    exec python3 "$@" --device=cpu --compile=False
fi
set -- "$@" "--gradient_accumulation_steps=$((gpus * NODES))" # which the ranks share
if [ "$NODES" = 1 ]; then
    exec torchrun --standalone "--nproc-per-node=$gpus" "$@"
fi
tries=0
until getent hosts "$MASTER_ADDR" >/dev/null; do # the other pod may not have an address yet
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { echo "no address for $MASTER_ADDR after 10 minutes" >&2; exit 1; }
    sleep 1
done
exec torchrun "--nnodes=$NODES" "--nproc-per-node=$gpus" "--node-rank=$NODE_RANK" \
    "--master-addr=$MASTER_ADDR" "--master-port=$MASTER_PORT" --rdzv-conf timeout=900 "$@"
]]

local NANOGPT <const> = { "sh", "-c", TRAIN }

-- Pod NAME-1 of a Job NAME with a Service of that name: its first node is NAME-0.NAME.
local function first_node(host)
    local name = host:match "^(.+)%-%d+$"
    return name and ("%s-0.%s"):format(name, name) or host
end

-- The same as a script that knows what it needs where nothing else says it.
local function train_script(p, job)
    return ([[
: "${SOURCE:=%s}" "${WHEELS:=%s}" "${STEPS:=%d}" "${NODES:=%d}"
: "${NODE_RANK:=${JOB_COMPLETION_INDEX:-0}}" "${MASTER_ADDR:=%s-0.%s}" "${MASTER_PORT:=%d}"
]]):format(p.source, WHEELS[p.vendor], p.steps, p.nodes, job, job, p.port) .. TRAIN
end

return recipe {
    summary = "Run a training, nanoGPT unless told otherwise, and keep its log.",
    params = {
        nodes    = { 1, "nodes to train on", choices = { 1, 2 } },
        vendor   = { "nvidia", "GPU vendor", choices = { "nvidia", "amd" }, env = "GPU_VENDOR" },
        job      = { "", "name of the log's folder; by default nanogpt, or nanogpt-mn on two nodes", env = "JOB" },
        run      = { "", "a line of shell to run in place of nanoGPT (or a command after --)" },
        steps    = { 5000, "nanoGPT: steps to train" },
        source   = { "https://github.com/karpathy/nanoGPT/archive/refs/heads/master.tar.gz", "nanoGPT: its source" },
        rank     = { 0, "which of the nodes this one is", env = "JOB_COMPLETION_INDEX" },
        master   = { "", "the first node's name; by default <name>-0.<name> for host <name>-1", env = "MASTER_ADDR" },
        port     = { 29500, "the first node's port", env = "MASTER_PORT" },
        every    = { "60s", "longest a line waits to reach the bucket", type = "duration" },
        grace    = { "30s", "from SIGTERM to the end of all: the pod's terminationGracePeriodSeconds",
                     type = "duration" },
        pod      = { "", "name of the log; by default the host's", env = "POD_NAME" },
        logs     = { "/logs", "folder for the log file, where there is such a folder", type = "path" },
        bucket   = { "", "the bucket's name", env = "NC_BUCKET" },
        endpoint = { "", "the S3 endpoint, where AWS_ENDPOINT_URL does not say it" },
        volume   = { "/mnt/shared", "where the shared volume is mounted", type = "path" },
    },
    command = NANOGPT,

    run = function(p, command)
        if p.run ~= "" then
            if command ~= NANOGPT then error(errors.usage "run= or a command after --, not both", 0) end
            command = { "sh", "-c", p.run }
        end
        local job = p.job ~= "" and p.job or (p.nodes == 1 and "nanogpt" or "nanogpt-mn")

        -- Closed in reverse: the training ends first, then its last lines go up.
        local log <close> = logs.keep {
            job = job, pod = p.pod ~= "" and p.pod or nil, every = p.every, folder = p.logs, volume = p.volume,
            bucket = p.bucket, endpoint = p.endpoint ~= "" and p.endpoint or nil,
        }
        local train <close> = proc.supervise(command, {
            output = log, grace = p.grace,
            env = {
                SOURCE = p.source, WHEELS = WHEELS[p.vendor], STEPS = p.steps,
                NODES = p.nodes, NODE_RANK = p.rank, MASTER_PORT = p.port,
                MASTER_ADDR = p.master ~= "" and p.master or first_node(sys.hostname()),
                PYTHONUNBUFFERED = os.getenv "PYTHONUNBUFFERED" or "1", -- lines when they happen
            },
        })
        return train:wait()
    end,

    manifest = function(p, this)
        local default = p.run == "" and not this.command
        local grace = math.max(p.grace, 60) // 1
        return k8s.job(this, {
            k8s.gpu_node { vendor = p.vendor }, k8s.bucket_secret(), k8s.shared_volume(),
            k8s.scratch("logs", p.logs), k8s.shm "32Gi",
            image = cluster.images.pytorch[p.vendor], requests = { cpu = "8", memory = "64Gi" },
            nodes = p.nodes, retries = p.nodes > 1 and 2 or 0, deadline = p.nodes > 1 and "24h" or nil,
            params = { job = p.job ~= "" and p.job or this.name, grace = ("%ds"):format(grace), run = false },
            files = default and { train = train_script(p, this.name) } or nil,
            command = default and { "sh", this.folder .. "/train" } or { "sh", "-c", p.run },
            goes_on = true, grace = grace + 5, -- the kubelet's patience outlasts ours
        })
    end,
}
