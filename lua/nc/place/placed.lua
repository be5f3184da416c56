--- What is on the node's NVMe, and how much of it has been seen to be right.
--
-- Beside the copy's `.complete`, `.placed` keeps for each file that was checked here its digests and a
-- stamp of its inode (size and times). A file that still has its stamp need not be read again; one that
-- was written to since, in whatever way, has another. Where `.placed` is gone, everything is read once.

local disk   = require "nc.core.disk"
local errors = require "nc.errors"
local json   = require "nc.json"
local log    = require "nc.log"
local marker = require "nc.marker"
local sys    = require "nc.core.sys"

local placed = {}

local NAME <const> = ".placed"
local VERSION <const> = 1
local WRITE_EVERY_S <const> = 5 -- and later where it is large

---@class nc.place.Placed
---@field copy nc.FolderCopy
---@field manifest table?   the local `.complete`, decoded
---@field records table     path -> { size, stamp, sha256, blob, part_size, parts } or { size, stamp, wrong = true }
---@field list string[]?    the files of the copy that `.complete` stands for, where it does not say
local Placed = {}
Placed.__index = Placed

---@param copy nc.FolderCopy
---@return nc.place.Placed
function placed.open(copy)
    local self = setmetatable({ copy = copy, due = 0 }, Placed)
    self:load()
    return self
end

local function read_records(text)
    local ok, p = pcall(json.decode, text or "")
    if not ok or type(p) ~= "table" or p.version ~= VERSION or type(p.files) ~= "table" then return {}, nil end
    for path, r in pairs(p.files) do
        if type(r) ~= "table" or type(r.stamp) ~= "string" then p.files[path] = nil end
    end
    return p.files, type(p.list) == "table" and p.list or nil
end

--- Reads again what the folder says; another placer may have changed it.
function Placed:load()
    self.records, self.list = read_records(self.copy:read_marker(NAME))
    self.manifest = nil
    local text = self.copy:read_marker(marker.COMPLETE)
    if not text then return end
    local ok, manifest = pcall(marker.decode_complete, text)
    if ok then
        self.manifest = manifest
    else
        log.warn(("%s%s: %s; the copy is looked at anew"):format(
            self.copy.location, marker.COMPLETE, tostring(manifest)))
    end
end

-- The same content, as far as both say what it is; nil where that can't be told.
local function same_content(known, file)
    if known.wrong then return false end
    if known.sha256 and file.sha256 then return known.sha256 == file.sha256 end
    if known.blob and file.blob then return known.blob == file.blob end
    if known.parts and file.parts and known.part_size == file.part_size then
        return table.concat(known.parts) == table.concat(file.parts)
    end
    return nil
end

local function has_digest(file)
    return file.sha256 ~= nil or file.blob ~= nil or file.parts ~= nil
end

--- What to do about each file: it is certain, or has to be read back, or to be moved.
---@param files table[]  { path, size, sha256?, blob?, part_size?, parts? }
---@return { kept: table[], check: table[], move: table[] }
function Placed:plan(files)
    local plan = { kept = {}, check = {}, move = {} }
    for _, f in ipairs(files) do
        local there = disk.look(self.copy.folder .. "/" .. f.path)
        local known = self.records[f.path]
        local same = known and same_content(known, f)
        local list
        if not there or there.size ~= f.size then
            list = plan.move
        elseif known and known.stamp == there.stamp and same ~= nil then
            list = same and plan.kept or plan.move
        else
            list = has_digest(f) and plan.check or plan.kept -- with nothing to compare, the size decides
        end
        list[#list + 1] = f
    end
    return plan
end

--- The files that the local `.complete` stands for, or nil where that is not known.
---@return table[]?
function Placed:files()
    if not self.manifest then return nil end
    if not self.manifest.bare then return self.manifest.files end
    if not self.list then return nil end
    local files = {}
    for _, path in ipairs(self.list) do
        local r = self.records[path]
        if not r then return nil end
        files[#files + 1] = { path = path, size = r.size }
    end
    return files
end

--- Whether the copy is marked, and every file of it is there and known to be right.
---@return boolean
function Placed:is_complete()
    local files = self:files()
    if not files then return false end
    local plan = self:plan(files)
    return #plan.check == 0 and #plan.move == 0
end

--- Forgets what was seen, so that all of it is read back.
function Placed:doubt()
    self.records = {}
end

--- A file is there under its name and has been checked, or came from where nothing could be compared.
---@param f table  its digests, as far as they are known
function Placed:add(f)
    local there = disk.look(self.copy.folder .. "/" .. f.path)
    if not there then return end
    self.records[f.path] = {
        size = there.size, stamp = there.stamp, sha256 = f.sha256, blob = f.blob,
        part_size = f.parts and f.part_size, parts = f.parts and json.array(f.parts),
    }
    self.changed = true
end

--- A file was read, and is not what it should be: it need not be read again to know that.
function Placed:refuse(path)
    local there = disk.look(self.copy.folder .. "/" .. path)
    self.records[path] = there and { size = there.size, stamp = there.stamp, wrong = true }
    self.changed = true
end

--- Writes `.placed`, every few seconds at most unless it has to be now.
function Placed:flush(now)
    if not self.changed or (not now and sys.now() < self.due) then return end
    local text = json.encode { version = VERSION, files = self.records, list = self.list and json.array(self.list) }
    self.copy:write_marker(NAME, text .. "\n")
    self.changed = false
    self.due = sys.now() + WRITE_EVERY_S + #text / 1e6
end

--- The copy is about to change: nobody may take it for whole.
function Placed:unmark()
    self.manifest = nil
    self.copy:remove_marker(marker.COMPLETE)
end

--- The last write of all.
---@param files table[]  of the copy
---@param text string    of its `.complete`
function Placed:mark(files, text)
    local list = {}
    for i, f in ipairs(files) do list[i] = f.path end
    self.list, self.changed = list, true
    self:flush(true)
    self.copy:write_marker(marker.COMPLETE, text)
    self.manifest = marker.decode_complete(text)
end

--- The manifest of these files as they are known here.
---@param model { repository: string, commit: string }
---@return string
function Placed:manifest_of(model, files)
    local entries = {}
    for i, f in ipairs(files) do
        local r = self.records[f.path]
        entries[i] = { path = f.path, size = f.size, sha256 = r.sha256, part_size = r.part_size, parts = r.parts }
    end
    table.sort(entries, function(a, b) return a.path < b.path end)
    return marker.encode_complete {
        repository = model.repository, commit = model.commit, files = entries,
        finished = os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(self.copy:clock())), by = sys.versions()[1],
    }
end

--- Refuses names that would lie over what is kept here, and those that nc.marker refuses.
function placed.check_paths(files)
    marker.check_paths(files)
    for _, f in ipairs(files) do
        if f.path:find "^%.plac" then
            error(errors.new {
                code = "BadPath",
                message = ('the file name "%s" is one that is used here; nothing was copied'):format(f.path),
            }, 0)
        end
    end
end

return placed
