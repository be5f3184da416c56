local elf      = require "nc.elf"
local k8s      = require "nc.k8s"
local lint     = require "nc.k8s.lint"
local manifest = require "nc.manifest"
local pages    = require "manifests.pages"
local recipe   = require "nc.recipe"
local start    = require "nc.k8s.start"
local yaml     = require "nc.yaml"

local SUM <const> = ("ab"):rep(32)

local function this(more)
    local t = {
        name = "demo", base = "https://a.b/c", sums = { x86_64 = SUM }, folder = start.FOLDER, params = {},
            variables = {},
        script = { file = "demo.lua", stem = "demo", text = "return 1\n" },
    }
    for k, v in pairs(more or {}) do t[k] = v end
    return t
end

local function by_kind(objects)
    local found = {}
    for _, object in ipairs(objects) do found[object.kind] = object end
    return found
end

local function names(list, field)
    local out = {}
    for i, item in ipairs(list) do out[i] = item[field or "name"] end
    return out
end

local function findings(objects)
    local lines = {}
    for i, f in ipairs(lint.check(objects)) do lines[i] = f.path .. ": " .. f.message end
    return table.concat(lines, "\n")
end

describe("nc.k8s", function()
    it("puts a pod together of parts, each with what it adds to pod and container", function()
        local job = by_kind(k8s.job(this(), {
            k8s.gpu_node { vendor = "amd" }, k8s.bucket_secret(), k8s.shared_volume(), false,
            k8s.scratch("logs", "/logs", "10Gi"), k8s.shm "32Gi", image = "a:1", grace = "1.5m",
        })).Job
        local spec = job.spec.template.spec
        local container = spec.containers[1]
        assert.equal("default", job.metadata.namespace)
        assert.same({ ["node-role.kubernetes.io/gpu-worker"] = "" }, spec.nodeSelector)
        assert.same({ { key = "amd.com/gpu", operator = "Exists", effect = "NoSchedule" } }, spec.tolerations)
        assert.same({ limits = { ["amd.com/gpu"] = "8" } }, container.resources)
        assert.same({ { secretRef = { name = "nc-storage", optional = true } } }, container.envFrom)
        assert.same({ "shared", "logs", "shm", "script", "ncrun" }, names(spec.volumes))
        assert.same({ "/mnt/shared", "/logs", "/dev/shm", "/etc/ncrun", "/ncrun" },
            names(container.volumeMounts, "mountPath"))
        assert.equal("Memory", spec.volumes[3].emptyDir.medium)
        assert.equal(90, spec.terminationGracePeriodSeconds)
        assert.equal("", findings(k8s.job(this(), { k8s.gpu_node { vendor = "amd" }, image = "a:1" })))
    end)

    it("carries parameters: in the env block where the recipe reads them there, else as words", function()
        local o = { image = "a:1", params = { nodes = "2", run = false }, command = { "sh", "-c",
            "echo $$ $(HOME) $x" } }
        local container = by_kind(k8s.job(this {
            params = { vendor = "amd", run = "x", nodes = "1" }, variables = { vendor = "GPU_VENDOR" },
        }, o)).Job.spec.template.spec.containers[1]
        assert.same({ "sh", "/etc/ncrun/start" }, container.command)
        assert.same({ "/etc/ncrun/demo.lua", "nodes=2", "--", "sh", "-c", "echo $$$$ $$(HOME) $$x" }, container.args)
        assert.same({ { name = "GPU_VENDOR", value = "amd" },
            { name = "POD_NAME", valueFrom = { fieldRef = { fieldPath = "metadata.name" } } } }, container.env)
        container = by_kind(k8s.job(this { command = { "mine" } }, o)).Job.spec.template.spec.containers[1]
        assert.same({ "--", "mine" }, { table.unpack(container.args, 3) })
    end)

    it("takes from a pod what it can do without, unless it has GPUs or a host folder", function()
        local function context(...)
            local spec = by_kind(k8s.job(this(), { image = "a:1", ... })).Job.spec.template.spec
            return spec.securityContext, spec.containers[1].securityContext
        end
        local pod, container = context(k8s.cpu_worker())
        assert.is_true(pod.runAsNonRoot)
        assert.is_true(container.readOnlyRootFilesystem)
        assert.same({ "ALL" }, container.capabilities.drop)
        for _, part in ipairs { k8s.shared_volume(), k8s.gpu_node { vendor = "nvidia" }, k8s.nvme "/mnt/nvme" } do
            pod, container = context(part)
            assert.same(part.pod.volumes and { runAsUser = 0, runAsGroup = 0 } or nil, pod)
            assert.same({ allowPrivilegeEscalation = false }, container)
        end
    end)

    it("tells a node that was taken back from a run that failed", function()
        local rules = by_kind(k8s.job(this(), { image = "a:1", final = { 2, 5 } })).Job.spec.podFailurePolicy.rules
        assert.same({ "Ignore", "Ignore", "FailJob" }, names(rules, "action"))
        assert.same({ type = "DisruptionTarget", status = "True" }, rules[1].onPodConditions[1])
        assert.same({ 143 }, rules[2].onExitCodes.values)
        assert.is_nil(by_kind(k8s.job(this(), { image = "a:1", reclaimed = false })).Job.spec.podFailurePolicy)
    end)

    it("gives nodes of one Job names and nodes of their own", function()
        local found = by_kind(k8s.job(this(), { image = "a:1", nodes = 2 }))
        local spec = found.Job.spec
        assert.same({ "Indexed", 2, 2, "Failed" },
            { spec.completionMode, spec.completions, spec.parallelism, spec.podReplacementPolicy })
        assert.equal("demo", spec.template.spec.subdomain)
        assert.equal("None", found.Service.spec.clusterIP)
        assert.is_true(found.Service.spec.publishNotReadyAddresses)
        assert.same({ ["batch.kubernetes.io/job-name"] = "demo" }, found.Service.spec.selector)
    end)

    it("serves: init container, ports, probes, a Service", function()
        local t = this()
        local objects = k8s.deployment(t, {
            k8s.gpu_node { vendor = "nvidia" }, k8s.nvme "/mnt/nvme",
            k8s.init_container(t, { k8s.nvme "/mnt/nvme", name = "place", image = "b:1",
                params = { phase = "place" } }),
            image = "a:1", params = { phase = "engine" }, load_time = "2h", grace = "60s",
            ports = { { name = "http", containerPort = 8000 } },
            startup = k8s.probe { path = "/v1/models", port = "http", period = "10s", failures = 360 },
        })
        assert.equal("", findings(objects))
        local deployment = by_kind(objects).Deployment
        assert.same({ { name = "http", port = 8000, targetPort = "http" } }, by_kind(objects).Service.spec.ports)
        assert.same({ "nvme", "script", "ncrun" }, names(deployment.spec.template.spec.volumes))
        local spec = deployment.spec.template.spec
        assert.equal("phase=place", spec.initContainers[1].args[2])
        assert.equal("phase=engine", spec.containers[1].args[2])
        assert.equal(360, spec.containers[1].startupProbe.failureThreshold)
        assert.equal(7200, deployment.spec.progressDeadlineSeconds)
        assert.equal("Recreate", deployment.spec.strategy.type)
    end)

    it("runs on a Slurm site behind InterLink", function()
        local job = by_kind(k8s.job(this(), {
            k8s.interlink_node { host = "site-a", flags = "--gres=gpu:1", pre_exec = "trap '' TERM" },
            k8s.env { AWS_ACCESS_KEY_ID = { secret = "interlink-s3", key = "access-key" } },
            image = "a:1", limits = { memory = "4Gi" },
        })).Job
        local template = job.spec.template
        assert.same({ ["slurm-job.vk.io/flags"] = "--gres=gpu:1", ["slurm-job.vk.io/pre-exec"] = "trap '' TERM" },
            template.metadata.annotations)
        assert.same({ { key = "virtual-node.interlink/no-schedule", operator = "Exists" } }, template.spec.tolerations)
        assert.equal("site-a", template.spec.nodeSelector["kubernetes.io/hostname"])
        assert.is_nil(job.metadata.namespace)
    end)

    it("takes ncrun from an image where one is given", function()
        local spec = by_kind(k8s.job(this { delivery_image = "r.io/ncrun:1" },
            { image = "a:1" })).Job.spec.template.spec
        assert.equal("r.io/ncrun:1", spec.initContainers[1].image)
        assert.same({ "/etc/ncrun/install.lua" }, spec.initContainers[1].args)
    end)

    it("refuses an unknown option and parts that disagree", function()
        assert.error_matches(function() k8s.job(this(), { image = "a:1", imgae = "b" }) end, 'did you mean "image"')
        assert.error_matches(function() k8s.gpu_node { vendor = "intel" } end, "unknown GPU vendor")
        assert.error_matches(function()
            k8s.job(this(), { k8s.interlink_node { host = "a" }, k8s.interlink_node { host = "b" }, image = "a:1" })
        end, "disagree about pod.spec.nodeSelector")
    end)
end)

