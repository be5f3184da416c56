--- Who is at work on a copy: written into its heartbeat, so that the next one who comes can tell
--- whether it is a stranger, an earlier self, or dead.

local sys = require "nc.core.sys"

local owner = {}

local MISSED_S <const> = 90

-- When process `pid` began, in clock ticks since the boot; nil where there is no such process.
local function start_of(pid)
    local file <close> = io.open(("/proc/%d/stat"):format(pid), "r")
    local stat = file and file:read "a"
    local after = stat and stat:match "^.*%)%s(.*)$"
    if not after or after:match "^[ZX]" then return nil end
    local field = 2
    for word in after:gmatch "%S+" do
        field = field + 1
        if field == 22 then return math.tointeger(tonumber(word)) end
    end
end

--- This process, for a job of that name.
---@return { job: string, pod: string, pid: integer, started: integer? }
function owner.here(job)
    return {
        job = job,
        pod = os.getenv "POD_NAME" or sys.hostname(),
        pid = sys.pid(),
        started = start_of(sys.pid()),
    }
end

--- Whether `other` can't be at work any more, as far as that can be told from here: a process of this
--- pod or machine that is gone, or another pod of the same Kubernetes Job that has missed a beat.
---@param age number  seconds since its last heartbeat
---@return boolean
function owner.is_gone(other, me, age)
    if other.pod == me.pod then
        if math.type(other.pid) ~= "integer" then return false end
        if other.pid == me.pid and other.started == me.started then return true end
        local started = start_of(other.pid)
        return started == nil or (other.started ~= nil and started ~= other.started)
    end
    return age > MISSED_S and os.getenv "KUBERNETES_SERVICE_HOST" ~= nil and other.job ~= nil and other.job == me.job
end

---@return string
function owner.describe(o)
    return ("job %s on %s"):format(tostring(o.job or "?"), tostring(o.pod or "?"))
end

return owner
