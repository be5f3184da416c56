--- A place that holds a tree of files: a prefix of a bucket or a folder, seen the same way.
--
--     local store <close> = stores.open "s3://bucket/data/"      -- or "./data"
--     for file in store:list() do print(file.path, file.size, file.modified) end
--     transfer.run { source = store:source(), sink = other:sink(), files = files }
--
-- A file's path is relative to the place. Lists come in the order of the paths' bytes, one entry at a
-- time, so that two of any length can be compared side by side; times are by our clock.

local disk   = require "nc.core.disk"
local errors = require "nc.errors"
local s3     = require "nc.s3"
local sys    = require "nc.core.sys"

local stores = {}

local OPEN <const> = { "endpoint", "profile", "region" } -- of s3.bucket
local CLOCK_SLACK_S <const> = 5

--- What an address names: { bucket, key } of "s3://bucket/key", else { path }. Pure.
---@return { bucket: string?, key: string?, path: string? }
function stores.parse(address)
    local rest = address:match "^[sS]3://(.*)$"
    if not rest then
        if address == "" then error(errors.usage "an empty path names nothing: write ./ for this folder", 0) end
        return { path = address }
    end
    local bucket, key = rest:match "^([^/]+)/?(.*)$"
    if not bucket then error(errors.usage('"%s" names no bucket: write s3://bucket/key', address), 0) end
    return { bucket = bucket, key = key }
end

-- ---- a prefix of a bucket ----

---@class nc.BucketStore
---@field kind "bucket"
---@field location string   for messages
local BucketStore = {}
BucketStore.__index = BucketStore

function BucketStore:__close()
    self.bucket:__close()
end

function BucketStore:url(path)
    return self.bucket:url(self.prefix .. path)
end

local function file_of(store, path, object)
    -- Two clocks that agree to within seconds are one: each answer says it a little differently.
    local offset = store.bucket.clock_offset or 0
    if math.abs(offset) < CLOCK_SLACK_S then offset = 0 end
    return {
        path = path, size = object.size, etag = object.etag, modified = (object.modified or 0) - offset,
    }
end

