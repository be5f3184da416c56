--- The pages beside the manifests: the catalog, a walk through it, and what to do first on a cluster.
-- Each is a pure function of what was rendered.

local manifest = require "nc.manifest"

local pages = {}

local GROUPS <const> = {
    { "train", "Train", "The log is in the bucket and on the shared volume while the run goes on, where the cluster "
        .. "has them, and after its node is gone." },
    { "logs", "Read a log", "From the CPU worker, which stays. The Job is gone two minutes after it has ended, so "
        .. "that applying it again prints a fresh copy. JOB and KEY in its env block say whose log." },
    { "stage", "Stage a checkpoint", "From the model hub into a copy that outlives every node, every byte checked. "
        .. "It runs on the CPU worker, so it can start before the GPU node is there. Applied again, it goes on "
        .. "where it was." },
    { "serve", "Serve", "An init container puts the weights on the node's NVMe (from there, the volume, the bucket "
        .. "or the hub, in that order); then the engine starts." },
    { "nrp", "Storage on NRP", "For a namespace of yours: put -n <namespace> behind kubectl." },
}

local function escape(s)
    return (s:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }))
end

local function of_group(list, group)
    local found = {}
    for _, m in ipairs(list) do
        if m.row.group == group then found[#found + 1] = m end
    end
    return found
end

local function address(s, file)
    return s.base .. "/" .. file
end

-- ---- the catalog ----

local STYLE <const> = [[
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f3f3f3; border-radius: 3px }
code { padding: 0 .2em } pre { padding: .6em; overflow-x: auto }
table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid #ddd; padding: .4em .6em .4em 0; vertical-align: top }
]]

local function page(title, style, body)
    return table.concat {
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>", escape(title), "</title>\n<style>\n",
        STYLE, style, "</style>\n</head>\n<body>\n<h1>", escape(title), "</h1>\n", body, "</body>\n</html>\n",
    }
end

local function link(file)
    return ('<a href="%s">%s</a>'):format(escape(file), escape(file))
end

