--- Kubernetes objects for recipes, said in a few words.
--
--     manifest = function(p, this)
--         return k8s.job(this, {
--             k8s.cpu_worker(), k8s.bucket_secret(),
--             image = "docker.io/curlimages/curl:8.10.1", requests = { cpu = "1", memory = "1Gi" },
--             retries = 3, grace = "60s",
--         })
--     end
--
-- A pod is made of parts (cpu_worker, bucket_secret, scratch, ...: plain tables with what each adds to
-- pod and container; false is none), in the list part of the options, and of the options by name. job,
-- deployment and pod return a list of objects: the ConfigMap with the script comes with them. `this` is
-- what is being rendered: this.name, the objects' name; this.params and this.command, what was given for
-- the recipe; this.folder, where the ConfigMap's files are in the pod.

local parts = require "nc.k8s.parts"
local pods  = require "nc.k8s.pods"
local start = require "nc.k8s.start"
local yaml  = require "nc.yaml"

local k8s = { init_container = pods.init_container }

-- What recipes put a pod together from.
for _, name in ipairs {
    "bucket_secret", "claim_volume", "cpu_worker", "env", "gpu_node", "hub_token", "interlink_node", "nvme", "probe",
    "scratch", "shared_volume", "shm",
} do
    k8s[name] = parts[name]
end

--- The order in which people expect keys.
k8s.KEY_ORDER = {
    "apiVersion", "kind", "metadata", "name", "namespace", "generateName", "labels", "annotations",
    "completionMode", "completions", "parallelism", "backoffLimit", "activeDeadlineSeconds",
    "ttlSecondsAfterFinished", "podReplacementPolicy", "podFailurePolicy", "replicas", "strategy",
    "progressDeadlineSeconds", "selector", "template", "spec", "restartPolicy", "terminationGracePeriodSeconds",
    "subdomain", "nodeSelector", "tolerations", "affinity", "initContainers", "containers", "image", "workingDir",
    "command", "args", "ports", "env", "envFrom", "resources", "requests", "limits", "startupProbe", "readinessProbe",
    "livenessProbe", "volumeMounts", "mountPath", "securityContext", "volumes", "clusterIP", "data",
    "key", "operator", "value", "valueFrom", "effect", "action",
}

local JOB <const> = { "copies", "deadline", "final", "keep", "nodes", "reclaimed", "retries" }
local DEPLOYMENT <const> = { "load_time", "replicas" }

local function metadata(this, namespace)
    return { name = this.name, namespace = namespace ~= "" and namespace or nil, labels = pods.label(this) }
end

--- A ConfigMap: file name -> text.
function k8s.config_map(this, files, namespace)
    return { apiVersion = "v1", kind = "ConfigMap", metadata = metadata(this, namespace), data = files }
end

-- The one with the script, and what the recipe has for it besides.
local function script_map(this, o, namespace)
    local files = {
        start = start.script(not this.delivery_image and this.base or nil, this.sums, o.goes_on or false),
        [this.script.file] = this.script.text,
        ["install.lua"] = this.delivery_image and start.INSTALL or nil,
    }
    for name, text in pairs(o.files or {}) do files[name] = text end
    return k8s.config_map(this, files, namespace)
end

--- A Service for this.name's pods. `ports` as Kubernetes has them; without any it is headless, for the
--- pods' own names.
---@param o { ports: table[]?, selector: table? }
function k8s.service(this, o, namespace)
    return {
        apiVersion = "v1", kind = "Service", metadata = metadata(this, namespace),
        spec = {
            clusterIP = not o.ports and "None" or nil,
            publishNotReadyAddresses = not o.ports or nil,
            selector = o.selector or pods.label(this),
            ports = o.ports,
        },
    }
end

--- A claim of storage.
---@param o { class: string, size: string, mode: string? }  mode: ReadWriteMany unless said
function k8s.claim(this, o, namespace)
    local meta = metadata(this, namespace)
    meta.name = o.name or this.name
    return {
        apiVersion = "v1", kind = "PersistentVolumeClaim", metadata = meta,
        spec = {
            accessModes = { o.mode or "ReadWriteMany" }, storageClassName = o.class,
            resources = { requests = { storage = o.size } },
        },
    }
end

-- What tells a node that was taken back from a run that failed: the first costs no retry.
local function failure_policy(o)
    local rules = yaml.list {
        { action = "Ignore", onPodConditions = { { type = "DisruptionTarget", status = "True" } } },
        { action = "Ignore", onExitCodes = { operator = "In", values = { 143 } } },
    }
    if o.final then table.insert(rules, { action = "FailJob", onExitCodes = { operator = "In", values = o.final } }) end
    return { rules = rules }
