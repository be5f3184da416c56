--- One placer at a time for a model on this node.
--
-- Two things say that one is at work, in the copy's folder on the NVMe: a lock on `.placing.lock`, which
-- is gone with its process, and `.placing.<n>`, its heartbeat. The lock makes for a quick takeover; what
-- decides is the file, whose making is atomic: where flock does nothing, or is held by a process that
-- will never move again, the next placer waits until the heartbeat is stale and makes `.placing.<n+1>`,
-- and of all that try one succeeds. Should two work at once after all, each writes files of its own and
-- renames them when they are whole: bytes move twice, and nothing is wrong.

local beats  = require "nc.core.heartbeat"
local disk   = require "nc.core.disk"
local errors = require "nc.errors"
local locks  = require "nc.core.lock"
local log    = require "nc.log"
local marker = require "nc.marker"
local owners = require "nc.owner"
local sys    = require "nc.core.sys"
local task   = require "nc.task"
local units  = require "nc.units"

local claims = {}

local NAME <const> = ".placing."
local BEAT_S <const> = 5
local STALE_S <const> = 60      -- of a placer on this very node
local LOOK_S <const> = 0.5
local SAY_EVERY_S <const> = 30

---@class nc.place.Claim
---@field beat userdata  the heartbeat, for nc.transfer
local Claim = {}
Claim.__index = Claim

-- The numbers of all heartbeats in the folder, sorted.
local function numbers(folder)
    local list = {}
    for _, name in ipairs(sys.readdir(folder)) do
        local n = name:match "^%.placing%.(%d+)$"
        if n then list[#list + 1] = math.tointeger(tonumber(n)) end
    end
    table.sort(list)
    return list
end

-- The placer whose heartbeat has the highest number, unless it is known to be dead. Where somebody holds
-- the lock its process lives, whatever can be seen of it from this pod.
local function at_work(o, last, locked)
    local body, age = o.copy:read_marker(NAME .. last)
    if not body then return nil end
    local s = marker.decode_staging(body)
    if age >= STALE_S or (not locked and owners.is_gone(s.owner, o.owner, age)) then return nil end
    s.age = age
    return s
end

-- A claim, or who else is at work as far as that is known.
local function try(o)
    local folder = o.copy.folder
    local lock, sure = locks.take(folder .. "/" .. NAME .. "lock")
    local before = numbers(folder)
    local last = before[#before]
    local other
    -- A lock that keeps others out is ours: whoever wrote the heartbeat has ended.
    if last and not sure then other = at_work(o, last, not lock) end
    local unlocked = not lock and not last -- between its lock and its heartbeat
    if not other and not unlocked then
        local name, text = NAME .. (last or 0) + 1, marker.encode_staging {
            owner = o.owner, repository = o.repository, started = os.date "!%Y-%m-%dT%H:%M:%SZ", journal = {},
        }
        if locks.create(folder .. "/" .. name, text .. "}\n") then
            for _, n in ipairs(before) do disk.remove(folder .. "/" .. NAME .. n) end
            local beat = beats.start({ file = folder .. "/" .. name, interval = BEAT_S, written = true }, text)
            return setmetatable({ lock = lock, beat = beat, path = folder .. "/" .. name }, Claim)
        end
    end
    local _ <close> = lock
    return nil, other
end

local function line(other)
    if not other then return "another placer on this node is at work" end
    local far = other.bytes_total == 0 and "nothing has moved yet" or ("%s of %s"):format(
        units.format_size(other.bytes_done), units.format_size(other.bytes_total))
    return ("%s puts the weights here: %s, heartbeat %s old"):format(
        owners.describe(other.owner), far, units.format_duration(other.age))
end

--- Takes the copy, waiting for whoever has it; nil once is_done() says that there is nothing left to do.
--- copy: of nc.copy, on the NVMe. owner: of nc.owner. deadline: on sys.now's clock.
---@param o { copy: nc.FolderCopy, owner: table, repository: string, deadline: number, is_done: fun(): boolean }
---@return nc.place.Claim?  closable
function claims.take(o)
    local said
    while true do
        if o.is_done() then return nil end
        local claim, other = try(o)
        if claim then return claim end
        local now = sys.now()
        if now > o.deadline then
            error(errors.new {
                code = "Busy",
                message = ("%s: %s; gave up waiting: stop that one, or allow a longer wait="):format(
                    o.copy.location, line(other)),
            }, 0)
        end
        if not said or now - said >= SAY_EVERY_S then
            log.info(("%s: %s; waiting for it"):format(o.copy.location, line(other)))
            said = now
        end
        task.sleep(LOOK_S)
    end
end

function Claim:__close()
    local _ <close> = self.lock -- last
    self.beat:stop(false)
    disk.remove(self.path)
end

return claims
