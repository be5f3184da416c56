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
-- pod and container; false is none), in the list part of the options, and of the options by name. job, deployment and
-- pod return a list of objects: the ConfigMap with the script comes with them. `this` is what is being
-- rendered: this.name, the objects' name; this.params and this.command, what was given for the recipe;
-- this.folder, where the ConfigMap's files are in the pod.

local cluster = require "manifests.cluster"
local errors  = require "nc.errors"
local start   = require "nc.k8s.start"
local units   = require "nc.units"
local yaml    = require "nc.yaml"

local k8s = {}

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

-- ---- parts ----

-- A table with number keys only is a list.
local function is_list(t)
    return t[1] ~= nil or (next(t) == nil and getmetatable(t) == getmetatable(yaml.list()))
end

local function same(a, b)
    if type(a) ~= "table" or type(b) ~= "table" then return a == b end
    for k, v in pairs(a) do if not same(v, b[k]) then return false end end
    for k in pairs(b) do if a[k] == nil then return false end end
    return true
end

-- Appends what is not there yet: two containers may both ask for one volume.
local function append(list, item)
    for _, there in ipairs(list) do
        if same(there, item) then return end
    end
    table.insert(list, item)
end

-- Adds what `from` has to `into`: maps key by key, lists end to end; anything else must not differ.
local function merge(into, from, path)
    for k, v in pairs(from) do
        local at = path == "" and k or path .. "." .. k
        if into[k] == nil then into[k] = type(v) == "table" and (is_list(v) and yaml.list() or yaml.map()) or v end
        if type(v) == "table" and type(into[k]) == "table" then
            if is_list(v) then
                for _, item in ipairs(v) do append(into[k], item) end
            else
                merge(into[k], v, at)
            end
        elseif into[k] ~= v then
            error(("two parts of the pod disagree about %s: %s and %s"):format(at, tostring(into[k]), tostring(v)), 0)
        end
    end
end

