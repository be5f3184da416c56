--- The shared volume, the node's NVMe and the scratch folder: what they lie on, how much they hold, and
--- whether files can be made there.
--
-- The mount table tells the kind; a folder itself is only touched by a child, which is given up when its
-- file system does not answer: a mount whose server is gone holds whoever touches it.

local disk   = require "nc.core.disk"
local errors = require "nc.errors"
local json   = require "nc.json"
local proc   = require "nc.proc"
local sys    = require "nc.core.sys"
local task   = require "nc.task"
local units  = require "nc.units"
local volume = require "nc.volume"

local folders = {}

local NAMES <const> = {
    ceph = "CephFS", ["fuse.ceph"] = "CephFS", ["fuse.ceph-fuse"] = "CephFS", nfs = "NFS", nfs4 = "NFS",
    lustre = "Lustre", gpfs = "GPFS", beegfs = "BeeGFS", ["fuse.glusterfs"] = "GlusterFS",
    ["fuse.juicefs"] = "JuiceFS", wekafs = "WekaFS",
}

local HINTS <const> = {
    EACCES = "the process may not write there: set the pod's fsGroup or runAsUser to the folder's owner",
    EPERM = "the process may not write there: set the pod's fsGroup or runAsUser to the folder's owner",
    ENOENT = "it is not there: mount a hostPath or an emptyDir there, or name another folder",
    ENOSPC = "no space is left: delete what is not needed, or make it larger",
    EDQUOT = "the quota is used up: delete what is not needed, or ask for more",
    EROFS = "it is mounted read-only: mount it for writing where jobs have to write",
    ESTALE = "the server has forgotten this mount: mount it again (start the pod anew)",
    ENOTCONN = "the program that served this mount has ended: mount it again (start the pod anew)",
    EIO = "its disk or its server fails: look at dmesg on the node",
}

--- What a file system of this type is called by people: "CephFS". Pure.
---@return string
function folders.name_of(type)
    return NAMES[type] or type
end

local function read(path)
    local file <close> = io.open(path, "r")
    return file and file:read "a"
end

local function mounted(path)
    return volume.mount_of(read "/proc/self/mountinfo" or "", path)
end

--- What a disk is: "NVMe", "SSD", "rotating disk" or "virtual disk", and its name; nil for what is none. Pure.
---@param uevent string?      of /sys/dev/block/MAJOR:MINOR
---@param rotational string?  of its queue
---@return string? kind, string? name
function folders.disk_kind(uevent, rotational)
    local name = uevent and uevent:match "DEVNAME=(%S+)"
    if not name then return nil end
    if name:find "^nvme" then return "NVMe", name end
    if name:find "^x?vd" then return "virtual disk", name end -- it says nothing of what is behind it
    return rotational and rotational:find "^1" and "rotating disk" or "SSD", name
end

local function disk_of(mount)
    local block = "/sys/dev/block/" .. mount.device
    -- A partition has no queue of its own; the folder above it, its disk, has.
    return folders.disk_kind(read(block .. "/uevent"),
        read(block .. "/queue/rotational") or read(block .. "/../queue/rotational"))
end

-- ---- in the child ----

local function make_a_file(path)
    local probe <const> = ("%s/.ncrun-check-%d-%s"):format(path, sys.pid(), sys.hostname())
    local _ <close> = setmetatable({}, { __close = function() os.remove(probe) end })
    local body <const> = ("ncrun check\n"):rep(100)
    disk.replace(probe, body)
    if read(probe) ~= body then
        error(errors.new { code = "EIO", message = ("%s gives back other bytes than were written"):format(path) }, 0)
    end
end

-- what: how the folder's file system is called
local function touch(report, name, path, what, read_only)
    report:try(name, function()
        local free = disk.space(path)
        local space = free and units.format_size(free) .. " free" or "it does not say how much is free"
        if read_only then
            sys.readdir(path)
            return ("%s at %s, mounted read-only"):format(what, path), { path = path, free = free }
        end
        make_a_file(path)
        return ("%s at %s, %s"):format(what, path, space), { path = path, free = free }
    end, HINTS)