end

-- Pods of one Job on different nodes that know each other by name: NAME-0.NAME, NAME-1.NAME.
local function spread(this, o, spec, pod)
    spec.completionMode, spec.completions, spec.parallelism = "Indexed", o.nodes, o.nodes
    spec.podReplacementPolicy = "Failed" -- never two pods of one index
    pod.spec.subdomain = this.name
    pod.spec.affinity = { podAntiAffinity = { requiredDuringSchedulingIgnoredDuringExecution = { {
        labelSelector = { matchLabels = pods.label(this) }, topologyKey = "kubernetes.io/hostname",
    } } } }
end

--- A Job: ConfigMap, Service (of nodes), Job. Options for its container: image; params (of the recipe,
--- besides those given; false leaves one out); command (what follows `--`); goes_on (that command runs
--- without ncrun where it can't be had); env; requests, limits; ports; startup, readiness, liveness (see
--- probe). For the pod: grace (from SIGTERM to SIGKILL); files (name -> text, beside the recipe in
--- this.folder); labels; annotations; root (nothing is taken from it). For the Job: retries (0); nodes
--- (1: more are pods on nodes of their own that find each other by name); copies (as many pods,
--- wherever); deadline; keep (how long it stays once it has ended); final (exit codes that no retry
--- mends); reclaimed=false (no node of it is ever taken back).
---@return table[]
function k8s.job(this, o)
    pods.check(o, 2, pods.CONTAINER, pods.POD, JOB)
    local pod, namespace = pods.build(this, o)
    pod.spec.restartPolicy = "Never"
    local spec = {
        backoffLimit = o.retries or 0,
        activeDeadlineSeconds = o.deadline and parts.seconds(o.deadline),
        ttlSecondsAfterFinished = o.keep and parts.seconds(o.keep),
        podFailurePolicy = o.reclaimed ~= false and failure_policy(o) or nil,
        template = pod,
    }
    local objects = yaml.list { script_map(this, o, namespace) }
    if o.copies then
        spec.completionMode, spec.completions, spec.parallelism = "Indexed", o.copies, o.copies
    end
    if o.nodes and o.nodes > 1 then
        spread(this, o, spec, pod)
        local selector = { ["batch.kubernetes.io/job-name"] = this.name }
        table.insert(objects, k8s.service(this, { selector = selector }, namespace))
    end
    table.insert(objects, { apiVersion = "batch/v1", kind = "Job", metadata = metadata(this, namespace), spec = spec })
    return objects
end

-- The same ports, by their names, for those who come from elsewhere in the cluster.
local function service_ports(ports)
    local list = yaml.list()
    for i, port in ipairs(ports) do
        list[i] = { name = port.name, port = port.containerPort, targetPort = port.name }
    end
    return list
end

--- A Deployment: ConfigMap, Service (of ports), Deployment. Options as job's for container and pod, and
--- replicas (1), load_time (how long a start may take before it counts as failed). One pod ends before the
--- next starts: they share the GPUs.
---@return table[]
function k8s.deployment(this, o)
    pods.check(o, 2, pods.CONTAINER, pods.POD, DEPLOYMENT)
    local pod, namespace = pods.build(this, o)
    local objects = yaml.list { script_map(this, o, namespace) }
    if o.ports then
        table.insert(objects, k8s.service(this, { ports = service_ports(o.ports) }, namespace))
    end
    table.insert(objects, {
        apiVersion = "apps/v1", kind = "Deployment", metadata = metadata(this, namespace),
        spec = {
            replicas = o.replicas or 1, strategy = { type = "Recreate" },
            progressDeadlineSeconds = o.load_time and parts.seconds(o.load_time),
            selector = { matchLabels = pods.label(this) }, template = pod,
        },
    })
    return objects
end

--- A pod of its own, to work in. Options as job's for container and pod.
---@return table[]
function k8s.pod(this, o)
    pods.check(o, 2, pods.CONTAINER, pods.POD)
    local pod, namespace = pods.build(this, o)
    pod.spec.restartPolicy = "Never"
    local meta = metadata(this, namespace)
    meta.annotations = pod.metadata.annotations
    return yaml.list {
        script_map(this, o, namespace),
        { apiVersion = "v1", kind = "Pod", metadata = meta, spec = pod.spec },
    }
end

return k8s