local function sorted(t)
    local keys = {}
    for k in pairs(t) do keys[#keys + 1] = k end
    table.sort(keys)
    return keys
end

-- Kubernetes replaces $(NAME) and $$ in args and values of env.
local function as_is(s)
    return s:find "%$[$(]" and (s:gsub("%$", "$$")) or s
end

-- { NAME = "text" | { secret =, key =, optional = } | { field = } } as a list, sorted.
local function env_list(vars)
    local list = yaml.list()
    for _, name in ipairs(sorted(vars)) do
        local v = vars[name]
        if type(v) ~= "table" then
            list[#list + 1] = { name = name, value = as_is(tostring(v)) }
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
function k8s.env(vars)
    return { container = { env = env_list(vars) } }
end

--- A GPU node, all of it unless `count` says how many GPUs.
---@param o { vendor: string, count: integer? }
function k8s.gpu_node(o)
    local resource = cluster.gpus[o.vendor]
    if not resource then error(errors.unknown("GPU vendor", o.vendor, sorted(cluster.gpus)), 2) end
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
function k8s.cpu_worker()
    return { namespace = cluster.namespace, pod = { nodeSelector = cluster.cpu_worker } }
end

--- A Slurm site behind InterLink. What a site takes as GPUs goes into flags ("--gres=gpu:1"); pre_exec is
--- a line of shell that its batch script runs first.
---@param o { host: string, flags: string?, pre_exec: string? }
function k8s.interlink_node(o)
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
function k8s.bucket_secret(o)
    o = o or {}
    return {
        namespace = not o.name and cluster.namespace or nil,
        container = {
            envFrom = { { secretRef = { name = o.name or cluster.bucket_secret, optional = o.optional ~= false } } },
            env = env_list {
                AWS_EC2_METADATA_DISABLED = "true",
                AWS_REQUEST_CHECKSUM_CALCULATION = "when_required",
                AWS_RESPONSE_CHECKSUM_VALIDATION = "when_required",
            },
        },
    }
end

--- HF_TOKEN, where the cluster has one.
function k8s.hub_token()
    local secret = cluster.hub_secret
    return k8s.env { HF_TOKEN = { secret = secret.name, key = secret.key, optional = true } }
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
function k8s.shared_volume(o)
    local path = o and o.path or cluster.shared_volume
    return volume("shared", { hostPath = { path = path, type = "DirectoryOrCreate" } }, path, o and o.read_only)
end

--- A folder on the node's own NVMe, which outlives the pod.
function k8s.nvme(path)
    return volume("nvme", { hostPath = { path = path, type = "DirectoryOrCreate" } }, path)
end

--- A folder that lives as long as the pod.
function k8s.scratch(name, path, size)
    return volume(name, { emptyDir = yaml.map { sizeLimit = size } }, path)
end

--- Shared memory, which counts as memory of the pod.
function k8s.shm(size)
    return volume("shm", { emptyDir = { medium = "Memory", sizeLimit = size } }, "/dev/shm")
end

--- A volume of a claim.
---@param o { claim: string, path: string, name: string?, read_only: boolean? }
function k8s.claim_volume(o)
    local source = { persistentVolumeClaim = { claimName = o.claim, readOnly = o.read_only or nil } }
    return volume(o.name or "claim", source, o.path, o.read_only)
end

local function seconds(time)
    return math.ceil(units.duration(time, 2))
end

--- An HTTP probe: `failures` periods in a row without an answer.
---@param o { path: string, port: string|integer, period: string, failures: integer, timeout: string? }
function k8s.probe(o)
    return {
        httpGet = { path = o.path, port = o.port },
        periodSeconds = seconds(o.period), failureThreshold = o.failures, timeoutSeconds = seconds(o.timeout or "5s"),
    }
end

-- ---- containers ----

local CONTAINER <const> = {
    "args", "command", "env", "goes_on", "image", "limits", "liveness", "name", "params", "ports", "readiness",
    "requests", "startup",
}
local POD <const> = { "annotations", "files", "grace", "labels", "root" }
local JOB <const> = { "copies", "deadline", "final", "keep", "nodes", "reclaimed", "retries" }
local DEPLOYMENT <const> = { "load_time", "replicas" }

local function check(o, level, ...)
    local valid = {}
    for _, list in ipairs { ... } do table.move(list, 1, #list, #valid + 1, valid) end
    table.sort(valid)
    local known = {}
    for _, name in ipairs(valid) do known[name] = true end
    for name in pairs(o) do
        if type(name) == "string" and not known[name] then
            error(errors.unknown("option", name, valid), level + 1)
        end
    end
end

-- The words and variables that carry the recipe's parameters: those that may come from the environment
-- are in the env block, where a reader of the manifest changes them, the others are words. False leaves
-- one out.
local function carry(this, params)
    local words, env = yaml.list { start.FOLDER .. "/" .. this.script.file }, {}
    for _, name in ipairs(sorted(params)) do
        local value, variable = params[name], this.variables[name]
        if value and variable then
            env[variable] = value
        elseif value then
            words[#words + 1] = as_is(("%s=%s"):format(name, value))
        end
    end
    return words, env
end

-- A container that runs the recipe. Options: see k8s.job.
local function recipe_container(this, o)
    local params = {}
    for name, value in pairs(this.params) do params[name] = value end
    for name, value in pairs(o.params or {}) do params[name] = value end
    local words, env = carry(this, params)
    for _, word in ipairs(this.words or {}) do words[#words + 1] = as_is(word) end
    local command = this.command or o.command
    if command then
        words[#words + 1] = "--"
        for _, word in ipairs(command) do words[#words + 1] = as_is(word) end
    end
    env.POD_NAME = { field = "metadata.name" }
    for name, value in pairs(o.env or {}) do env[name] = value end
    return {
        name = o.name or this.script.stem,
        image = this.image or o.image,
        command = { "sh", start.FOLDER .. "/start" },
        args = words,
        env = env_list(env),
        resources = { requests = o.requests, limits = o.limits },
        ports = o.ports,
        startupProbe = o.startup, readinessProbe = o.readiness, livenessProbe = o.liveness,
        volumeMounts = {
            { name = "script", mountPath = start.FOLDER, readOnly = true },
            { name = "ncrun", mountPath = start.HOME },
        },
    }
end

-- One container of parts and options; what the parts add to the pod goes into `pod`.
local function assemble(this, o, pod)
    local container = recipe_container(this, o)
    local own = { env = container.env, volumeMounts = container.volumeMounts }
    container.env, container.volumeMounts = yaml.list(), yaml.list()
    for _, part in ipairs(o) do
        if part then
            merge(container, part.container or {}, "container")
            merge(pod, { spec = part.pod, metadata = { annotations = part.annotations } }, "pod")
            pod.namespace = pod.namespace or part.namespace
        end
    end
    merge(container, own, "container")
    if next(container.resources) == nil then container.resources = nil end
    return container
end

--- A part: an init container that runs the recipe with its own parameters and image, before the others.
--- Options: those of job that concern a container.
function k8s.init_container(this, o)
    check(o, 2, CONTAINER)
    local pod = { spec = yaml.map() }
    local container = assemble(this, o, pod)
    merge(pod.spec, { initContainers = { container } }, "pod")
    return { pod = pod.spec, namespace = pod.namespace, annotations = pod.metadata and pod.metadata.annotations }
end

local function has(list, test)
    for _, item in ipairs(list or {}) do
        if test(item) then return true end
    end
    return false
end

-- What a pod can do without. Host folders belong to root, whoever an image would be; GPU images are what
-- they are.
local function harden(spec, root)
    local all = { spec.containers[1], table.unpack(spec.initContainers or {}) }
    local host = has(spec.volumes, function(v) return v.hostPath end)
    local free = not root and not host
        and not has(all, function(c)
            for _, resource in pairs(cluster.gpus) do
                if c.resources and c.resources.limits and c.resources.limits[resource] then return true end
            end
            return false
        end)
    for _, c in ipairs(all) do
        c.securityContext = { allowPrivilegeEscalation = false }
        if free then
            c.securityContext.readOnlyRootFilesystem = true
            c.securityContext.capabilities = { drop = { "ALL" } }
            if not has(c.volumeMounts, function(m) return m.mountPath == "/tmp" end) then
                table.insert(c.volumeMounts, { name = "tmp", mountPath = "/tmp" })
            end
        end
    end
    if host then spec.securityContext = { runAsUser = 0, runAsGroup = 0 } end
    if not free then return end
    spec.securityContext = {
        runAsNonRoot = true, runAsUser = 65532, runAsGroup = 65532, fsGroup = 65532,
        seccompProfile = { type = "RuntimeDefault" },
    }
    if has(all, function(c) return has(c.volumeMounts, function(m) return m.name == "tmp" end) end) then
        table.insert(spec.volumes, { name = "tmp", emptyDir = yaml.map() })
    end
end

local function label_of(this)
    return { ["app.kubernetes.io/name"] = this.name }
end

-- metadata and spec of a pod, and the namespace that its parts ask for.
local function pod_of(this, o)
    local pod = { metadata = { labels = label_of(this) }, spec = yaml.map() }
    if this.delivery_image then -- an image that holds ncrun: it copies itself
        merge(pod.spec, { initContainers = { {
            name = "ncrun", image = this.delivery_image, args = { start.FOLDER .. "/install.lua" },
            volumeMounts = {
                { name = "script", mountPath = start.FOLDER, readOnly = true },
                { name = "ncrun", mountPath = start.HOME },
            },
        } } }, "pod")
    end
    local container = assemble(this, o, pod)
    local namespace = pod.namespace
    pod.namespace = nil
    merge(pod, { metadata = { labels = o.labels, annotations = o.annotations } }, "pod")
    merge(pod.spec, {
        containers = { container }, volumes = {
            { name = "script", configMap = { name = this.name } },
            { name = "ncrun", emptyDir = yaml.map() },
        },
        automountServiceAccountToken = false, enableServiceLinks = false,
        terminationGracePeriodSeconds = o.grace and seconds(o.grace),
    }, "pod")
    harden(pod.spec, o.root)
    return pod, this.namespace or namespace
end

local function metadata(this, namespace)
    return { name = this.name, namespace = namespace ~= "" and namespace or nil, labels = label_of(this) }
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
            selector = o.selector or label_of(this),
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
        labelSelector = { matchLabels = label_of(this) }, topologyKey = "kubernetes.io/hostname",
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
    check(o, 2, CONTAINER, POD, JOB)
    local pod, namespace = pod_of(this, o)
    pod.spec.restartPolicy = "Never"
    local spec = {
        backoffLimit = o.retries or 0,
        activeDeadlineSeconds = o.deadline and seconds(o.deadline),
        ttlSecondsAfterFinished = o.keep and seconds(o.keep),
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
    check(o, 2, CONTAINER, POD, DEPLOYMENT)
    local pod, namespace = pod_of(this, o)
    local objects = yaml.list { script_map(this, o, namespace) }
    if o.ports then
        table.insert(objects, k8s.service(this, { ports = service_ports(o.ports) }, namespace))
    end
    table.insert(objects, {
        apiVersion = "apps/v1", kind = "Deployment", metadata = metadata(this, namespace),
        spec = {
            replicas = o.replicas or 1, strategy = { type = "Recreate" },
            progressDeadlineSeconds = o.load_time and seconds(o.load_time),
            selector = { matchLabels = label_of(this) }, template = pod,
        },
    })
    return objects
end

--- A pod of its own, to work in. Options as job's for container and pod.
---@return table[]
function k8s.pod(this, o)
    check(o, 2, CONTAINER, POD)
    local pod, namespace = pod_of(this, o)
    pod.spec.restartPolicy = "Never"
    local meta = metadata(this, namespace)
    meta.annotations = pod.metadata.annotations
    return yaml.list {
        script_map(this, o, namespace),
        { apiVersion = "v1", kind = "Pod", metadata = meta, spec = pod.spec },
    }
end

return k8s
