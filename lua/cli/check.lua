--- ncrun check

local bucket  = require "nc.check.bucket"
local check   = require "nc.check"
local command = require "cli.command"
local errors  = require "nc.errors"
local folders = require "nc.check.folders"
local hub     = require "nc.check.hub"
local json    = require "nc.json"
local kube    = require "nc.check.kube"
local log     = require "nc.log"
local output  = require "cli.output"
local shared  = require "cli.stores"
local sys     = require "nc.core.sys"

local TEXT <const> = [[
Looks at what a job needs and finds here, one line each: a tick, a cross with a hint below it, or a dash
for what is not set up here. Credentials (where they are, never what), the endpoint, TLS and the clock;
whether the bucket can be listed, written, read and deleted from, in parts and on condition, and how fast
it is; the shared volume, the node's NVMe, the scratch folder; the hub and its token. What it writes it
removes. With kube=yes also, through kubectl, a shared claim and a pod.

It ends with 0 when nothing failed, else as a command would that met the first cross.]]

local MARK <const> = { ok = "✓", failed = "✗", absent = "-", skipped = "-" }
local PARTS <const> = { "bucket", "volume", "nvme", "scratch", "hub", "kube" }

local params, flags = shared.options { "endpoint", "profile", "region" }
params.bucket = { nil, "the bucket; else S3_BUCKET", env = "NC_BUCKET" }
params.claim = { "jupyterhub-shared-volume", "the shared claim that kube=yes looks at" }
params.context = { nil, "kubectl's context; else the current one" }
params.json = { false, "one JSON object instead of lines" }
params.kube = { false, "look at the cluster, too" }
params.namespace = { nil, "of claim and pod; else the context's" }
params.nvme = { nil, "the node's own disk; else /mnt/nvme", type = "path" }
params.only = { nil, "of these alone: " .. table.concat(PARTS, ",") }
params.patience = { "10s", "what a file system has for its answer; 0: as long as it takes", type = "duration" }
params.pod = { nil, "the pod that kube=yes looks at; else tutorial-<user>-pod" }
params.prefix = { nil, "where in the bucket to write; else at its top" }
params.ready = { "Done with installs", "what the pod writes when it is ready" }
params.scratch = { nil, "for what lasts as long as the job; else TMPDIR, /scratch or /tmp", type = "path" }
params.seconds = { "2s", "how long throughput is measured, each way; 0: not at all", type = "duration" }
params.user = { nil, "whose pod it is", env = "NRP_USER" }
params.volume = { nil, "where the shared volume is mounted; else /mnt/shared", type = "path" }
flags["--json"] = "json=yes"

-- Prints each finding as it comes; those that were not looked at for one reason are one line.
local function printer()
    local names, reason = {}, nil
    local self = {}
    local function line(mark, name, detail)
        output.line(("%s %-16s %s"):format(mark, name, output.clean(detail)))
    end
    function self.flush()
        if reason then line(MARK.skipped, table.concat(names, ", "), reason) end
        names, reason = {}, nil
    end
    function self.show(finding)
        if finding.detail ~= reason then self.flush() end
        if finding.status == "skipped" then
            names[#names + 1], reason = finding.name, finding.detail
        else
            line(MARK[finding.status], finding.name, finding.detail)
            if finding.hint then output.line("    " .. output.clean(finding.hint)) end
        end
        output.finish() -- the next may take its time
    end
    function self.total(n)
        self.flush()
        output.line(("%d passed, %d failed, %d not set up here, %d not checked"):format(
            n.ok, n.failed, n.absent, n.skipped))
    end
    return self
end

-- What servers and kubectl say may hold anything.
local function without_secrets(finding)
    finding.detail = log.clean(finding.detail)
    finding.hint = finding.hint and log.clean(finding.hint)
end

-- Which parts are wanted, by name.
local function wanted(p)
    local set = {}
    if not p.only then
        for _, part in ipairs(PARTS) do set[part] = part ~= "kube" or p.kube end
        return set
    end
    for word in p.only:gmatch "[^,%s]+" do
        local known = false
        for _, part in ipairs(PARTS) do known = known or part == word end
        if not known then error(errors.usage("check: only=: %s", errors.unknown("part", word, PARTS)), 0) end
        set[word] = true
    end
    return set
end

local function scratch_of(p)
    local tmpdir = os.getenv "TMPDIR"
    if p.scratch or (tmpdir and tmpdir ~= "") then return p.scratch or tmpdir end
    return sys.stat "/scratch" and "/scratch" or "/tmp"
end

local function look(report, p)
    local only = wanted(p)
    if only.bucket then
        bucket.check(report, {
            bucket = p.bucket or os.getenv "S3_BUCKET", prefix = p.prefix, seconds = p.seconds,
            endpoint = p.endpoint, profile = p.profile, region = p.region,
        })
    end
    if only.volume then
        folders.check_volume(report,
            { path = p.volume or "/mnt/shared", asked = p.volume ~= nil, patience = p.patience })
    end
    if only.nvme then
        folders.check_nvme(report, { path = p.nvme or "/mnt/nvme", asked = p.nvme ~= nil, patience = p.patience })
    end
    if only.scratch then folders.check_scratch(report, { path = scratch_of(p), patience = p.patience }) end
    if only.hub then hub.check(report) end
    if only.kube then
        kube.check(report, {
            context = p.context, namespace = p.namespace, claim = p.claim, ready = p.ready,
            pod = p.pod or p.user and ("tutorial-%s-pod"):format(p.user),
        })
    end
end

return command {
    name = "check",
    operands = "[name=value ...]",
    summary = "what a job needs, and what it finds here",
    text = TEXT,
    params = params,
    flags = flags,

    run = function(p, operands)
        if #operands > 0 then error(errors.usage("check takes name=value options alone, not %s", operands[1]), 0) end
        local people = printer()
        local report = check.report(function(finding)
            without_secrets(finding)
            if not p.json then people.show(finding) end
        end)
        look(report, p)
        local code, result = report:exit_code(), report:counts()
        if p.json then
            result.checks, result.exit_code = json.array(report.findings), code
            output.line(json.encode(result, { indent = 2 }))
        else
            people.total(result)
        end
        output.finish()
        return code
    end,
}
