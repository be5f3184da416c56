--- What no schema sees: names, references between parts of a manifest, units, what the API server or a
--- node would refuse after `kubectl apply` has said "created".

local cluster = require "manifests.cluster"

local lint = {}

-- What `kubectl apply` keeps of an object in an annotation.
local APPLY_MAX <const> = 262144

---@class nc.k8s.Findings
local Findings = {}
Findings.__index = Findings

function Findings:add(path, format, ...)
    self[#self + 1] = { path = path, message = format:format(...) }
end

-- ---- names ----

local function is_label(s)
    return #s <= 63 and s:find "^[a-z0-9][a-z0-9-]*$" ~= nil and not s:find "%-$"
end

local function is_subdomain(s)
    if #s > 253 then return false end
    for part in (s .. "."):gmatch "([^.]*)%." do
        if not (part:find "^[a-z0-9][a-z0-9-]*$") or part:find "%-$" then return false end
    end
    return true
end

local LABEL_RULE <const> = "a name has at most %d of a-z, 0-9 and -, the first and the last no -"

--- The rule for what becomes a Job, a label and a host name, or nil where the name keeps it. Room is
--- left for what is put behind it.
---@param name string
---@return string?
function lint.bad_name(name)
    if is_label(name) and #name <= 52 then return nil end
    return LABEL_RULE:format(52)
end

local function check_names(f, path, object)
    local name = object.metadata and object.metadata.name
    if type(name) ~= "string" or name == "" then return f:add(path .. ".metadata.name", "there is none") end
    local indexed = object.kind == "Job" and object.spec and object.spec.completionMode == "Indexed"
    local room = indexed and 63 - #("-" .. ((object.spec.completions or 1) - 1)) or 63
    if object.kind == "ConfigMap" or object.kind == "PersistentVolumeClaim" then
        if not is_subdomain(name) then
            f:add(path .. ".metadata.name", '"%s": %s', name, LABEL_RULE:format(253))
        end
    elseif not is_label(name) or #name > room then
        f:add(path .. ".metadata.name", '"%s": %s%s', name, LABEL_RULE:format(room),
            indexed and " (its pods get -N)" or "")
    end
    if object.kind == "Service" and name:find "^%d" then
        f:add(path .. ".metadata.name", '"%s": a Service begins with a letter', name)
    end
    for _, kind in ipairs { "labels", "annotations" } do
        for key, value in pairs(object.metadata[kind] or {}) do
            if type(value) ~= "string" then
                f:add(("%s.metadata.%s[%s]"):format(path, kind, key), "is no string")
            elseif kind == "labels" and value ~= "" and not (#value <= 63
                and value:find "^[%w][%w._-]*$" and value:find "%w$") then
                f:add(("%s.metadata.labels[%s]"):format(path, key), '"%s" is no label', value)
            end
        end
    end
end

-- ---- quantities ----

local FACTORS <const> = {
    [""] = 1, m = 1e-3, k = 1e3, M = 1e6, G = 1e9, T = 1e12, P = 1e15, E = 1e18,
    Ki = 2 ^ 10, Mi = 2 ^ 20, Gi = 2 ^ 30, Ti = 2 ^ 40, Pi = 2 ^ 50, Ei = 2 ^ 60,
}

-- A quantity as a number, and its suffix; nil for what is none.
local function quantity(q)
    local digits, suffix = tostring(q):match "^(%d+%.?%d*)(%a*)$"
    if not digits or not FACTORS[suffix] then return nil end
    return tonumber(digits) * FACTORS[suffix], suffix
end

local function check_bytes(f, path, q)
    local value, suffix = quantity(q)
    if not value then return f:add(path, '"%s" is no quantity', tostring(q)) end
    if suffix == "m" then
        f:add(path, '"%s" is thousandths of a byte; M or Mi is meant', q)
    elseif suffix:find "^[kMGTPE]$" then
        f:add(path, '"%s" counts in thousands; write %si', q, (q:gsub("k", "K")))
    end
end

local BYTES <const> = { memory = true, ["ephemeral-storage"] = true, storage = true }

local function check_resources(f, path, resources)
    local vendors = {}
    for _, kind in ipairs { "requests", "limits" } do
        for name, q in pairs(resources[kind] or {}) do
            local at = ("%s.%s[%s]"):format(path, kind, name)
            if BYTES[name] then
                check_bytes(f, at, q)
            elseif not quantity(q) then
                f:add(at, '"%s" is no quantity', tostring(q))
            end
            for _, gpu in pairs(cluster.gpus) do
                if name == gpu then
                    vendors[name] = true
                    if not tostring(q):find "^%d+$" then f:add(at, '"%s": GPUs are whole', tostring(q)) end
                    if kind == "requests" and (resources.limits or {})[name] ~= q then
                        f:add(at, "GPUs go into limits; a request is the same or absent")
                    end
                end
            end
        end
    end
    local names = {}
    for name in pairs(vendors) do names[#names + 1] = name end
    if #names > 1 then f:add(path .. ".limits", "GPUs of two vendors: no node has both") end
    for name, q in pairs(resources.requests or {}) do
        local asked, limit = quantity(q), quantity((resources.limits or {})[name] or "")
        if asked and limit and asked > limit then
            f:add(("%s.requests[%s]"):format(path, name), '"%s" is more than the limit "%s"', q, resources.limits[name])
        end
    end
end

-- ---- pods ----

-- One of `field` of each in the list twice.
local function check_unique(f, path, list, field)
    local seen = {}
    for i, item in ipairs(list or {}) do
        local value = item[field]
        if value ~= nil then
            if seen[value] then f:add(("%s[%d].%s"):format(path, i - 1, field), '"%s" comes twice', value) end
            seen[value] = true
        end
    end
    return seen
end

local function check_env(f, path, container)
    check_unique(f, path .. ".env", container.env, "name")
    for i, var in ipairs(container.env or {}) do
        local at = ("%s.env[%d]"):format(path, i - 1)
        if type(var.name) ~= "string" or not var.name:find "^[%a_][%w_]*$" then
            f:add(at .. ".name", '"%s" is no name that a shell can read', tostring(var.name))
        end
        if var.value ~= nil and type(var.value) ~= "string" then f:add(at .. ".value", "is no string") end
        if var.value ~= nil and var.valueFrom then f:add(at, "has a value and a valueFrom") end
    end
end

local function check_mounts(f, path, container, volumes)
    check_unique(f, path .. ".volumeMounts", container.volumeMounts, "mountPath")
    for i, mount in ipairs(container.volumeMounts or {}) do
        local at = ("%s.volumeMounts[%d]"):format(path, i - 1)
        if not volumes[mount.name] then f:add(at .. ".name", 'there is no volume "%s"', tostring(mount.name)) end
        if not tostring(mount.mountPath):find "^/" then f:add(at .. ".mountPath", "does not begin with /") end
    end
end

local function check_ports(f, path, container)
    local ports = check_unique(f, path .. ".ports", container.ports, "name")
    for i, port in ipairs(container.ports or {}) do
        local name = port.name
        if name and not (#name <= 15 and is_label(name) and name:find "%a" and not name:find "%-%-") then
            f:add(("%s.ports[%d].name"):format(path, i - 1),
                '"%s": a port\'s name has at most 15 of a-z, 0-9 and -, a letter among them', name)
        end
    end
    for _, probe in ipairs { "startupProbe", "readinessProbe", "livenessProbe" } do
        local get = container[probe] and (container[probe].httpGet or container[probe].tcpSocket)
        if get and type(get.port) == "string" and not ports[get.port] then
            f:add(("%s.%s.httpGet.port"):format(path, probe), 'there is no port named "%s"', get.port)
        end
    end
end

local function check_container(f, path, container, volumes)
    if type(container.name) ~= "string" or not is_label(container.name) then
        f:add(path .. ".name", '"%s": %s', tostring(container.name), LABEL_RULE:format(63))
    end
    if type(container.image) ~= "string" or container.image == "" then
        f:add(path .. ".image", "there is none")
    elseif not container.image:find "@sha256:" and not container.image:match "[^/]*$":find ":." then
        f:add(path .. ".image", '"%s" has no tag: what runs would change from day to day', container.image)
    end
    check_env(f, path, container)
    check_mounts(f, path, container, volumes)
    check_ports(f, path, container)
    check_resources(f, path .. ".resources", container.resources or {})
end

local function check_volumes(f, path, spec, maps)
    local volumes = check_unique(f, path .. ".volumes", spec.volumes, "name")
    for i, volume in ipairs(spec.volumes or {}) do
        local at = ("%s.volumes[%d]"):format(path, i - 1)
        if not is_label(tostring(volume.name)) then
            f:add(at .. ".name", '"%s": %s', tostring(volume.name), LABEL_RULE:format(63))
        end
        local dir, map = volume.emptyDir, volume.configMap
        if dir and dir.medium ~= nil and dir.medium ~= "" and dir.medium ~= "Memory" then
            f:add(at .. ".emptyDir.medium", '"%s" is no medium; "Memory" is', tostring(dir.medium))
        end
        if dir and dir.sizeLimit then check_bytes(f, at .. ".emptyDir.sizeLimit", dir.sizeLimit) end
        if map and not map.optional and not maps[map.name] then
            f:add(at .. ".configMap.name", 'there is no ConfigMap "%s" in this manifest', tostring(map.name))
        end
        local mode = map and map.defaultMode
        if mode and (math.type(mode) ~= "integer" or mode > 511) then
            f:add(at .. ".configMap.defaultMode", "%s: write a decimal number (493 is 0755)", tostring(mode))
        end
    end
    return volumes
end

local function check_pod(f, path, template, context)
    local spec = template.spec or {}
    local volumes = check_volumes(f, path .. ".spec", spec, context.maps)
    local names = {}
    for _, kind in ipairs { "initContainers", "containers" } do
        for i, container in ipairs(spec[kind] or {}) do
            local at = ("%s.spec.%s[%d]"):format(path, kind, i - 1)
            check_container(f, at, container, volumes)
            if names[container.name] then f:add(at .. ".name", '"%s" comes twice', tostring(container.name)) end
            names[container.name] = true
        end
    end
    if not spec.containers or not spec.containers[1] then f:add(path .. ".spec.containers", "there is none") end
    if spec.subdomain and not context.services[spec.subdomain] then
        f:add(path .. ".spec.subdomain", 'there is no Service "%s" in this manifest', spec.subdomain)
    end
end

-- ---- kinds ----

-- Whether each label that a selector wants is among them.
local function selects(selector, labels)
    for key, value in pairs(selector or {}) do
        if (labels or {})[key] ~= value then return false end
    end
    return true
end

local function check_job(f, path, object, context)
    local spec = object.spec
    local pod = spec.template.spec or {}
    if pod.restartPolicy ~= "Never" and (pod.restartPolicy ~= "OnFailure" or spec.podFailurePolicy) then
        f:add(path .. ".spec.template.spec.restartPolicy", spec.podFailurePolicy
            and "is Never beside a podFailurePolicy" or "is Never or OnFailure in a Job")
    end
    if spec.completionMode == "Indexed" and not spec.completions then
        f:add(path .. ".spec.completions", "an Indexed Job needs it")
    end
    for i, rule in ipairs(spec.podFailurePolicy and spec.podFailurePolicy.rules or {}) do
        local at = ("%s.spec.podFailurePolicy.rules[%d]"):format(path, i - 1)
        for _, code in ipairs(rule.onExitCodes and rule.onExitCodes.values or {}) do
            if code == 0 and rule.onExitCodes.operator == "In" then
                f:add(at .. ".onExitCodes.values", "0 is not allowed with In")
            end
        end
        for _, condition in ipairs(rule.onPodConditions or {}) do
            if condition.status ~= "True" and condition.status ~= "False" and condition.status ~= "Unknown" then
                f:add(at .. ".onPodConditions", 'a status is the text "True"')
            end
        end
    end
    check_pod(f, path .. ".spec.template", spec.template, context)
end

local function check_deployment(f, path, object, context)
    local spec = object.spec
    local labels = spec.template.metadata and spec.template.metadata.labels
    if not spec.selector or next(spec.selector.matchLabels or {}) == nil
        or not selects(spec.selector.matchLabels, labels) then
        f:add(path .. ".spec.selector", "does not select the pods of its own template")
    end
    if spec.template.spec and spec.template.spec.restartPolicy and spec.template.spec.restartPolicy ~= "Always" then
        f:add(path .. ".spec.template.spec.restartPolicy", "is Always in a Deployment")
    end
    check_pod(f, path .. ".spec.template", spec.template, context)
end

local function check_service(f, path, object, context)
    local spec, found = object.spec, next(context.pods) == nil
    for _, pod in ipairs(context.pods) do
        if selects(spec.selector, pod.labels) then
            found = true
            for i, port in ipairs(spec.ports or {}) do
                if type(port.targetPort) == "string" and not pod.ports[port.targetPort] then
                    f:add(("%s.spec.ports[%d].targetPort"):format(path, i - 1), 'no pod has a port named "%s"',
                        port.targetPort)
                end
            end
        end
    end
    if not found then f:add(path .. ".spec.selector", "selects no pod of this manifest") end
end

local function check_config_map(f, path, object)
    local size = 0
    for name, text in pairs(object.data or {}) do
        if not (#name <= 253 and name:find "^[%w._-]+$") then
            f:add(("%s.data[%s]"):format(path, name), "a file's name has letters, digits, -, _ and .")
        end
        if type(text) ~= "string" then f:add(("%s.data[%s]"):format(path, name), "is no string") end
        size = size + #name + #tostring(text)
    end
    if size >= APPLY_MAX then
        f:add(path .. ".data", "%d bytes: kubectl apply takes less than %d", size, APPLY_MAX)
    end
end

local function check_claim(f, path, object)
    local resources = object.spec.resources
    for name, q in pairs(resources and resources.requests or {}) do
        check_bytes(f, ("%s.spec.resources.requests[%s]"):format(path, name), q)
    end
end

local KINDS <const> = {
    Job = check_job,
    Deployment = check_deployment,
    Pod = function(f, path, object, context) check_pod(f, path, object, context) end,
    Service = check_service,
    ConfigMap = check_config_map,
    PersistentVolumeClaim = check_claim,
}

-- Where an object's pods are described.
local function template_of(object)
    if object.kind == "Pod" then return object end
    return object.spec and object.spec.template
end

local function pod_facts(object)
    local template = template_of(object)
    local facts = { labels = {}, ports = {} }
    for key, value in pairs(template.metadata and template.metadata.labels or {}) do facts.labels[key] = value end
    if object.kind == "Job" then -- as its controller labels them
        facts.labels["batch.kubernetes.io/job-name"] = object.metadata and object.metadata.name
        facts.labels["job-name"] = facts.labels["batch.kubernetes.io/job-name"]
    end
    for _, container in ipairs(template.spec and template.spec.containers or {}) do
        for _, port in ipairs(container.ports or {}) do
            if port.name then facts.ports[port.name] = true end
        end
    end
    return facts
end

local function path_of(object)
    local name = type(object.metadata) == "table" and object.metadata.name
    return ("%s/%s"):format(object.kind, name and tostring(name) or "?")
end

-- What other objects are checked against.
local function note(object, context)
    local name = object.metadata.name
    if object.kind == "ConfigMap" then context.maps[name] = true end
    if object.kind == "Service" then context.services[name] = true end
    if template_of(object) then table.insert(context.pods, pod_facts(object)) end
end

-- A manifest that somebody has written may have text where an object belongs.
local function guard(f, path, object, fn, ...)
    if not pcall(fn, object, ...) and f.misshapen ~= path then
        f.misshapen = path
        f:add(path, "is not shaped as a %s is", object.kind)
    end
end

--- What is wrong with a manifest's objects; nothing when the list is empty. Paths begin with
--- "Job/nanogpt".
---@param objects table[]
---@return { path: string, message: string }[]
function lint.check(objects)
    local f = setmetatable({}, Findings)
    local context = { maps = {}, services = {}, pods = {} }
    local seen = {}
    for i, object in ipairs(objects) do
        if type(object) ~= "table" or type(object.kind) ~= "string" then
            f:add(("document %d"):format(i), "is no object with a kind")
            return setmetatable(f, nil)
        end
        local path = path_of(object)
        if seen[path] then f:add(path, "comes twice") end
        seen[path] = true
        guard(f, path, object, note, context)
    end
    for _, object in ipairs(objects) do
        local path = path_of(object)
        guard(f, path, object, function() check_names(f, path, object) end)
        guard(f, path, object, function()
            if KINDS[object.kind] then KINDS[object.kind](f, path, object, context) end
        end)
    end
    table.sort(f, function(a, b) return a.path < b.path end)
    f.misshapen = nil
    return setmetatable(f, nil)
end

return lint
