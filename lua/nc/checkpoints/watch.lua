--- The checkpoints that a command writes into a folder, and which of them are whole.
--
--     local seen = watch.new { folder = "/scratch/checkpoints", settle = 10 }
--     for _, entry in ipairs(seen:look()) do print(entry.name, #entry.files) end
--
-- A checkpoint is a file or a folder right in the watched one. It is whole when
--   - a file completes it, where `complete` names one: <folder>/<complete>, or <file><complete>, no older
--     than what it completes; nothing else counts then;
--   - it was renamed from a temporary name (.x, x.tmp, x.part, tmp-x, ...) that it was seen under; or
--   - it has not changed for the settle time;
-- and nobody has a file of it open for writing, none is shorter than its own format says (safetensors,
-- zip), no index in it names a file that is missing, and nothing in it has a temporary name.
--
-- Once the command has ended nothing will change any more, but what it was writing may be a half: then
-- a checkpoint counts that was seen closed as it is now while the command ran, or all of them where the
-- command has ended in order.

local disk   = require "nc.core.disk"
local errors = require "nc.errors"
local shape  = require "nc.checkpoints.shape"
local stores = require "nc.stores"
local sys    = require "nc.core.sys"

local watch = {}

local OPTIONS <const> = { "complete", "folder", "settle" }
local TEMPORARY <const> = {
    "^%.", "~$", "%.tmp$", "%.tmp%.[^.]*$", "%.part$", "%.partial$", "%.incomplete$", "%.writing$", "^tmp[-_.]",
}
local INDEX_MAX <const> = 64 << 20

---@class nc.Watch
local Watch = {}
Watch.__index = Watch

--- Whether a name is one that a writer gives to what is not done.
function watch.is_temporary(name)
    for _, pattern in ipairs(TEMPORARY) do
        if name:find(pattern) then return true end
    end
    return false
end

---@param options { folder: string, settle: number, complete: string? }  settle: seconds
---@return nc.Watch
function watch.new(options)
    local o = errors.check_options(options, OPTIONS)
    return setmetatable({
        folder = o.folder, settle = o.settle, complete = o.complete, states = {}, names = {}, published = {},
    }, Watch)
end

-- ---- what is there ----

local function files_below(self, name)
    local folder <close> = stores.open(self.folder .. "/" .. name)
    local list = {}
    for file in folder:list { may_be_absent = true } do
        file.path = name .. "/" .. file.path
        list[#list + 1] = file
    end
    return list
end

-- What tells one state of the files from another: not their names above all, so that what was renamed is
-- still the same.
local function signature_of(self, files, name)
    local words, newest = {}, 0
    for i, file in ipairs(files) do
        local st = sys.stat(self.folder .. "/" .. file.path)
        if not st then return nil end
        file.size, file.modified, file.id = st.size, st.mtime, st.id
        newest = math.max(newest, st.mtime)
        words[i] = ("%s:%d:%.9f:%s"):format(file.path:sub(#name + 1), st.size, st.mtime, st.id)
    end
    return table.concat(words, "\n"), newest
end

local function entry_of(self, name, is_folder, size)
    local files = is_folder and files_below(self, name) or { { path = name, size = size } }
    local signature, newest = signature_of(self, files, name)
    if not signature or #files == 0 then return nil end
    return {
        name = name, files = files, signature = signature, newest = newest,
        folder = is_folder, id = sys.stat(self.folder .. "/" .. name).id,
    }
end

-- The entries; what vanishes while it is looked at is none.
local function scan(self)
    local list, by_name = {}, {}
    if not sys.stat(self.folder) then return list, by_name end
    local found = disk.scan(self.folder)
    for i = 1, #found, 3 do
        local name, size = found[i], found[i + 1]
        local is_folder = name:sub(-1) == "/"
        name = name:gsub("/$", "")
        by_name[name] = true
        if size or is_folder then
            local ok, entry = pcall(entry_of, self, name, is_folder, size)
            if ok and entry then list[#list + 1] = entry end
        end
    end
    return list, by_name
end

-- ---- is it whole? ----

local function has_temporary(entry)
    for _, file in ipairs(entry.files) do
        for part in file.path:sub(#entry.name + 2):gmatch "[^/]+" do
            if watch.is_temporary(part) and part ~= entry.index then return true end
        end
    end
    return false
end

-- Notes whether somebody has a file of it open for writing (open), or in how many looks nobody had
-- (quiet); and whether the file system can tell (known).
local function note_writers(self, entry, state)
    state.open, state.known = false, true
    for _, file in ipairs(entry.files) do
        local ok, written = pcall(disk.is_written, self.folder .. "/" .. file.path)
        state.open = state.open or (ok and written == true)
        state.known = state.known and ok and written ~= nil
    end
    state.quiet = state.open and 0 or (state.quiet or 0) + 1
end

local function is_missing_files(self, entry)
    local there = {}
    for _, file in ipairs(entry.files) do there[file.path] = true end
    for _, file in ipairs(entry.files) do
        local above = file.path:match "^(.*/)[^/]*%.index%.json$"
        local index <close> = above and file.size <= INDEX_MAX and io.open(self.folder .. "/" .. file.path) or nil
        for name in pairs(index and shape.files_of_index(index:read "a") or {}) do
            if not there[above .. name] then return true end
        end
    end
    return false
end

local function is_sound(self, entry)
    if has_temporary(entry) or is_missing_files(self, entry) then return false end
    for _, file in ipairs(entry.files) do
        if not shape.is_whole(self.folder .. "/" .. file.path, file.size) then return false end
    end
    return true
end

-- Whether the file that completes it is there, and was written after all the others.
local function is_completed(self, entry)
    if not entry.folder then
        local st = sys.stat(self.folder .. "/" .. entry.name .. self.complete)
        return st ~= nil and st.mtime >= entry.newest
    end
    for _, file in ipairs(entry.files) do
        if file.path == entry.name .. "/" .. self.complete then return file.modified >= entry.newest end
    end
    return false
end

-- Whether nothing more will come. A writer that dies lets go of its file some time before its end is known,
-- so one look that finds it closed is not enough.
local function has_settled(self, entry, state, over)
    if self.complete then return is_completed(self, entry) end
    if state.renamed or (over and over.in_order) then return true end
    local closed = state.known and state.quiet >= 2
    local unchanged = sys.now() - state.since >= self.settle
    if over and state.known ~= false then return closed end
    return unchanged and (closed or not state.known)
end

-- What is known of an entry as it is now; begins anew when it has changed.
local function state_of(self, entry)
    local state = self.states[entry.name]
    if not state or state.signature ~= entry.signature then
        local before = self.names[entry.id]
        state = {
            signature = entry.signature, since = sys.now(),
            renamed = before ~= nil and before ~= entry.name and watch.is_temporary(before),
        }
        self.states[entry.name] = state
    end
    return state
end

-- The names that complete others are no checkpoints themselves.
local function is_index(self, name, names)
    return self.complete and #name > #self.complete and name:sub(-#self.complete) == self.complete
        and names[name:sub(1, -#self.complete - 1)]
end

--- The checkpoints that are whole and not published, the oldest first. Call it often: what it sees while
--- the command runs decides about what it finds at the end.
---@param over { in_order: boolean }?  the command has ended, in order or not
---@return { name: string, files: table[], signature: string }[]
function Watch:look(over)
    local list, names = scan(self)
    local whole = {}
    for _, entry in ipairs(list) do
        entry.index = self.complete
        if not watch.is_temporary(entry.name) and not is_index(self, entry.name, names)
            and not self.published[entry.signature] then
            local state = state_of(self, entry)
            if not over then note_writers(self, entry, state) end
            if (over or not state.open) and has_settled(self, entry, state, over) and is_sound(self, entry) then
                whole[#whole + 1] = entry
            end
        end
    end
    self.names = {}
    for _, entry in ipairs(list) do self.names[entry.id] = entry.name end
    table.sort(whole, function(a, b)
        if a.newest ~= b.newest then return a.newest < b.newest end
        return a.name < b.name
    end)
    return whole
end

--- The entry as it is now, for one that look gave: nil where it is another by now.
function Watch:is_same(entry)
    local signature = signature_of(self, entry.files, entry.name)
    return signature == entry.signature
end

--- It is where it has to be, or need not be.
function Watch:done(entry)
    self.published[entry.signature] = true
end

--- What is there now was there before the command.
function Watch:skip_all()
    for _, entry in ipairs((scan(self))) do self.published[entry.signature] = true end
end

--- Names of what is there and is neither published nor whole, for a last word.
---@return string[]
function Watch:rest()
    local names = {}
    local list, by_name = scan(self)
    for _, entry in ipairs(list) do
        if not self.published[entry.signature] and not is_index(self, entry.name, by_name) then
            names[#names + 1] = entry.name
        end
    end
    return names
end

return watch