--- index.html
function pages.index(list, s)
    local out = { "<p>Download one, edit it if you like, apply it. ", link "FIRST-JOB.md", " walks through each; ",
        link "getting-started.html", " says what fits your cluster.</p>\n" }
    for _, group in ipairs(GROUPS) do
        local found = of_group(list, group[1])
        if #found > 0 then
            out[#out + 1] = ("<h2>%s</h2>\n<p>%s</p>\n<table>\n"):format(escape(group[2]), escape(group[3]))
            for _, m in ipairs(found) do
                out[#out + 1] = ("<tr><td>%s<td>%s\n"):format(link(m.file), escape(m.row.about .. "."))
            end
            out[#out + 1] = "</table>\n"
        end
    end
    out[#out + 1] = "<h2>The recipes in them</h2>\n<p>"
    local seen = {}
    for _, m in ipairs(list) do
        if not seen[m.script] then out[#out + 1] = link(m.script) .. " " end
        seen[m.script] = true
    end
    out[#out + 1] = "</p>\n<p>Pods fetch ncrun from beside the manifest and check its SHA-256: " .. link "SHA256SUMS"
    local machines = {}
    for machine in pairs(s.sums) do machines[#machines + 1] = machine end
    table.sort(machines)
    for _, machine in ipairs(machines) do out[#out + 1] = ", " .. link("ncrun-" .. machine) end
    out[#out + 1] = ".</p>\n"
    return page("First jobs", "", table.concat(out))
end

-- ---- the walk ----

local WALK <const> = [[
# First job

Each file below is one `kubectl apply`. Replace `<cluster>` by a context of `kubectl config get-contexts`. A person
can read this from top to bottom; an agent can take any section by itself: apply, watch, compare with "What you see".

## Before

- `kubectl --context <cluster> get nodes` lists the nodes. The CPU worker stays; GPU nodes come when a pod asks for
  one (some minutes) and are taken back minutes after it has ended.
- `kubectl --context <cluster> get secret nc-storage` shows whether the cluster holds the keys of a bucket. All of
  these run without it, and then keep nothing in a bucket.
- A gated model needs a token:
  `kubectl --context <cluster> create secret generic api-keys --from-literal=HF_TOKEN=<token>`

A pod fetches `ncrun` from %s and checks it against the SHA-256 in its manifest. Where that fails,
a training runs without it, and keeps no log; the others stop and say why.

## When no pod appears

`kubectl --context <cluster> describe job/<name>` shows events. `violates PodSecurity` means that the namespace does not
allow hostPath volumes: `apply` succeeds all the same. `Insufficient nvidia.com/gpu` (or `amd.com/gpu`) means that the
node is on its way. A Job can't be changed while it is there: delete it first, as the line "again" does.
]]

-- group -> what a person sees and what to change
local SEE <const> = {
    train = "What you see: nanoGPT's steps with their loss, and from `start:` or `ncrun` one line each about where "
        .. "the log goes. The exit code of the pod is the training's own. To train something else, download the file "
        .. "and change `train` in its ConfigMap, or what follows `--` in `args`. To render one from scratch: `ncrun "
        .. "render nanogpt.lua name=my-job -- python train.py`.",
    logs = "What you see: the log, byte for byte. `there is no log below ...` and exit code 3 mean that none was "
        .. "written yet: the first upload comes after 60 s. To read another job's, set JOB in the env block "
        .. "(`nanogpt-mn` for two nodes); for one particular log, set KEY to its whole key.",
    stage = "What you see: every 10 s how much has moved, and how fast; at the end `staged ... files`, or `already "
        .. "complete`. While it runs `models/<name>/.staging` says how far it is; at its end "
        .. "`models/<name>/.complete` lists every file with its digest. Don't rotate the bucket's key "
        .. "meanwhile; apply the Job again if you have.",
    serve = "What you see: first the init container's decision and its progress (`-c place`), then the engine's own "
        .. "log. Watch `kubectl get pods` until it is ready: a checkpoint of 1.5 TB takes its time. The first request: "
        .. "`kubectl port-forward service/inkling-serve 8000`, then `curl localhost:8000/v1/models` (kimi-k3-serve: "
        .. "port 30000). Deleting it leaves the staged copy.",
    nrp = "What you see: see the comment at the top of the recipe in the file.",
}

--- FIRST-JOB.md
function pages.first_job(list, s)
    local out = { WALK:format(s.base) }
    for _, group in ipairs(GROUPS) do
        local found = of_group(list, group[1])
        if #found > 0 then
            out[#out + 1] = ("\n## %s\n\n%s\n\n%s\n"):format(group[2], group[3], SEE[group[1]])
            for _, m in ipairs(found) do
                out[#out + 1] = ("\n### %s\n\nThis one %s.\n\n"):format(m.file, m.row.about)
                for _, pair in ipairs(manifest.commands(m, address(s, m.file))) do
                    out[#out + 1] = ("    # %s\n    %s\n"):format(pair[1], pair[2])
                end
            end
        end
    end
    return table.concat(out)
end

-- ---- what to do first ----

-- Whether a manifest is a step on such a cluster. A copy on the volume comes before one in the bucket; a
-- reader is there for each store; without a store there is nothing to stage into.
local function fits(m, c)
    local params, group = m.row[3], m.row.group
    if params.vendor and params.vendor ~= c.vendor then return false end
    if group == "stage" then
        if params.to == "volume" then return c.volume end
        return c.bucket and not c.volume
    end
    if group == "logs" then
        if params.from == "volume" then return c.volume end
        return c.bucket
    end
    return group == "train" or group == "serve"
end

--- The steps for a cluster, in their order: sections of { title, note, manifests }.
---@param cluster { vendor: string, bucket: boolean, volume: boolean }
function pages.steps(list, cluster)
    local sections = {}
    for _, group in ipairs(GROUPS) do
        local section = { title = group[2], note = group[3] }
        for _, m in ipairs(list) do
            if m.row.group == group[1] and fits(m, cluster) then section[#section + 1] = m end
        end
        if group[1] == "stage" and cluster.volume and cluster.bucket then
            section.note = section.note .. " The bucket takes the same copy: s3://$NC_BUCKET/models/<name>/."
        elseif group[1] == "serve" and not cluster.volume and not cluster.bucket then
            section.note = "This cluster keeps no copy: the checkpoint comes from the model hub at each start on a "
                .. "new node."
        end
        if #section > 0 then sections[#sections + 1] = section end
    end
    return sections
end

local function each_cluster(fn)
    for _, vendor in ipairs { "nvidia", "amd" } do
        for _, store in ipairs { { true, true }, { true, false }, { false, true }, { false, false } } do
            local c = { vendor = vendor, bucket = store[1], volume = store[2] }
            local words = { vendor, c.bucket and "bucket" or nil }
            words[#words + 1] = c.volume and "volume" or nil
            fn(c, table.concat(words, "-"))
        end
    end
end

--- getting-started.html: one section for each kind of cluster, of which the address (#amd-bucket) picks
--- one.
function pages.getting_started(list, s)
    local out = { "<p>Your cluster has:</p>\n<table>\n" }
    local vendor
    each_cluster(function(c, id)
        if c.vendor ~= vendor then
            out[#out + 1] = ("<tr><td>%s GPUs"):format(c.vendor == "amd" and "AMD" or "NVIDIA")
            vendor = c.vendor
        end
        local stores = c.bucket and c.volume and "bucket and volume" or c.bucket and "a bucket"
            or c.volume and "a volume" or "neither"
        out[#out + 1] = ('<td><a href="#%s">%s</a>\n'):format(id, stores)
    end)
    out[#out + 1] = "</table>\n<p><code>kubectl --context &lt;cluster&gt; get secret nc-storage</code> shows whether "
        .. "there is a bucket; support adds a volume on request.</p>\n"
    each_cluster(function(c, id)
        out[#out + 1] = ('<section id="%s">\n'):format(id)
        for _, section in ipairs(pages.steps(list, c)) do
            out[#out + 1] = ("<h2>%s</h2>\n<p>%s</p>\n"):format(escape(section.title), escape(section.note))
            for _, m in ipairs(section) do
                local commands = manifest.commands(m, address(s, m.file))
                out[#out + 1] = ("<p>%s %s:</p>\n<pre>%s\n%s</pre>\n"):format(link(m.file), escape(m.row.about),
                    escape(commands[1][2]), escape(commands[2][2]))
            end
        end
        out[#out + 1] = "</section>\n"
    end)
    return page("Getting started", "section { display: none } section:target { display: block }\n", table.concat(out))
end

return pages
