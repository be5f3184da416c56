--- Where checkpoints are kept: numbered folders of a bucket's prefix or of a volume's folder.
--
--     local shelf = shelves.open(store)
--     entry.number = shelf:next_number()
--     shelf:put("/scratch/checkpoints", entry, is_same)      -- 000012/ckpt.pt, then 000012/.complete
--     shelf:prune(3)
--     local name = shelf:fetch_newest("/scratch/checkpoints")
--
-- A number is used once: what is there is never written again, only removed. Each file's SHA-256 is
-- computed before it is sent, and the engine stores nothing whose bytes have another: a file that changes
-- while it is read is not stored. `.complete` (nc.marker) is written last and lists them; a number without
-- one is no checkpoint.

local disk     = require "nc.core.disk"
local errors   = require "nc.errors"
local log      = require "nc.log"
local marker   = require "nc.marker"
local sys      = require "nc.core.sys"
local text     = require "nc.core.text"
local transfer = require "nc.transfer"
local units    = require "nc.units"

local shelves = {}

local MANIFEST_MAX <const> = 64 << 20

---@class nc.Shelf
---@field location string
local Shelf = {}
Shelf.__index = Shelf

---@param store nc.BucketStore|nc.FolderStore
---@param whose string   user and job, for the manifests
function shelves.open(store, whose)
    return setmetatable({ store = store, location = store.location, whose = whose }, Shelf)
end

-- All that is there: number -> { number, complete = bool, paths }.
local function read(self)
    local all = {}
    for file in self.store:list { may_be_absent = true } do
        local number, path = file.path:match "^(%d+)/(.+)$"
        if number then
            all[number] = all[number] or { number = number, paths = {} }
            if path == marker.COMPLETE then all[number].complete = true end
            table.insert(all[number].paths, file.path)
        end
    end
    return all
end

