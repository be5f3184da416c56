--- The shared volume: a network file system mounted where the manifests expect it.
--
-- A folder that is merely there is none: the manifests mount a hostPath that is created where it
-- does not exist, and a checkpoint written into it would be gone with the node.

local afar   = require "nc.afar"
local errors = require "nc.errors"

local volume = {}

-- The types as mountinfo writes them -> what the file system is good for. On "nfs" a compiler's many
-- small files, locks and renames stall, and so do writes that run far ahead of the server.
local NETWORK <const> = {}
for kind, types in pairs {
    nfs = "nfs nfs4 fuse.fuse-nfs",
    posix = "9p afs beegfs beegfs_nodev ceph cifs fhgfs fuse.ceph fuse.ceph-fuse fuse.curvefs fuse.glusterfs "
        .. "fuse.hf3fs fuse.juicefs fuse.mfs fuse.moosefs fuse.quobyte fuse.saunafs fuse.sshfs fuse.wekafs "
        .. "glusterfs gpfs juicefs lustre orangefs panfs pvfs2 quobyte smb3 smbfs virtiofs wekafs",
} do
    for name in types:gmatch "%S+" do NETWORK[name] = kind end
end

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

--- The file system that a path lies on, or nil. Pure; links in the path are not followed.
---@param mountinfo string
---@param path string  absolute
---@return { point: string, type: string, device: string, read_only: boolean }?  device: "259:2", the major
---  and minor number of its disk; major 0 where there is none
function volume.mount_of(mountinfo, path)
    local found
    for line in mountinfo:gmatch "[^\n]+" do
        local device, point, options, kind = line:match "^%S+ %S+ (%S+) %S+ (%S+) (%S+).- %- (%S+)"
        point = point and unescape(point)
        local covers = point and (point == "/" or path == point or path:sub(1, #point + 1) == point .. "/")
        if covers and (not found or #point >= #found.point) then
            found = {
                point = point, type = kind, device = device,
                read_only = (options .. ","):find("ro,", 1, true) == 1,
            }
        end
    end
    return found
end

--- What a file system of this type is as a shared volume: "posix", "nfs", or nil for one of a machine's
--- own. Pure.
---@param type string?  "fuse.ceph-fuse"
---@return string?
function volume.kind_of(type)
    return type and NETWORK[type]
end

-- What is mounted at path, and its kind. Never touches the path itself: a server that is gone would
-- hold us up.
local function mounted_at(path)
    local file <close> = io.open("/proc/self/mountinfo", "r")
    local found = file and volume.type_at(file:read "a", path)
    return found, volume.kind_of(found)
end

--- The kind of the network file system that is mounted at path, or nil: "nfs" is one where nothing
--- should be compiled, and where writes have to be gentle.
---@return string?
function volume.kind(path)
    local _, kind = mounted_at(path:match "^(/?.-)/*$")
    return kind
end

--- Whether a network file system is mounted at path.
---@return boolean
function volume.is_mounted(path)
    return volume.kind(path) ~= nil
end

--- Makes a file at path, and removes it. Returns nil, or why that failed.
---@param patience number  seconds that the server has for its answer; then the code is "NoAnswer"
---@return nc.Error?
function volume.try(path, patience)
    local ok, why = afar.within(patience, afar.clock, path)
    return not ok and why or nil
end

--- path, where a network file system is mounted there; else an error that says what is.
---@return string
function volume.require(path)
    path = path:match "^(/?.-)/*$"
    local found, kind = mounted_at(path)
    if kind then return path end
    error(errors.new {
        code = "NotFound",
        message = found
            and ("%s is a %s file system, not a shared volume: mount one there, or set volume="):format(path, found)
            or ("no shared volume is mounted at %s: mount one, set volume=, or use to=bucket"):format(path),
    }, 0)
end

return volume
