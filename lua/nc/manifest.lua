--- From a script to the text of the manifest that runs it.

local cluster = require "manifests.cluster"
local errors  = require "nc.errors"
local k8s     = require "nc.k8s"
local lint    = require "nc.k8s.lint"
local recipe  = require "nc.recipe"
local start   = require "nc.k8s.start"
local yaml    = require "nc.yaml"

local manifest = {}

-- For a script that says nothing about Kubernetes: a Job on the node that stays.
local function around(_, this)
    return k8s.job(this, {
        k8s.cpu_worker(), k8s.bucket_secret(), k8s.hub_token(), k8s.scratch("scratch", "/scratch"),
        image = cluster.images.client, grace = "60s",
        requests = { cpu = "1", memory = "2Gi" }, limits = { memory = "8Gi" },
    })
end

-- What nc.k8s knows as `this`.
local function subject(script, value, args, o)
    local this = {
        name = o.name, namespace = o.namespace, image = o.image, delivery_image = o.delivery_image,
        base = o.base, sums = o.sums, folder = start.FOLDER, params = {}, variables = {},
        script = { file = script.name:match "[^/]*$", stem = script.name:match("([^/]*)$"):gsub("%.lua$", ""),
                   text = script.text },
    }
    if not recipe.is(value) then
        this.words = args
        return this, {}
    end
    local p, _, given = value:parse(args, function() end) -- what this machine's environment has is not for the pod
    this.params, this.command = given.params, given.command
    for name, param in pairs(value.params) do this.variables[name] = param.env end
    return this, p
end

-- kind -> how to watch an object
local WATCH <const> = {
    Job = "logs -f job/%s",
    Deployment = "rollout status deployment/%s",
    Pod = "logs -f pod/%s",
    PersistentVolumeClaim = "get pvc %s",
}

-- The object that one applies the manifest for: its last.
local function main_object(objects)
    return objects[#objects]
end

--- The commands that apply, watch, repeat and remove it, as { what, command } in that order. A Job can't
--- be changed once it is there: applying it again means to delete it first.
---@param m nc.Manifest
---@param where string  what stands for the file: its name or its address
function manifest.commands(m, where)
    local main = main_object(m.objects)
    local kubectl = "kubectl --context <cluster> "
    local watch = (WATCH[main.kind] or "get all"):format(main.metadata.name)
    return {
        { "apply", kubectl .. "apply -f " .. where },
        { "watch", kubectl .. watch },
        { "again", ("%sdelete -f %s --ignore-not-found && %sapply -f %s"):format(kubectl, where, kubectl, where) },
        { "remove", ("%sdelete -f %s --ignore-not-found"):format(kubectl, where) },
    }
end

local function header(m)
    local lines = { ("%s: %s"):format(m.file, m.summary), "" }
    for _, pair in ipairs(manifest.commands(m, m.file)) do
        lines[#lines + 1] = ("  %-8s %s"):format(table.unpack(pair))
    end
    table.move({
        "",
        ("Rendered by ncrun from %s, which is in the ConfigMap below. To change what it does,"):format(m.script),
        "edit a copy of this file (the script, the env block, args) and apply that.",
    }, 1, 3, #lines + 1, lines)
    for i, line in ipairs(lines) do lines[i] = line == "" and "#" or "# " .. line end
    return table.concat(lines, "\n") .. "\n"
end

---@class nc.Manifest
---@field file string      "nanogpt-job.yaml"
---@field name string      of its objects
---@field script string    the script's name
---@field summary string
---@field objects table[]
---@field findings { path: string, message: string }[]  nothing where it may be applied
---@field text string

--- Renders one. Raises an error object for a wrong name or parameter. Options: file; name; base (address
--- that pods fetch ncrun below), sums (machine -> SHA-256 of ncrun) or delivery_image (holds ncrun);
--- summary, namespace ("" is none), image, where they are not the recipe's own.
---@param script { name: string, text: string }
---@param value any          what the script returned: a recipe, or anything
---@param args string[]      name=value words and maybe `--` and a command, for the pod
---@param o table
---@return nc.Manifest
function manifest.build(script, value, args, o)
    local bad = lint.bad_name(o.name)
    if bad then error(errors.usage('name="%s": %s', o.name, bad), 0) end
    local this, p = subject(script, value, args, o)
    local describe = recipe.is(value) and value.manifest or around
    local m = {
        file = o.file, name = o.name, script = this.script.file, objects = describe(p, this),
        summary = o.summary or (recipe.is(value) and value.summary) or this.script.file .. " as a Job.",
    }
    m.findings = lint.check(m.objects)
    m.text = header(m) .. yaml.encode_all(m.objects, { order = k8s.KEY_ORDER })
    return m
end

return manifest