-- The complete ones, the newest first; and the highest number in use.
local function complete_ones(all)
    local list, highest = {}, 0
    for number, kept in pairs(all) do
        highest = math.max(highest, math.tointeger(tonumber(number)))
        if kept.complete then list[#list + 1] = kept end
    end
    table.sort(list, function(a, b) return tonumber(a.number) > tonumber(b.number) end)
    return list, highest
end

local function refuse_failed(result, what)
    local first = result.failed[1]
    if first then error(first.error, 0) end
    if result.count == 0 then
        error(errors.new { code = "Changed", message = what .. " is no longer there" }, 0)
    end
end

-- The files with their digests.
local function digest(folder, entry)
    local files = {}
    for i, file in ipairs(entry.files) do
        files[i] = { path = file.path, size = file.size, version = entry.signature }
    end
    local result = transfer.run {
        label = "look at checkpoint " .. entry.name, source = { kind = "dir", root = folder },
        sink = { kind = "none" }, files = files, sha256 = true,
    }
    refuse_failed(result, entry.name)
    local digests = {}
    for _, file in ipairs(result.files) do digests[file.path] = file.sha256 end
    for _, file in ipairs(files) do file.version, file.sha256 = nil, digests[file.path] end
    return files
end

-- What a checkpoint's manifest has for the commit of a model: an identity of its content.
local function identity_of(files)
    local words = {}
    for i, file in ipairs(files) do words[i] = file.path .. "\0" .. file.sha256 end
    table.sort(words)
    return text.sha256(table.concat(words, "\n")):sub(1, 40)
end

local function mark(self, number, files)
    table.sort(files, function(a, b) return a.path < b.path end)
    local path = number .. "/" .. marker.COMPLETE
    local body = marker.encode_complete {
        repository = self.whose, commit = identity_of(files), files = files,
        finished = os.date "!%Y-%m-%dT%H:%M:%SZ", by = "ncrun",
    }
    if self.store.kind == "bucket" then
        self.store.bucket:put(self.store.prefix .. path, body, { content_type = "application/json" })
    else
        disk.replace(self.store:url(path), body)
    end
end

-- What is there is looked at once: nobody else writes here.
local function look(self)
    if self.highest then return end
    local list, highest = complete_ones(read(self))
    self.highest, self.stored = highest, {}
    for _, kept in ipairs(list) do self.stored[#self.stored + 1] = kept.number end
end

--- A number that is above all there are.
---@return string
function Shelf:next_number()
    look(self)
    self.highest = self.highest + 1
    return ("%06d"):format(self.highest)
end

--- Whether a checkpoint of this number would be one of the newest `keep`.
function Shelf:is_wanted(number, keep)
    look(self)
    local newer = 0
    for _, other in ipairs(self.stored) do
        if tonumber(other) > tonumber(number) then newer = newer + 1 end
    end
    return newer < keep
end

--- Stores a whole checkpoint under its number. Raises why it could not, with the code "Changed" where it is another by
--- now; nothing counts as stored then.
---@param folder string   that its files' paths are below
---@param entry { name: string, number: string, files: table[], signature: string }
---@param is_same fun(): boolean   whether the files are still what the entry says
function Shelf:put(folder, entry, is_same)
    local files = digest(folder, entry)
    if not is_same() then
        error(errors.new { code = "Changed", message = ("%s changed while it was read"):format(entry.name) }, 0)
    end
    local number, begun = entry.number, sys.now()
    local source, sink = { kind = "dir", root = folder }, self.store:sink()
    if sink.kind == "s3" then
        sink.prefix = sink.prefix .. number .. "/"
    else
        sink.root = sink.root .. "/" .. number
        sys.mkdir(sink.root)
    end
    local result = transfer.run {
        label = "checkpoint " .. entry.name, source = source, sink = sink, files = files,
    }
    refuse_failed(result, entry.name)
    mark(self, number, result.files)
    self.stored[#self.stored + 1] = number
    log.info(("checkpoint %s is in %s%s/: %d files, %s in %s"):format(entry.name, self.location, number,
        #result.files, units.format_size(result.bytes), units.format_duration(sys.now() - begun)))
end

-- Empty folders of a volume are of no use.
local function remove(self, kept)
    table.sort(kept.paths, function(a, b) -- its marker first: from then on it is none
        local ma, mb = a:sub(-#marker.COMPLETE) == marker.COMPLETE, b:sub(-#marker.COMPLETE) == marker.COMPLETE
        if ma ~= mb then return ma end
        return a < b
    end)
    local first = self.store:remove { kept.paths[1] }
    local failures = #first > 0 and first or self.store:remove(table.move(kept.paths, 2, #kept.paths, 1, {}))
    if failures[1] then log.warn(failures[1].message) end
    if self.store.kind == "folder" and not failures[1] then disk.remove_tree(self.store:url(kept.number)) end
end

--- Removes all but the newest `keep` checkpoints, and what earlier runs have left half done.
function Shelf:prune(keep)
    local all = read(self)
    local list = complete_ones(all)
    local newest = list[1] and tonumber(list[1].number) or 0
    for i = keep + 1, #list do remove(self, list[i]) end
    for _, kept in pairs(all) do
        if not kept.complete and tonumber(kept.number) < newest then remove(self, kept) end
    end
end

local function fetch(self, kept, folder)
    local body = self.store:read(kept.number .. "/" .. marker.COMPLETE, MANIFEST_MAX)
    local manifest = marker.decode_complete(body or "{")
    if manifest.bare then error(errors.new { code = "BadMarker", message = "its marker lists no files" }, 0) end
    marker.check_paths(manifest.files)
    local files = {}
    for i, f in ipairs(manifest.files) do files[i] = { path = f.path, size = f.size, sha256 = f.sha256 } end
    local source = self.store:source()
    if source.kind == "s3" then
        source.prefix = source.prefix .. kept.number .. "/"
    else
        source.root = source.root .. "/" .. kept.number
    end
    sys.mkdir(folder)
    local result = transfer.run {
        label = "resume", source = source, sink = { kind = "dir", root = folder }, files = files,
    }
    refuse_failed(result, kept.number)
    return manifest.files[1].path:match "^[^/]+"
end

--- Brings the newest checkpoint that is whole into the folder; one with a file that is missing or has
--- other bytes is passed over. Errors that all share (access, no network) are raised.
---@return string? name    of the file or folder that it is; nil where there is none
---@return string? number
function Shelf:fetch_newest(folder)
    for _, kept in ipairs((complete_ones(read(self)))) do
        local ok, name = pcall(fetch, self, kept, folder)
        if ok then return name, kept.number end
        local code = errors.is(name) and name.code
        if not code or code == "Cancelled" or errors.exit_code(name) == 4 or errors.exit_code(name) == 5
            or name.retryable then
            error(name, 0)
        end
        log.warn(("checkpoint %s%s can't be used: %s; trying the one before"):format(self.location, kept.number,
            tostring(name)))
    end
end

return shelves
