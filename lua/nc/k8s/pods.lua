--- A pod that runs a recipe, put together of parts (nc.k8s.parts) and options. nc.k8s makes objects of it
--- and says what the options are.

local cluster = require "manifests.cluster"
local errors  = require "nc.errors"
local parts   = require "nc.k8s.parts"
local start   = require "nc.k8s.start"
local yaml    = require "nc.yaml"

local pods = {}

--- The options of a container and of a pod, by name.
pods.CONTAINER = {
    "command", "env", "goes_on", "image", "limits", "liveness", "name", "params", "ports", "readiness",
    "requests", "startup",
}
pods.POD = { "annotations", "files", "grace", "labels", "root" }

--- Refuses an option that is in none of the lists, `level` calls up.
function pods.check(o, level, ...)
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

-- ---- putting together ----

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

-- ---- containers ----

-- The words and variables that carry the recipe's parameters: those that may come from the environment
-- are in the env block, where a reader of the manifest changes them, the others are words. False leaves
-- one out.
local function carry(this, params)
    local words, env = yaml.list { start.FOLDER .. "/" .. this.script.file }, {}
    for _, name in ipairs(parts.sorted(params)) do
        local value, variable = params[name], this.variables[name]
        if value and variable then
            env[variable] = value
        elseif value then
            words[#words + 1] = parts.as_is(("%s=%s"):format(name, value))
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
    for _, word in ipairs(this.words or {}) do words[#words + 1] = parts.as_is(word) end
    local command = this.command or o.command
    if command then
        words[#words + 1] = "--"
        for _, word in ipairs(command) do words[#words + 1] = parts.as_is(word) end
    end
    env.POD_NAME = { field = "metadata.name" }
    for name, value in pairs(o.env or {}) do env[name] = value end
    return {
        name = o.name or this.script.stem,
        image = this.image or o.image,
        command = { "sh", start.FOLDER .. "/start" },
        args = words,
        env = parts.env_list(env),
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
function pods.init_container(this, o)
    pods.check(o, 2, pods.CONTAINER)
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

--- The label that finds the pods of what is rendered.
function pods.label(this)
    return { ["app.kubernetes.io/name"] = this.name }
end

--- A pod that runs the recipe: its metadata and spec, and the namespace that it belongs into.
---@return table pod, string? namespace
function pods.build(this, o)
    local pod = { metadata = { labels = pods.label(this) }, spec = yaml.map() }
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
        terminationGracePeriodSeconds = o.grace and parts.seconds(o.grace),
    }, "pod")
    harden(pod.spec, o.root)
    return pod, this.namespace or namespace
end

return pods
