-- What `ncrun check kube=yes` reads out of kubectl's answers.
local helper = require "spec.helper"
local json   = require "dkjson"

local ANSWERS <const> = "spec/fixtures/kubectl-answers"
local CLAIM <const> = "get-persistentvolumeclaim-jupyterhub-shared-volume"
local POD <const>, LOGS <const> = "get-pod-tutorial-alice-pod", "logs-tutorial-alice-pod"

-- A folder with the recorded answers, but for those in `changes`: name -> text, or false for none.
local function answers(changes)
    local dir = helper.tmp()
    for _, name in ipairs { CLAIM, POD, LOGS } do
        if changes[name] == nil then helper.write(dir .. "/" .. name, helper.read(ANSWERS .. "/" .. name)) end
    end
    for name, text in pairs(changes) do
        if text then helper.write(dir .. "/" .. name, text) end
    end
    return dir
end

local function check(changes, ...)
    local dir = answers(changes)
    local code, out, err = helper.ncrun({ "check", "only=kube", "user=alice", "json=yes", ... }, { env = {
        KUBECTL_ANSWERS = dir, PATH = "spec/fixtures:/usr/bin:/bin",
    } })
    local said = json.decode(out)
    if not said then error(out .. err, 2) end
    local found = {}
    for _, finding in ipairs(said.checks) do found[finding.name] = finding end
    return found, code, helper.read(dir .. "/asked")
end

local function recorded(name, ...)
    local value = json.decode(helper.read(ANSWERS .. "/" .. name))
    for _, change in ipairs { ... } do change(value) end
    return json.encode(value)
end

local function assert_failed(finding, detail, hint)
    assert.equal("failed", finding.status, json.encode(finding))
    assert.truthy(finding.detail:find(detail, 1, true), json.encode(finding))
    assert.truthy(finding.hint:find(hint, 1, true), json.encode(finding))
end

local function waiting(reason, message)
    return recorded(POD, function(pod)
        pod.status.phase = "Pending"
        pod.status.containerStatuses[1].state = { waiting = { reason = reason, message = message } }
    end)
end

describe("ncrun check kube=yes", function()
    it("finds a claim that is bound and shared, a pod that runs, and its ready line", function()
        local found, code, asked = check({}, "namespace=nrp-training-k8s", "context=nautilus")
        assert.equal(0, code)
        assert.equal("jupyterhub-shared-volume is bound, 1Gi, ReadWriteMany (rook-cephfs)", found.claim.detail)
        assert.equal("ok", found.pod.status)
        assert.equal("ok", found["ready line"].status)
        for line in asked:gmatch "[^\n]+" do
            assert.truthy(line:find("--context=nautilus --namespace=nrp-training-k8s", 1, true), line)
        end
    end)

    it("names a claim that is not there, one that is pending, and one for a single node", function()
        local found, code = check { [CLAIM] = false }
        assert.equal(3, code)
        assert_failed(found.claim, "NotFound", "shared-pvc.yaml")
        found, code = check { [CLAIM] = recorded(CLAIM, function(claim) claim.status = { phase = "Pending" } end) }
        assert.equal(1, code)
        assert_failed(found.claim, "is Pending", "storageClassName")
        found = check { [CLAIM] = recorded(CLAIM, function(claim) claim.status.accessModes = { "ReadWriteOnce" } end) }
        assert_failed(found.claim, "ReadWriteOnce", "ReadWriteMany")
    end)

    it("names what holds a pod up", function()
        for reason, hint in pairs {
            ImagePullBackOff = "the image's name", CreateContainerConfigError = "Secret", ContainerCreating = "volume",
            CrashLoopBackOff = "kubectl logs --previous tutorial-alice-pod", RunContainerError = "kubectl describe pod",
        } do
            local found, code = check { [POD] = waiting(reason, "as the kubelet says") }
            assert.equal(1, code)
            assert_failed(found.pod, reason .. ": as the kubelet says", hint)
            assert.equal("skipped", found["ready line"].status)
        end
    end)

    it("names a pod that no node takes, and one that is not there", function()
        local found = check { [POD] = recorded(POD, function(pod)
            pod.status = { phase = "Pending", conditions = { { type = "PodScheduled", status = "False",
                reason = "Unschedulable", message = "0/412 nodes are available: 412 Insufficient cpu." } } }
        end) }
        assert_failed(found.pod, "412 Insufficient cpu", "lower its requests")
        assert_failed(check { [POD] = false }.pod, "NotFound", "s3-shell-pod.yaml")
    end)

    it("names a pod that is still installing", function()
        local found, code = check { [LOGS] = "Collecting boto3\n" }
        assert.equal(1, code)
        assert_failed(found["ready line"], "Done with installs", "kubectl logs -f tutorial-alice-pod")
        assert.equal("ok", check({ [LOGS] = "x\nready\n" }, "ready=ready")["ready line"].status)
    end)

    it("names what stands between it and the cluster", function()
        for said, hint in pairs {
            ["error: context \"nautilus\" does not exist\n"] = "kubectl config get-contexts",
            ["Error from server (Forbidden): persistentvolumeclaims \"x\" is forbidden: User \"alice\" cannot get\n"]
                = "namespace",
            ["error: You must be logged in to the server (Unauthorized)\n"] = "log in",
            ["The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?\n"]
                = "API does not answer",
        } do
            local found = check { [CLAIM] = false, [CLAIM .. ".err"] = said, [POD] = false, [POD .. ".err"] = said }
            assert_failed(found.claim, said:match "^[^\n]+", hint)
            assert_failed(found.pod, said:match "^[^\n]+", hint)
        end
    end)

    it("says so where kubectl is not", function()
        local bin = helper.tmp() -- with what the helper itself needs
        helper.sh("ln -s $(command -v timeout) " .. bin)
        local code, out = helper.ncrun({ "check", "only=kube" }, { env = { PATH = bin } })
        assert.equal(127, code)
        assert.truthy(out:find("✗ claim", 1, true), out)
        assert.truthy(out:find("install kubectl", 1, true), out)
        assert.truthy(out:find("- pod              not set up here", 1, true), out)
    end)

    it("looks at the cluster only when told to", function()
        local dir = answers {}
        local _, out = helper.ncrun({ "check", "json=yes" }, { env = {
            KUBECTL_ANSWERS = dir, PATH = "spec/fixtures:/usr/bin:/bin", HF_HUB_OFFLINE = "1" } })
        assert.is_nil(out:find '"claim"')
        assert.is_nil(helper.read(dir .. "/asked"))
        helper.ncrun({ "check", "json=yes", "kube=yes" }, { env = {
            KUBECTL_ANSWERS = dir, PATH = "spec/fixtures:/usr/bin:/bin", HF_HUB_OFFLINE = "1" } })
        assert.truthy(helper.read(dir .. "/asked"))
    end)
end)
