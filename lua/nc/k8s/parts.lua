--- The parts that a pod is put together from: where it runs, what it mounts, which variables it has. Each
--- is a plain table of what it adds: { namespace =, annotations =, pod = {...}, container = {...} }.
-- Recipes have them from nc.k8s.

local cluster = require "manifests.cluster"
local errors  = require "nc.errors"
local units   = require "nc.units"
local yaml    = require "nc.yaml"

local parts = {}

--- The keys of a map in their order.
function parts.sorted(t)
    local keys = {}
    for k in pairs(t) do keys[#keys + 1] = k end
    table.sort(keys)
    return keys
end

--- A text as Kubernetes gives it back: it replaces $(NAME) and $$ in args and values of env.
function parts.as_is(s)
    return s:find "%$[$(]" and (s:gsub("%$", "$$")) or s
end

--- { NAME = "text" | { secret =, key =, optional = } | { field = } } as a list, sorted.
function parts.env_list(vars)
    local list = yaml.list()
    for _, name in ipairs(parts.sorted(vars)) do
        local v = vars[name]
        if type(v) ~= "table" then
            list[#list + 1] = { name = name, value = parts.as_is(tostring(v)) }
        elseif v.field then
            list[#list + 1] = { name = name, valueFrom = { fieldRef = { fieldPath = v.field } } }
        else
            list[#list + 1] = { name = name,
                valueFrom = { secretKeyRef = { name = v.secret, key = v.key, optional = v.optional } } }
        end
    end
    return list
end

--- Environment variables. A value is text, { secret =, key =, optional = } or { field = "metadata.name" }.
function parts.env(vars)
    return { container = { env = parts.env_list(vars) } }
end

--- A GPU node, all of it unless `count` says how many GPUs.
---@param o { vendor: string, count: integer? }
function parts.gpu_node(o)
    local resource = cluster.gpus[o.vendor]
    if not resource then error(errors.unknown("GPU vendor", o.vendor, parts.sorted(cluster.gpus)), 2) end
    return {
        namespace = cluster.namespace,
        pod = {
            nodeSelector = cluster.gpu_worker,
            tolerations = { { key = resource, operator = "Exists", effect = "NoSchedule" } },
        },
        container = { resources = { limits = { [resource] = tostring(o.count or cluster.gpus_per_node) } } },
    }
end

--- The CPU worker, which the market never takes back.
function parts.cpu_worker()
    return { namespace = cluster.namespace, pod = { nodeSelector = cluster.cpu_worker } }
end

--- A Slurm site behind InterLink. What a site takes as GPUs goes into flags ("--gres=gpu:1"); pre_exec is
--- a line of shell that its batch script runs first.
---@param o { host: string, flags: string?, pre_exec: string? }
function parts.interlink_node(o)
    return {
        annotations = { ["slurm-job.vk.io/flags"] = o.flags, ["slurm-job.vk.io/pre-exec"] = o.pre_exec },
        pod = {
            nodeSelector = { ["kubernetes.io/hostname"] = o.host },
            tolerations = { { key = cluster.nrp.interlink.taint, operator = "Exists" } },
        },
    }
end

--- The bucket's five variables from the Secret, where the cluster holds it, and what keeps S3 clients
--- from probing for other keys and from sending checksums that servers refuse.
---@param o { name: string?, optional: boolean? }?
function parts.bucket_secret(o)
    o = o or {}
    return {
        namespace = not o.name and cluster.namespace or nil,
        container = {
            envFrom = { { secretRef = { name = o.name or cluster.bucket_secret, optional = o.optional ~= false } } },
            env = parts.env_list {
                AWS_EC2_METADATA_DISABLED = "true",
                AWS_REQUEST_CHECKSUM_CALCULATION = "when_required",
                AWS_RESPONSE_CHECKSUM_VALIDATION = "when_required",
            },
        },
    }
end

--- HF_TOKEN, where the cluster has one.
function parts.hub_token()
    local secret = cluster.hub_secret
    return parts.env { HF_TOKEN = { secret = secret.name, key = secret.key, optional = true } }
end

local function volume(name, source, path, read_only)
    source.name = name
    return {
        pod = { volumes = { source } },
        container = { volumeMounts = { { name = name, mountPath = path, readOnly = read_only or nil } } },
    }
end

--- The shared volume, as the nodes have it mounted. The folder is made where it is missing, so that the
--- pod starts on a cluster without the volume too: what is there decides the recipe at its start.
---@param o { path: string?, read_only: boolean? }?
function parts.shared_volume(o)
    local path = o and o.path or cluster.shared_volume
    return volume("shared", { hostPath = { path = path, type = "DirectoryOrCreate" } }, path, o and o.read_only)
end

--- A folder on the node's own NVMe, which outlives the pod.
function parts.nvme(path)
    return volume("nvme", { hostPath = { path = path, type = "DirectoryOrCreate" } }, path)
end

--- A folder that lives as long as the pod.
function parts.scratch(name, path, size)
    return volume(name, { emptyDir = yaml.map { sizeLimit = size } }, path)
end

--- Shared memory, which counts as memory of the pod.
function parts.shm(size)
    return volume("shm", { emptyDir = { medium = "Memory", sizeLimit = size } }, "/dev/shm")
end

--- A volume of a claim.
---@param o { claim: string, path: string, name: string?, read_only: boolean? }
function parts.claim_volume(o)
    local source = { persistentVolumeClaim = { claimName = o.claim, readOnly = o.read_only or nil } }
    return volume(o.name or "claim", source, o.path, o.read_only)
end

--- A time of nc.units in whole seconds.
function parts.seconds(time)
    return math.ceil(units.duration(time, 2))
end

--- An HTTP probe: `failures` periods in a row without an answer.
---@param o { path: string, port: string|integer, period: string, failures: integer, timeout: string? }
function parts.probe(o)
    return {
        httpGet = { path = o.path, port = o.port },
        periodSeconds = parts.seconds(o.period), failureThreshold = o.failures,
        timeoutSeconds = parts.seconds(o.timeout or "5s"),
    }
end

return parts