describe("a lint", function()
    -- A good manifest, broken by fn(job, container, objects).
    local function broken(fn)
        local objects = k8s.job(this(), {
            k8s.gpu_node { vendor = "nvidia" }, k8s.scratch("logs", "/logs", "1Gi"), k8s.shm "32Gi", image = "a:1",
                nodes = 2,
            requests = { cpu = "500m", memory = "1Gi" }, limits = { memory = "40Gi" },
            ports = { { name = "http", containerPort = 80 } }, env = { A = "1" },
            readiness = k8s.probe { path = "/", port = "http", period = "5s", failures = 3 },
        })
        assert.equal("", findings(objects))
        local found = by_kind(objects)
        fn(found.Job, found.Job.spec.template.spec.containers[1], objects, found)
        return findings(objects)
    end

    for what, case in pairs {
        ["a name that is no DNS label"] = { function(j) j.metadata.name = "Demo_1" end, "Job/Demo_1.metadata.name" },
        ["an Indexed name without room for -N"] = {
            function(j) j.metadata.name = ("a"):rep(62) end, "its pods get %-N" },
        ["a container's name"] = { function(_, c) c.name = "Main" end, "containers%[0%].name" },
        ["a port's name"] = { function(_, c) c.ports[1].name = "a-very-long-name" end, "at most 15" },
        ["a probe of no port"] = {
            function(_, c) c.readinessProbe.httpGet.port = "htp" end, 'readinessProbe.httpGet.port: there is no port' },
        ["a mount of no volume"] = {
            function(_, c) c.volumeMounts[1].name = "log" end, 'volumeMounts%[0%].name: there is no volume "log"' },
        ["a mount path twice"] = { function(_, c) c.volumeMounts[1].mountPath = "/ncrun" end, '"/ncrun" comes twice' },
        ["a variable twice"] = {
            function(_, c) c.env[2].name = "A" end, 'env%[1%].name: "A" comes twice' },
        ["a request above its limit"] = {
            function(_, c) c.resources.requests.memory = "41Gi" end,
                'requests%[memory%]: "41Gi" is more than the limit' },
        ["G for Gi"] = { function(_, c) c.resources.limits.memory = "40G" end, 'counts in thousands; write 40Gi' },
        ["m of memory"] = { function(_, c) c.resources.requests.memory = "512m" end, "thousandths of a byte" },
        ["a quantity that is none"] = { function(_, c) c.resources.limits.memory = "40GB" end, "is no quantity" },
        ["a part of a GPU"] = { function(_, c) c.resources.limits["nvidia.com/gpu"] = "0.5" end, "GPUs are whole" },
        ["GPUs as a request alone"] = { function(_, c)
            c.resources.requests["nvidia.com/gpu"], c.resources.limits["nvidia.com/gpu"] = "8", nil
        end, "GPUs go into limits" },
        ["GPUs of two vendors"] = { function(_, c) c.resources.limits["amd.com/gpu"] = "8" end, "two vendors" },
        ["an image without a tag"] = { function(_, c) c.image = "r.io:5000/a" end, "has no tag" },
        ["medium: memory"] = { function(j)
            for _, v in ipairs(j.spec.template.spec.volumes) do if v.name == "shm" then
                v.emptyDir.medium = "memory" end end
        end, 'emptyDir.medium: "memory" is no medium' },
        ["a ConfigMap of another name"] = { function(_, _, o) o[1].metadata.name = "other" end, 'no ConfigMap "demo"' },
        ["an octal mode"] = { function(j)
            for _, v in ipairs(j.spec.template.spec.volumes) do if v.configMap then
                v.configMap.defaultMode = 755 end end
        end, "755: write a decimal number" },
        ["a restartPolicy that a Job can't have"] = {
            function(j) j.spec.template.spec.restartPolicy = "Always" end, "restartPolicy: is Never" },
        ["exit code 0 with In"] = {
            function(j) j.spec.podFailurePolicy.rules[2].onExitCodes.values = { 0 } end, "0 is not allowed" },
        ["a status that is no text"] = {
            function(j) j.spec.podFailurePolicy.rules[1].onPodConditions[1].status = true end,
                'a status is the text "True"' },
        ["Indexed without completions"] = { function(j) j.spec.completions = nil end, "needs it" },
        ["a subdomain without its Service"] = { function(j) j.spec.template.spec.subdomain = "x" end,
            'no Service "x"' },
        ["a Service that selects nobody"] = { function(_, _, _, found)
            found.Service.spec.selector = { app = "x" }
        end, "Service/demo.spec.selector: selects no pod" },
        ["a ConfigMap that apply refuses"] = { function(_, _, _, found)
            found.ConfigMap.data.big = ("x"):rep(262144)
        end, "kubectl apply takes less" },
        ["an object twice"] = { function(_, _, o) table.insert(o, o[1]) end, "ConfigMap/demo: comes twice" },
        ["text where an object belongs"] = { function(j) j.spec.template = 5 end, "not shaped as a Job is" },
        ["a value that is no string"] = { function(_, c) c.env[1].value = 1 end, "env%[0%].value: is no string" },
    } do
        it("sees " .. what, function() assert.matches(case[2], broken(case[1])) end)
    end

    it("sees a Deployment that does not select its own pods", function()
        local objects = k8s.deployment(this(), { image = "a:1" })
        objects[2].spec.template.metadata.labels = { app = "x" }
        assert.matches("Deployment/demo.spec.selector", findings(objects))
        assert.matches("document 1: is no object", findings { "x" })
    end)
end)