--- Every file: { path, size, modified, etag }. A path may end with "/": such a key stands for a
--- folder.
---@return fun(): table?
function BucketStore:list()
    local next_object = self.bucket:list(self.prefix)
    return function()
        local object = next_object()
        while object and object.key == self.prefix do object = next_object() end
        return object and file_of(self, object.key:sub(#self.prefix + 1), object)
    end
end

---@return table?  one entry of the list; nil where there is none
function BucketStore:stat(path)
    local object = self.bucket:head(self.prefix .. path)
    return object and file_of(self, path, object)
end

--- The whole of a small file, or nil.
---@return string?
function BucketStore:read(path, most)
    return (self.bucket:get(self.prefix .. path, { max_body = most }))
end

--- Removes files; what is not there is removed already.
---@param paths string[]
---@return { path: string, message: string }[]  what could not be removed
function BucketStore:remove(paths)
    local keys, failures = {}, {}
    for i, path in ipairs(paths) do keys[i] = self.prefix .. path end
    for i, f in ipairs(self.bucket:delete_all(keys)) do
        failures[i] = {
            path = f.key:sub(#self.prefix + 1),
            message = ("delete %s: %s"):format(self.bucket:url(f.key), f.message or f.code),
        }
    end
    return failures
end

--- nil: a bucket has no size.
function BucketStore:space() return nil end

function BucketStore:source()
    return { kind = "s3", client = self.bucket.client, prefix = self.prefix }
end

BucketStore.sink = BucketStore.source

--- Gives up an upload of this store that was not completed.
function BucketStore:abort_upload(path, upload_id)
    self.bucket:abort_upload(self.prefix .. path, upload_id)
end

local function in_bucket(bucket, prefix)
    return setmetatable({
        kind = "bucket", bucket = bucket, prefix = prefix, location = bucket:url(prefix),
    }, BucketStore)
end

-- ---- a folder ----

---@class nc.FolderStore
---@field kind "folder"
---@field location string
local FolderStore = {}
FolderStore.__index = FolderStore

function FolderStore:__close() end

function FolderStore:url(path)
    return self.location .. path
end

-- What a copy that has not ended keeps beside the file it makes (runtime/transfer, nc.files).
local function is_unfinished(path)
    return path:find "%.%x%x%x%x%x%x%x%x%.parts?$" ~= nil or path:find "%.%x%x%x%x%x%x%x%x%.copy/" ~= nil
end

-- Calls visit(path, size, mtime or identity or what it is) until it returns something, going into
-- folders by itself. A stack in place of recursion: an iterator can't be a coroutine that waits.
local function walk(store)
    local stack = { { below = "", entries = disk.scan(store.root), at = 1, id = sys.stat(store.root).id } }
    local function enter(path, id)
        for _, level in ipairs(stack) do
            if level.id == id then
                error(errors.new {
                    code = "Loop",
                    message = ("list %s: the link %s leads back to a folder above it: remove it"):format(
                        store.location, store:url(path)),
                }, 0)
            end
        end
        stack[#stack + 1] = { below = path, entries = disk.scan(store:url(path)), at = 1, id = id }
    end
    return function()
        while true do
            local level = stack[#stack]
            if not level then return nil end
            local name, size, what = table.unpack(level.entries, level.at, level.at + 2)
            level.at = level.at + 3
            if not name then
                stack[#stack] = nil
            elseif name:sub(-1) == "/" then
                enter(level.below .. name, what)
            else
                return level.below .. name, size, what
            end
        end
    end
end

--- Every file: { path, size, modified }, symbolic links followed. What can't be copied ("a socket", "a
--- pipe", "a device", "a link that leads nowhere", "half of a file that is on its way", or the reason why
--- it can't be looked at) is told to skipped(path, what).
--- A folder that is not there is an error, unless `may_be_absent`.
---@param options { skipped: fun(path: string, what: string)?, may_be_absent: boolean? }?
---@return fun(): table?
function FolderStore:list(options)
    local o = errors.check_options(options, { "may_be_absent", "skipped" })
    if o.may_be_absent and not sys.stat(self.root) then return function() return nil end end
    local next_file = walk(self)
    return function()
        while true do
            local path, size, what = next_file()
            if not path then return nil end
            local odd = not size and what or is_unfinished(path) and "half of a file that is on its way"
            if not odd then return { path = path, size = size, modified = what } end
            if o.skipped then o.skipped(path, odd) end
        end
    end
end

function FolderStore:stat(path)
    local st = sys.stat(self:url(path))
    return st and st.type == "file" and { path = path, size = st.size, modified = st.mtime } or nil
end

function FolderStore:read(path, most)
    local file <close>, why, code = io.open(self:url(path), "rb")
    if not file and code == 2 then return nil end
    if not file then error(errors.new { code = "EACCES", message = "read " .. why }, 0) end
    if file:seek "end" > most then
        error(errors.new {
            code = "LongBody", message = ("read %s: longer than %d bytes"):format(self:url(path), most),
        }, 0)
    end
    file:seek "set"
    return file:read "a"
end

function FolderStore:remove(paths)
    local failures = {}
    for _, path in ipairs(paths) do
        local ok, e = pcall(disk.remove, self:url(path))
        if not ok then failures[#failures + 1] = { path = path, message = tostring(e) } end
    end
    return failures
end

-- The folder, or the nearest one above it that is there.
local function nearest(root)
    while not sys.stat(root) do
        local above = root:match "^(.*[^/])/+[^/]+/*$"
        if not above then return root:sub(1, 1) == "/" and "/" or "." end
        root = above
    end
    return root
end

--- Bytes that may still be written, or nil where the file system does not say.
function FolderStore:space()
    return disk.space(nearest(self.root))
end

--- Bytes that a copy which has not ended has taken for this file already.
function FolderStore:begun(path)
    local folder, name = path:match "^(.*/)(.*)$"
    if not folder then folder, name = "", path end
    self.unfinished = self.unfinished or {}
    local sizes = self.unfinished[folder]
    if not sizes then
        sizes = {}
        local entries = sys.stat(self:url(folder)) and disk.scan(self:url(folder)) or {}
        for i = 1, #entries, 3 do
            local whole = entries[i]:match "^(.*)%.%x%x%x%x%x%x%x%x%.part$"
            if whole and entries[i + 1] then sizes[whole] = entries[i + 1] end
        end
        self.unfinished[folder] = sizes
    end
    return sizes[name] or 0
end

function FolderStore:source()
    return { kind = "dir", root = self.root }
end

function FolderStore:sink()
    sys.mkdir(self.root)
    return { kind = "dir", root = self.root }
end

--- Whether this folder is the other one or lies somewhere in it.
function FolderStore:is_inside(other)
    local id, at = sys.stat(other.root), nearest(self.root)
    local start = sys.stat(at)
    if not id or start.type ~= "directory" then return false end -- below a file there can't be any
    local above = start.id
    while true do
        if above == id.id then return true end
        at = at .. "/.."
        local next_above = sys.stat(at).id
        if next_above == above then return false end
        above = next_above
    end
end

function BucketStore:is_inside(other)
    return self.bucket.name == other.bucket.name and self.prefix:sub(1, #other.prefix) == other.prefix
end

local function in_folder(path)
    local root = path:match "^(.-)/*$"
    if root == "" then root = "/" end
    return setmetatable({
        kind = "folder", root = root, location = root == "/" and "/" or root .. "/",
    }, FolderStore)
end

--- Opens what the address names; nothing is looked at yet.
---@param address string   "s3://bucket/prefix" or a path
---@param options { endpoint: string?, region: string?, profile: string? }?
---@return nc.BucketStore|nc.FolderStore  closable
function stores.open(address, options)
    local o = errors.check_options(options, OPEN)
    local a = stores.parse(address)
    if a.path then return in_folder(a.path) end
    local prefix = a.key
    if prefix ~= "" and prefix:sub(-1) ~= "/" then prefix = prefix .. "/" end
    return in_bucket(s3.bucket(a.bucket, o), prefix)
end

return stores
