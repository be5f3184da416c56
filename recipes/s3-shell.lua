--- A pod to work with S3 in: keys from a Secret, clients, 100 GiB of scratch, ready to exec into.
--
--   sed s/username/$USER/ s3-shell-pod.yaml | kubectl -n <namespace> apply -f -
--   kubectl -n <namespace> logs -f tutorial-$USER-pod             until it says "ready"
--   kubectl -n <namespace> exec -it tutorial-$USER-pod -- bash
--
-- In it, without configuring anything: ncrun, aws and python3 with boto3 find the keys, the endpoint and
-- $S3_BUCKET in the environment. /scratch goes with the pod: publish what you want to keep.

local cluster = require "manifests.cluster"
local errors  = require "nc.errors"
local k8s     = require "nc.k8s"
local log     = require "nc.log"
local proc    = require "nc.proc"
local recipe  = require "nc.recipe"
local s3      = require "nc.s3"
local task    = require "nc.task"

-- A shell is of use without a bucket or a client too: what is missing is said, and no more.
local function try(what, fn, ...)
    local ok, e = pcall(fn, ...)
    if not ok and errors.is(e, "Cancelled") then error(e, 0) end
    if not ok then log.warn(("%s: %s"):format(what, tostring(e))) end
    return ok
end

local function look_at(name)
    local bucket <close> = s3.bucket(name)
    local first = bucket:list ""()
    log.info(("s3://%s can be read%s"):format(name, first and "" or "; it is empty"))
end

local function install(packages)
    local argv = { "python3", "-m", "pip", "install", "-q", "--no-input" }
    for package in packages:gmatch "%S+" do argv[#argv + 1] = package end
    local done = proc.capture(argv, { timeout = "30m" })
    if done.code ~= 0 then
        error(errors.new { code = "Failed", message = ("pip ended with %s: %s"):format(
            done.code or "a signal", (done.stderr:match "[^\n]*%S[^\n]*\n*$" or ""):gsub("\n", "")) }, 0)
    end
end

return recipe {
    summary = "A pod with S3 clients, keys from a Secret and scratch space, to exec into.",
    params = {
        bucket  = { "", "the bucket to look at", env = "S3_BUCKET" },
        install = { "awscli boto3", "Python packages to have in it", env = "INSTALL" },
        secret  = { cluster.nrp.bucket_secret, "the Secret: keys, AWS_ENDPOINT_URL, S3_BUCKET" },
        scratch = { "100Gi", "how much scratch space" },
        pod     = { "", "this pod's name", env = "POD_NAME" },
    },

    run = function(p)
        if p.bucket ~= "" then try("the bucket", look_at, p.bucket) end
        if p.install ~= "" and try("installing " .. p.install, install, p.install) then
            log.info "Done with installs"
        end
        print(("ready: kubectl exec -it %s -- bash"):format(p.pod ~= "" and p.pod or "<pod>"))
        io.stdout:flush()
        while true do task.sleep "1h" end
    end,

    manifest = function(p, this)
        local size = { cpu = "4", memory = "10Gi", ["ephemeral-storage"] = p.scratch }
        return k8s.pod(this, {
            k8s.bucket_secret { name = p.secret, optional = false }, k8s.scratch("scratch", "/scratch", p.scratch),
            image = cluster.images.python, requests = size, limits = size, grace = "5s",
            params = { install = p.install, secret = false, scratch = false },
            env = {
                NC_BUCKET = { secret = p.secret, key = "S3_BUCKET" }, -- what ncrun's other recipes look for
                PATH = "/ncrun:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            },
            root = true, -- pip installs into the image's own Python
        })
    end,
}