end

local function touch_volume(report, path)
    local mount = mounted(path)
    touch(report, "volume", path, ("%s (%s)"):format(folders.name_of(mount.type), mount.type), mount.read_only)
end

local function touch_local(report, name, path)
    local mount = mounted(path)
    local kind, device = disk_of(mount)
    touch(report, name, path, kind and ("%s (%s, %s)"):format(kind, device, mount.type)
        or mount.type == "overlay" and "the container's own layer (overlay)"
        or mount.type == "tmpfs" and "memory (tmpfs)" or mount.type)
end

-- ---- around it ----

-- What a child of ours prints within that many seconds. One that waits for a file system inside the kernel
-- does not even die when it is killed: it is left behind.
local function ask_child(words, patience)
    local out, err = {}, {}
    local child = proc.spawn(words, {
        stdout = function(data) out[#out + 1] = data end,
        stderr = function(data) err[#err + 1] = data end,
    })
    local ok, e = pcall(task.deadline, patience, child.wait, child)
    if ok then return table.concat(out), table.concat(err) end
    child:kill "KILL"
    error(e, 0)
end

-- Has a child look, and takes over what it found.
local function look_from_afar(report, name, path, patience)
    local part <const> = name:lower()
    local ok, out, err = pcall(ask_child,
        { "/proc/self/exe", "check", "only=" .. part, part .. "=" .. path, "patience=0", "json=yes" }, patience)
    if not ok and errors.is(out, "Timeout") then
        return report:fail(name, errors.new {
            code = "Timeout",
            message = ("%s did not answer in %s"):format(path, units.format_duration(patience)),
        }, "its server is gone or the network to it is: mount it again (start the pod anew), or set patience=")
    end
    if not ok then error(out, 0) end
    local said, found = pcall(json.decode, out)
    if not said then error("the child that looked at " .. path .. " failed: " .. err, 0) end
    for _, finding in ipairs(found.checks) do report:add(finding) end
end

local function absolute(path)
    path = path:match "^(/?.-)/*$"
    return path == "" and "/" or path
end

--- Looks at the shared volume.
---@param o { path: string, asked: boolean, patience: number }  asked: whether somebody said that one
---  is there; patience: seconds that its file system has for its answer, 0: it is touched right here
function folders.check_volume(report, o)
    local path = absolute(o.path)
    if volume.is_mounted(path) then
        if o.patience == 0 then return touch_volume(report, path) end
        return look_from_afar(report, "volume", path, o.patience)
    end
    local mount = mounted(path)
    local there = mount and mount.point == path and ("%s is a %s file system of this machine"):format(path, mount.type)
        or ("no network file system is mounted at %s"):format(path)
    if not o.asked then return report:absent("volume", there) end
    report:fail("volume", errors.new { code = "NotFound", message = there },
        "mount the claim there (readWriteMany), or set volume= to where it is mounted")
end

-- A folder of the node's own, which should not be on the network.
local function check_local(report, name, path, o)
    local mount = mounted(path)
    if mount and volume.kind_of(mount.type) then
        return report:fail(name, errors.new {
            code = "BadSetting", message = ("%s lies on a network file system (%s)"):format(path, mount.type),
        }, ("set %s= to a folder on the node's own disk: an emptyDir, or a hostPath"):format(name:lower()))
    end
    if o.patience == 0 then return touch_local(report, name, path) end
    look_from_afar(report, name, path, o.patience)
end

--- Looks at the node's NVMe.
---@param o { path: string, asked: boolean, patience: number }
function folders.check_nvme(report, o)
    local path = absolute(o.path)
    if not o.asked and not sys.stat(path) then return report:absent("NVMe", path .. " is not there") end
    check_local(report, "NVMe", path, o)
end

--- Looks at the folder for what a job needs only while it runs.
---@param o { path: string, patience: number }
function folders.check_scratch(report, o)
    check_local(report, "scratch", absolute(o.path), o)
end

return folders
