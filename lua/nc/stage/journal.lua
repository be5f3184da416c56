--- A stage's heartbeat and what it keeps for the next run: the files that are done, with their
--- digests, those whose bytes nobody has seen whole, and the uploads that are not ours.

local json   = require "nc.json"
local marker = require "nc.marker"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

local journals = {}

local WRITE_EVERY_S <const> = 5 -- and later where the journal is large

---@class nc.stage.Journal
---@field beat userdata      the heartbeat
---@field strangers table    ids of uploads that are not ours
---@field orphans table      paths that may have an upload nobody knows of
local Journal = {}
Journal.__index = Journal

local function sorted(set)
    local list = json.array {}
    for name in pairs(set) do list[#list + 1] = name end
    table.sort(list)
    return list
end

local function text(self, ended)
    return marker.encode_staging {
        owner = self.owner, repository = self.model.repository, commit = self.model.commit,
        started = self.started, ended = ended,
        journal = { done = self.done, unverified = sorted(self.unverified), strangers = sorted(self.strangers) },
    }
end

--- Takes the copy by the first heartbeat and opens the journal; nil where somebody was quicker.
---@param o { owner: table, model: nc.Model, copy: table, every: number?, started: string,
---  kept: table[], unverified: table, strangers: table, seen: string? }  seen: the ETag of the
---  heartbeat that was there
---@return nc.stage.Journal?  closable
function journals.open(o)
    local journal = setmetatable({
        owner = o.owner, model = o.model, started = o.started, unverified = o.unverified,
        strangers = o.strangers, orphans = {}, done = {}, due = 0,
    }, Journal)
    for _, entry in ipairs(o.kept) do
        if entry.sha256 and not entry.verified then journal:add(entry) end
    end
    local first = text(journal)
    if not o.copy:claim(first .. "}\n", o.seen) then return nil end -- as the heartbeat closes it
    journal.beat = o.copy:heartbeat(first, o.every)
    journal.changed = false
    return journal
end

--- A file is done: its entry of the manifest.
function Journal:add(entry)
    self.done[entry.path] = {
        size = entry.size, sha256 = entry.sha256, blob = entry.blob,
        part_size = entry.part_size, parts = entry.parts and json.array(entry.parts),
    }
    self.unverified[entry.path] = nil
    self.changed = true
end

--- Writes what has changed, every few seconds at most and more rarely when it has grown large.
function Journal:flush()
    if not self.changed or sys.now() < self.due then return end
    local body = text(self)
    self.beat:set(body, true)
    self.changed = false
    self.due = sys.now() + WRITE_EVERY_S + #body / 1e6
end

--- `.complete` has the last word: no heartbeat after this.
function Journal:complete()
    self.completed = true
end

-- However else the stage ends, its last heartbeat says so, for those who wait.
function Journal:__close()
    if self.completed then
        self.beat:stop(false)
    else
        self.beat:set(text(self, task.stopped_by() and "stopped" or "failed"), false)
        self.beat:stop(true)
    end
end

return journals
