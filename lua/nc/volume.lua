--- The shared volume: a network file system mounted where the manifests expect it.
--
-- A folder that is merely there is none: the manifests mount a hostPath that is created where it
-- does not exist, and a checkpoint written into it would be gone with the node.

local errors = require "nc.errors"

local volume = {}

local NETWORK <const> = {
    ["9p"] = true, beegfs = true, ceph = true, cifs = true, ["fuse.ceph-fuse"] = true,
    ["fuse.glusterfs"] = true, ["fuse.juicefs"] = true, ["fuse.sshfs"] = true, glusterfs = true,
    gpfs = true, juicefs = true, lustre = true, nfs = true, nfs4 = true, smb3 = true,
    virtiofs = true, wekafs = true,
}

-- proc(5): blanks and the like in a path are written as \040.
local function unescape(path)
    return (path:gsub("\\([0-3][0-7][0-7])", function(octal) return string.char(tonumber(octal, 8)) end))
end

--- The type of the file system that is mounted at exactly this path, or nil. Pure.
---@param mountinfo string  the text of /proc/self/mountinfo
---@param path string
function volume.type_at(mountinfo, path)
    local found
    for line in mountinfo:gmatch "[^\n]+" do
        local point, kind = line:match "^%S+ %S+ %S+ %S+ (%S+) .- %- (%S+)"
        if point and unescape(point) == path then found = kind end -- the last one lies on top
    end
    return found
end

-- What is mounted at path, and whether it is a network file system. Never touches the path itself:
-- a server that is gone would hold us up.
local function mounted_at(path)
    local file <close> = io.open("/proc/self/mountinfo", "r")
    local kind = file and volume.type_at(file:read "a", path)
    return kind, kind and NETWORK[kind] or false
end

--- Whether a network file system is mounted at path.
---@return boolean
function volume.is_mounted(path)
    local _, network = mounted_at(path:match "^(/?.-)/*$")
    return network
end

--- path, where a network file system is mounted there; else an error that says what is.
---@return string
function volume.require(path)
    path = path:match "^(/?.-)/*$"
    local kind, network = mounted_at(path)
    if network then return path end
    error(errors.new {
        code = "NotFound",
        message = kind
            and ("%s is a %s file system, not a shared volume: mount one there, or set volume="):format(path, kind)
            or ("no shared volume is mounted at %s: mount one, set volume=, or use to=bucket"):format(path),
    }, 0)
end

return volume