describe("nc.manifest", function()
    local script = { name = "some/dir/demo.lua", text = "return 1\n" }
    local settings = { file = "x.yaml", name = "x", base = "https://a.b", sums = { x86_64 = SUM } }

    it("puts a Job around a script that says nothing about Kubernetes", function()
        local m = manifest.build(script, nil, { "a=1", "b" }, settings)
        local found = by_kind(yaml.decode_all(m.text))
        assert.same({}, m.findings)
        assert.equal("return 1\n", found.ConfigMap.data["demo.lua"])
        assert.same({ "/etc/ncrun/demo.lua", "a=1", "b" }, found.Job.spec.template.spec.containers[1].args)
        assert.matches("^# x.yaml: demo.lua as a Job", m.text)
    end)

    it("refuses a name that can't be one, with the rule, and a parameter that is none", function()
        for _, name in ipairs { "My_Job", "-a", "a-", ("a"):rep(53), "", "a.b" } do
            settings.name = name
            assert.error_matches(function() manifest.build(script, nil, {}, settings) end,
                "a name has at most 52 of a%-z")
        end
        settings.name = "x"
        local r = recipe { summary = "s", params = { n = { 1, "n" } }, run = function() end }
        assert.error_matches(function() manifest.build(script, r, { "m=1" }, settings) end, 'unknown parameter "m"')
        assert.error_matches(function() manifest.build(script, r, { "n=x" }, settings) end, "not a whole number")
    end)
end)

