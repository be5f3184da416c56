--- Runs the pods of a manifest as a node would: namespaces of their own, the image's root (this machine's
--- programs, nothing else of it), the volumes as folders, the env block, the user, a read-only root where
--- it says so. What the cluster would give is given here: Secrets, the pod's name, host folders, claims.
--
--   local code, out, err = pods.run(text, { secrets = { ["nc-storage"] = server.env }, name = "pod" })
local helper = require "spec.helper"
local yaml = require "nc.yaml"

local pods = {}

-- As PID 1 of its namespaces: makes the root, then is the container. In $1: root/, mounts (source, target
-- and maybe ro in each line), argv (a script that ends in exec).
local ENTER <const> = [[
set -eu
root=$1/root
mount --bind "$root" "$root"
for d in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$d" ]; then cp -P "/$d" "$root/$d"
    elif [ -d "/$d" ]; then mkdir -p "$root/$d" && mount --rbind "/$d" "$root/$d"
    fi
done
mkdir -p "$root/usr" "$root/dev" "$root/proc" "$root/tmp"
mount --rbind /usr "$root/usr"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
hostname "$2"
while read -r source target mode; do
    mkdir -p "$root$target"
    mount --rbind "$source" "$root$target"
    if [ -n "$mode" ]; then mount -o remount,ro,bind "$root$target"; fi
done <"$1/mounts"
if [ -e "$1/ro" ]; then mount -o remount,ro,bind "$root"; fi
exec sh "$1/argv" "$root"
]]

local function quote(s)
    return "'" .. s:gsub("'", [['\'']]) .. "'"
end

--- The objects of a manifest by kind; the last of each.
function pods.objects(text)
    local found = {}
    for _, object in ipairs(yaml.decode_all(text)) do found[object.kind] = object end
    return found
end

-- Kubernetes' $(NAME) and $$, in args and env.
local function expand(s, env)
    return (s:gsub("%$(%$?)(%(?)([%w_]*)(%)?)", function(escaped, open, name, close)
        if escaped ~= "" then return "$" .. open .. name .. close end
        if open ~= "" and close ~= "" and env[name] then return env[name] end
    end))
end

local function secret_value(ref, secrets)
    local secret = secrets and secrets[ref.name]
    if not secret and not ref.optional then error("no Secret " .. ref.name, 0) end
    return secret
end

-- What a container's environment is, after that of its image.
local function environment(container, o, labels)
    local env = helper.env({ PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" }, o.image_env or {})
    for _, from in ipairs(container.envFrom or {}) do
        for name, value in pairs(secret_value(from.secretRef, o.secrets) or {}) do env[name] = value end
    end
    for _, var in ipairs(container.env or {}) do
        local from = var.valueFrom or {}
        if from.secretKeyRef then
            local secret = secret_value(from.secretKeyRef, o.secrets)
            env[var.name] = secret and secret[from.secretKeyRef.key]
        elseif from.fieldRef then
            local label = from.fieldRef.fieldPath:match "metadata.labels%['(.*)'%]"
            env[var.name] = label and labels[label] or o.name
        else
            env[var.name] = expand(var.value, env)
        end
    end
    for name, value in pairs(o.cluster_env or {}) do env[name] = value end
    return env
end

local function folder_of(volume, objects, o)
    if volume.hostPath then return o.host and o.host[volume.hostPath.path] or helper.tmp() end
    if volume.persistentVolumeClaim then return assert(o.claims[volume.persistentVolumeClaim.claimName]) end
    local folder = helper.tmp()
    for name, text in pairs(volume.configMap and objects.ConfigMap.data or {}) do
        helper.write(folder .. "/" .. name, text)
    end
    return folder
end

local function write_etc(root, o)
    helper.write(root .. "/etc/passwd", "root:x:0:0::/:/bin/sh\n")
    helper.write(root .. "/etc/hosts", "127.0.0.1 localhost " .. (o.hosts or "") .. "\n")
    helper.write(root .. "/etc/nsswitch.conf", "hosts: files dns\n")
    helper.sh("cp -r /etc/ld.so.cache /etc/ssl " .. root .. "/etc/ 2>/dev/null; mkdir -p " .. root
        .. "/etc/alternatives; "
        .. "cp -rP /etc/alternatives " .. root .. "/etc/")
end

-- One container, ready to be started: the words that start it.
local function prepare(container, template, folders, o)
    local place, spec = helper.tmp(), template.spec
    local user = spec.securityContext and spec.securityContext.runAsUser
    helper.sh("mkdir " .. place .. "/root")
    write_etc(place .. "/root", o)
    local mounts = {}
    for _, mount in ipairs(container.volumeMounts or {}) do
        mounts[#mounts + 1] = ("%s %s %s\n"):format(folders[mount.name], mount.mountPath, mount.readOnly and "ro" or "")
    end
    for target, source in pairs(o.image or {}) do mounts[#mounts + 1] = ("%s %s ro\n"):format(source, target) end
    helper.write(place .. "/mounts", table.concat(mounts))
    if container.securityContext and container.securityContext.readOnlyRootFilesystem then
        helper.write(place .. "/ro", "")
    end
    local labels = helper.env(template.metadata and template.metadata.labels or {}, o.labels or {})
    local env = environment(container, o, labels)
    local words = { "exec chroot" }
    if user then words[#words + 1] = ("--userspec=%d:%d"):format(user, user) end
    words[#words + 1] = '"$1" env -i'
    for name, value in pairs(env) do words[#words + 1] = quote(name .. "=" .. value) end
    for _, word in ipairs(container.command) do words[#words + 1] = quote(expand(word, env)) end
    for _, word in ipairs(container.args or {}) do words[#words + 1] = quote(expand(word, env)) end
    helper.write(place .. "/argv", table.concat(words, " ") .. "\n")
    return { "unshare", "-mpfu", "sh", "-c", ENTER, "sh", place, o.hostname or o.name }
end

local function template_of(objects)
    local owner = objects.Job or objects.Deployment
    return owner and owner.spec.template or objects.Pod
end

-- The pod's containers in the order in which they are started.
local function containers(text, o)
    local objects = pods.objects(text)
    local template = template_of(objects)
    local spec, folders = template.spec, {}
    local user = spec.securityContext and spec.securityContext.fsGroup
    for _, volume in ipairs(spec.volumes) do
        folders[volume.name] = folder_of(volume, objects, o)
        if user and not volume.configMap then helper.sh(("chown %d:%d %s"):format(user, user, folders[volume.name])) end
        if volume.configMap then helper.sh("chmod -R a+rX " .. folders[volume.name]) end
    end
    local list = {}
    for _, kind in ipairs { "initContainers", "containers" } do
        for _, container in ipairs(spec[kind] or {}) do
            if not (o.skip and o.skip[container.name]) then
                list[#list + 1] = prepare(container, template, folders, o)
            end
        end
    end
    return list
end

---Runs a pod to its end. Options: name (of the pod), hostname, secrets (name -> variables), image_env,
---cluster_env (wins over the manifest's), labels, host (path -> folder), claims (name -> folder), image
---(target -> folder with files of the image), hosts (further names of this machine), timeout.
---@return integer code, string stdout, string stderr  of the container that ended it
function pods.run(text, o)
    local code, out, err
    for _, argv in ipairs(containers(text, o)) do
        code, out, err = helper.run(argv, { timeout = o.timeout or 60 })
        if code ~= 0 then break end
    end
    return code, out, err
end

---Starts a pod of one container and goes on: a process of helper.start.
function pods.start(text, o)
    return helper.start(containers(text, o)[1])
end

return pods
