--- A job's results: from a folder of the node to a prefix of the bucket, or a folder of the volume.
--
--     local out = results.open { folder = "/scratch/output", to = store, user = "alice" }
--     out:claim()                   -- before the job runs: another user's place is refused
--     out:publish()                 -- what is new or has changed since the last time
--
-- Whose a prefix is stands in its object `.owner`, which is created by a conditional PUT: of two that
-- want the same place one gets it. A prefix with objects and without `.owner` is somebody's, unless it
-- begins with the user's own name. Folders of a volume have owners of their own.

local errors = require "nc.errors"
local json   = require "nc.json"
local log    = require "nc.log"
local stores = require "nc.stores"
local sys    = require "nc.core.sys"
local trees  = require "nc.trees"

local results = {}

local OPTIONS <const> = { "folder", "job", "overwrite", "to", "user" }
local OWNER <const> = ".owner"
local SMALL <const> = 64 << 20  -- a file that may go up while it still changes
local QUIET_S <const> = 10      -- of larger ones: unchanged for so long

---@class nc.Results
local Results = {}
Results.__index = Results

---@param options { folder: string, to: table, user: string?, job: string?, overwrite: boolean? }
---  to: of nc.stores
---@return nc.Results
function results.open(options)
    local o = errors.check_options(options, OPTIONS)
    return setmetatable({
        folder = o.folder, to = o.to, user = o.user or "", job = o.job, overwrite = o.overwrite, published = {},
    }, Results)
end

-- ---- whose it is ----

local function refuse(self, whose)
    error(errors.new {
        code = "NotOurs", -- exit code 4
        message = ("%s %s, and these are results of %s: set another output= or user=, or overwrite=yes"):format(
            self.to.location, whose, self.user ~= "" and self.user or "nobody (user= is not set)"),
    }, 0)
end

local function owner_of(self)
    local body = self.to:read(OWNER, 1 << 16)
    if not body then return nil end
    local ok, owner = pcall(json.decode, body)
    return ok and type(owner) == "table" and type(owner.user) == "string" and owner.user or "somebody else"
end

-- Whether there are objects that nobody has a name on.
local function is_taken(self)
    local prefix = self.to.prefix
    if self.user ~= "" and prefix:sub(1, #self.user + 1) == self.user .. "/" then return false end
    return self.to:list()() ~= nil
end

local function write_owner(self, condition)
    local body = json.encode { user = self.user, job = self.job, since = os.date "!%Y-%m-%dT%H:%M:%SZ" }
    self.to.bucket:put(self.to.prefix .. OWNER, body, {
        content_type = "application/json", if_none_match = condition,
    })
end

-- Creates `.owner`, unless it is there by now.
local function create_owner(self)
    local ok, e = pcall(write_owner, self, "*")
    if ok or errors.is(e, "PreconditionFailed") then return end
    if errors.is(e) and (e.status == 501 or e.status == 400 or e.status == 409) then -- it knows no conditions
        if not owner_of(self) then write_owner(self) end
        return
    end
    error(e, 0)
end

--- Makes the place ours, or raises the code "NotOurs" where it is another user's. Costs a request or
--- three.
function Results:claim()
    if self.to.kind ~= "bucket" then return end
    if self.overwrite then return write_owner(self) end
    local owner = owner_of(self)
    if not owner then
        if is_taken(self) then refuse(self, "holds objects of somebody") end
        create_owner(self)
        owner = owner_of(self)
    end
    if owner ~= self.user then refuse(self, ("belongs to %s"):format(owner)) end
end

-- ---- what goes there ----

local function signature(st)
    return ("%d:%.9f:%s"):format(st.size, st.mtime, st.id)
end

-- Which files to send, noting what they are before they are read.
local function chooser(self, from, running, pending)
    return function(path)
        local st = sys.stat(from:url(path))
        if not st then return false end
        local now = signature(st)
        if self.published[path] == now then return false end
        if running and st.size > SMALL and sys.time() - st.mtime < QUIET_S then return false end
        pending[path] = now
        return true
    end
end

--- Sends what is new or has changed since the last call. While the command runs (`running`) what is
--- large and still changes has to wait.
---@return integer files  that were sent
function Results:publish(running)
    if not sys.stat(self.folder) then return 0 end
    local from <close> = stores.open(self.folder)
    local pending = {}
    local ok, report = pcall(trees.copy, {
        from = from, to = self.to, label = "results", verify = false,
        wanted = chooser(self, from, running, pending),
        done = function(path) self.published[path] = pending[path] end,
    })
    if not ok and errors.is(report, "NotFound") and not next(pending) then return 0 end
    if not ok then error(report, 0) end
    if report.failed[1] then
        error(errors.new {
            code = "SomeFailed",
            message = ("%d files are not in %s, such as %s: %s"):format(
                #report.failed, self.to.location, report.failed[1].path, tostring(report.failed[1].error)),
        }, 0)
    end
    log.info(("results: %d files are in %s"):format(report.files, self.to.location))
    return report.files
end

return results