describe("the Getting Started page", function()
    local function list_of(rows)
        local list = {}
        for i, row in ipairs(rows) do
            list[i] = { file = row[1] .. ".yaml", row = row, objects = { { kind = "Job", metadata = { name = "x" } } } }
        end
        return list
    end
    local catalog = require "manifests.catalog"

    for state, files in pairs {
        ["nvidia"] = "nanogpt-job nanogpt-multinode",
        ["amd"] = "nanogpt-job-amd nanogpt-multinode-amd",
        ["nvidia bucket"] = "nanogpt-job nanogpt-multinode bucket-logs-reader inkling-weights-to-bucket",
        ["amd bucket"] = "nanogpt-job-amd nanogpt-multinode-amd bucket-logs-reader kimi-k3-weights-to-bucket "
            .. "inkling-weights-to-bucket-amd",
        ["nvidia volume"] = "nanogpt-job nanogpt-multinode volume-logs-reader inkling-weights-to-volume",
        ["amd volume bucket"] = "nanogpt-job-amd nanogpt-multinode-amd bucket-logs-reader volume-logs-reader "
            .. "kimi-k3-weights-to-volume inkling-weights-to-volume-amd",
    } do
        it("has the steps of a cluster with " .. state, function()
            local found = {}
            local sections = pages.steps(list_of(catalog), { vendor = state:match "^%a+",
                bucket = state:find "bucket" ~= nil, volume = state:find "volume" ~= nil })
            for _, section in ipairs(sections) do
                if section.title ~= "Serve" then
                    for _, m in ipairs(section) do found[#found + 1] = m.file:match "^[^.]*" end
                end
                if section.title == "Stage a checkpoint" and state:find "volume bucket" then
                    assert.matches("NC_BUCKET", section.note)
                end
            end
            assert.equal(files, table.concat(found, " "))
        end)
    end
end)

describe("nc.elf", function()
    it("tells machine and static from a program's header", function()
        local f <close> = assert(io.open("/proc/self/exe", "rb"))
        local found = elf.read(f:read(4096))
        assert.is_true(found.machine == "x86_64" or found.machine == "aarch64")
        assert.is_nil(elf.read "#!/bin/sh\n")
        assert.is_nil(elf.read(("\127ELF\2\1"):rep(20)))
    end)
end)
