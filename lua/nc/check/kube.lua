--- What a cluster says, through kubectl, of a shared claim and of a pod that is to be ready.

local errors = require "nc.errors"
local json   = require "nc.json"
local proc   = require "nc.proc"

local kube = {}

-- What kubectl writes to stderr -> the error's code. In this order.
local SAID <const> = {
    { "%(NotFound%)", "NotFound" },
    { "%(Forbidden%)", "AccessDenied" },
    { "%(Unauthorized%)", "Unauthorized" },
    { "must be logged in", "Unauthorized" },
    { "context .* does not exist", "BadSetting" },
    { "no configuration has been provided", "BadSetting" },
    { "current%-context is not set", "BadSetting" },
    { "was refused", "ClusterUnreachable" },
    { "Unable to connect", "ClusterUnreachable" },
    { "i/o timeout", "ClusterUnreachable" },
    { "Client%.Timeout", "ClusterUnreachable" },
}

local HINTS <const> = {
    AccessDenied = "this account may not look there: check namespace= and context=, or ask for access to the namespace",
    BadSetting = "set context= to one that `kubectl config get-contexts` lists, or KUBECONFIG to the cluster's file",
    CommandNotFound = "install kubectl, or run the check where it is; without kube=yes it is not needed",
    ClusterUnreachable = "the cluster's API does not answer: check context=, and the network or VPN to it",
    Timeout = "the cluster's API does not answer: check context=, and the network or VPN to it",
    Unauthorized = "log in to the cluster again: its token has expired",
}

-- Why a container does not run -> what to do.
local WAITING <const> = {
    ContainerCreating = "wait; when it stays so, a volume can't be mounted: kubectl describe pod %s",
    CrashLoopBackOff = "its command ends again and again: kubectl logs --previous %s",
    CreateContainerConfigError = "make the Secret or ConfigMap that it names, in the same namespace:"
        .. " kubectl describe pod %s",
    ErrImagePull = "check the image's name and tag, and the registry's pull secret: kubectl describe pod %s",
    ImagePullBackOff = "check the image's name and tag, and the registry's pull secret: kubectl describe pod %s",
    Unschedulable = "no node has what it asks for: lower its requests, or add tolerations: kubectl describe pod %s",
}

-- Waits for kubectl and returns what it printed.
local function kubectl(o, ...)
    local argv = { "kubectl" }
    if o.context then argv[#argv + 1] = "--context=" .. o.context end
    if o.namespace then argv[#argv + 1] = "--namespace=" .. o.namespace end
    argv[#argv + 1] = "--request-timeout=15s"
    table.move({ ... }, 1, select("#", ...), #argv + 1, argv)
    local done = proc.capture(argv, { timeout = "30s" })
    if done.code == 0 then return done.stdout end
    local what = table.concat({ "kubectl", ... }, " ")
    for _, known in ipairs(SAID) do
        if done.stderr:find(known[1]) then
            error(errors.new { code = known[2], message = what .. ": " .. done.stderr:match "[^\n]+" }, 0)
        end
    end
    error(errors.new { code = "CommandFailed", message = ("%s ended with %d: %s"):format(what, done.code or done.signal,
        done.stderr:match "[^\n]+" or "it said nothing") }, 0)
end

local function get(o, kind, name)
    local found = json.decode(kubectl(o, "get", kind, name, "--output=json"))
    return type(found) == "table" and found or {}
end

local function refuse(code, format, ...)
    error(errors.new { code = code, message = format:format(...) }, 0)
end

local function with(more)
    local all = {}
    for _, hints in ipairs { HINTS, more } do
        for code, hint in pairs(hints) do all[code] = hint end
    end
    return all
end

local function field(object, name)
    local value = type(object) == "table" and object[name]
    return type(value) == "table" and value or {}
end

-- ---- the claim ----

local function check_claim(report, o)
    return report:try("claim", function()
        local claim = get(o, "persistentvolumeclaim", o.claim)
        local status, spec = field(claim, "status"), field(claim, "spec")
        if status.phase ~= "Bound" then
            refuse("NotBound", "the claim %s is %s", o.claim, tostring(status.phase))
        end
        local modes = table.concat(field(status, "accessModes"), ", ")
        if not modes:find "ReadWriteMany" then
            refuse("NotShared", "the claim %s is bound as %s", o.claim, modes)
        end
        return ("%s is bound, %s, ReadWriteMany (%s)"):format(o.claim, tostring(field(status, "capacity").storage),
            tostring(spec.storageClassName))
    end, with {
        NotFound = "make it: kubectl apply -f shared-pvc.yaml (ncrun render writes it), or name another with claim=",
        NotBound = ("its volume is being made, or nothing can make it: check storageClassName (rook-cephfs at NRP):"
            .. " kubectl describe pvc %s"):format(o.claim),
        NotShared = "a claim's access mode can't be changed: delete it and make it anew with accessModes:"
            .. " [ReadWriteMany] and a storageClassName that offers it (rook-cephfs at NRP)",
    })
end

-- ---- the pod ----

-- The reason and the words of what holds a pod up, or nil.
local function trouble(status)
    for _, container in ipairs(field(status, "containerStatuses")) do
        local waiting = field(field(container, "state"), "waiting")
        if waiting.reason then return waiting.reason, waiting.message end
    end
    for _, condition in ipairs(field(status, "conditions")) do
        if condition.status == "False" and condition.reason == "Unschedulable" then
            return condition.reason, condition.message
        end
    end
end

local function check_pod(report, o)
    local reason, message
    return report:try("pod", function()
        local status = field(get(o, "pod", o.pod), "status")
        reason, message = trouble(status)
        if status.phase ~= "Running" or reason then
            refuse("NotRunning", "the pod %s is %s%s%s", o.pod, tostring(status.phase),
                reason and ", " .. reason or "", message and ": " .. tostring(message) or "")
        end
        return o.pod .. " is running"
    end, with {
        NotFound = "start it: kubectl apply -f s3-shell-pod.yaml with your name in it (ncrun render writes it), or name"
            .. " another with pod=",
        NotRunning = function() return (WAITING[reason] or "see why: kubectl describe pod %s"):format(o.pod) end,
    })
end

local function check_ready(report, o)
    report:try("ready line", function()
        if not kubectl(o, "logs", o.pod, "--tail=10000"):find(o.ready, 1, true) then
            refuse("NotReady", 'the pod %s has not written "%s" yet', o.pod, o.ready)
        end
        return ('the pod has written "%s"'):format(o.ready)
    end, with { NotReady = ("it is still installing; watch it: kubectl logs -f %s"):format(o.pod) })
end

--- Looks at a claim and a pod.
---@param report nc.Report
---@param o { context: string?, namespace: string?, claim: string, pod: string?, ready: string }  without a
---  pod only the claim is looked at
function kube.check(report, o)
    check_claim(report, o)
    if not o.pod then
        report:absent("pod", "no pod= is named, and neither user= nor NRP_USER")
    elseif check_pod(report, o) then
        check_ready(report, o)
    else
        report:skip({ "ready line" }, "the pod does not run")
    end
end

return kube
