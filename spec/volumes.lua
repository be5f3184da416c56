--- A shared volume for specs: a real mount whose type the kernel names, of a folder that stands for the
--- server's disk. bindfs passes everything through and takes any type's name, so that nothing in the
--- programs under test has to be told that this is a spec.
--
--   local volume <close> = volumes.mount "juicefs"       -- fuse.juicefs at volume.path
--   volume.path, volume.behind, volume:read_bytes()
--   volume:hang()                                        -- its server does not answer any more
--   volume:die()                                         -- its server is gone, its mount is not
local helper = require "spec.helper"

local volumes = {}

local volume = {}
volume.__index = volume

-- The type that mountinfo gives for this mount point.
local function type_at(path)
    local _, out = helper.sh("cat /proc/self/mountinfo")
    for line in out:gmatch "[^\n]+" do
        local point, kind = line:match "^%S+ %S+ %S+ %S+ (%S+) .- %- (%S+)"
        if point == path then return kind end
    end
end

--- The CephFS of a rig of its own, as a volume: { path= }, closable.
function volumes.cephfs()
    local dir, path = helper.tmp(), helper.tmp()
    for _, argv in ipairs { { "spec/rigs/ceph-up", dir, "0" }, { "spec/rigs/cephfs-up", dir, path } } do
        local code, _, err = helper.run(argv, { timeout = 120 })
        if code ~= 0 then error(err, 0) end
    end
    return setmetatable({ path = path }, {
        __close = function() helper.run({ "spec/rigs/ceph-down", dir }, { timeout = 60 }) end,
    })
end

---@param subtype string  what the type is to be behind "fuse."
---@return table volume { path=, behind=folder, read_bytes() }, closable
function volumes.mount(subtype)
    local behind, path = helper.tmp(), helper.tmp()
    local child = helper.start { "bindfs", "-f", "-o", "subtype=" .. subtype, behind, path }
    helper.eventually(10, "a mount at " .. path, function()
        if not child:running() then error("bindfs: " .. child:stderr(), 0) end
        return type_at(path) == "fuse." .. subtype
    end)
    return setmetatable({ path = path, behind = behind, child = child }, volume)
end

--- Bytes that its server has read from the disk until now, with some for each request.
---@return integer
function volume:read_bytes()
    return math.tointeger(tonumber(helper.read(("/proc/%d/io"):format(self.child.pid)):match "rchar: (%d+)"))
end

function volume:hang()
    helper.sh("kill -STOP " .. self.child.pid)
end

function volume:die()
    helper.sh("kill -KILL " .. self.child.pid)
    helper.eventually(10, "its end", function() return not self.child:running() end)
end

function volume:__close()
    helper.sh("umount -l " .. self.path)
    self.child:__close()
end

return volumes
