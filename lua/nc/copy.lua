--- A staged copy of a model: a bucket prefix or a folder, seen the same way.
--
--     local copy = copies.in_bucket(bucket, "inkling")       -- s3://bucket/models/inkling/
--     local copy = copies.in_folder("/mnt/shared", "inkling")
--
-- Nothing here removes anything but the `.complete` marker of a copy that is about to change, and
-- unfinished uploads of our own.

local afar   = require "nc.afar"
local beats  = require "nc.core.heartbeat"
local disk   = require "nc.core.disk"
local errors = require "nc.errors"
local marker = require "nc.marker"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

local copies = {}

local MARKER_MAX <const> = 1 << 30
local MARKER_TRIES <const>, MARKER_PAUSE_S <const> = 6, 2
local REFUSALS <const> = {
    PreconditionFailed = true, ConditionalRequestConflict = true, NotImplemented = true, InvalidArgument = true,
}

local function check_name(name)
    if type(name) ~= "string" or not name:match "^[%w][%w._-]*$" then
        error("a copy's name has letters, digits, . _ and - only", 3)
    end
end

local function without_markers(there)
    there[marker.STAGING], there[marker.COMPLETE] = nil, nil
    return there
end

-- ---- in a bucket ----

---@class nc.BucketCopy
local BucketCopy = {}
BucketCopy.__index = BucketCopy

---@param bucket nc.Bucket
---@param name string
function copies.in_bucket(bucket, name)
    check_name(name)
    local prefix = "models/" .. name .. "/"
    return setmetatable({ bucket = bucket, prefix = prefix, location = bucket:url(prefix) }, BucketCopy)
end

--- A marker's text, its age in seconds by the server's clock and its ETag, or nil.
---@return string? text, number? age, string? etag
function BucketCopy:read_marker(name)
    local text, object = self.bucket:get(self.prefix .. name, { max_body = MARKER_MAX })
    if not text then return nil end
    local now = object.date or os.time()
    return text, math.max(0, now - (object.modified or now)), object.etag
end

-- A marker is the end of hours of work: it is worth more patience than other requests, and an answer
-- that was lost is no failure when the marker is there.
function BucketCopy:write_marker(name, text)
    local last
    for attempt = 1, MARKER_TRIES do
        local ok, e = pcall(self.bucket.put, self.bucket, self.prefix .. name, text,
            { content_type = "application/json" })
        if ok then return end
        last = e
        if not errors.is(e) or e.code == "Cancelled" then break end
        if self.bucket:get(self.prefix .. name, { max_body = MARKER_MAX }) == text then return end
        if not e.retryable then break end
        task.sleep(attempt * MARKER_PAUSE_S)
    end
    error(last, 0)
end

--- Takes the copy for a stage by its first heartbeat. False where somebody else has been quicker,
--- which a conditional write tells; a server that knows none lets everybody in.
---@param seen string?  the ETag of the heartbeat that was there
---@return boolean
function BucketCopy:claim(text, seen)
    local key, options = self.prefix .. marker.STAGING, { content_type = "application/json" }
    if seen then options.if_match = seen else options.if_none_match = "*" end
    local ok, e = pcall(self.bucket.put, self.bucket, key, text, options)
    if ok then return true end
    if not errors.is(e) or not REFUSALS[e.code] then error(e, 0) end
    -- Some take If-Match for something else than it is: only another heartbeat is a refusal.
    local object = self.bucket:head(key)
    if (object and object.etag) ~= seen then return false end
    self.bucket:put(key, text, { content_type = "application/json" })
    return true
end

function BucketCopy:remove_marker(name)
    self.bucket:delete(self.prefix .. name)
end

--- What is there: path -> { size, version, etag? }, markers left out. The version is another one when
--- the content is.
function BucketCopy:list()
    local there = {}
    for object in self.bucket:list(self.prefix) do
        there[object.key:sub(#self.prefix + 1)] = { size = object.size, version = object.etag, etag = object.etag }
    end
    return without_markers(there)
end

--- The SHA-256 that the file at path was put there for, where it is known.
---@return string?
function BucketCopy:digest_of(path)
    local object = self.bucket:head(self.prefix .. path)
    return object and object.metadata.sha256
end

--- Bytes below models/ in the bucket, of all copies.
function BucketCopy:bytes_of_all()
    local bytes = 0
    for object in self.bucket:list "models/" do bytes = bytes + object.size end
    return bytes
end

--- nil: a bucket has no size.
function BucketCopy:space() return nil end

--- Seconds since 1970 by the server's clock.
function BucketCopy:clock()
    return self.bucket:clock()
end

function BucketCopy:sink()
    return { kind = "s3", client = self.bucket.client, prefix = self.prefix }
end

function BucketCopy:source()
    return self:sink()
end

--- Goes on with the heartbeat that claim has written; `interval` in seconds.
function BucketCopy:heartbeat(text, interval)
    return (beats.start({
        client = self.bucket.client, key = self.prefix .. marker.STAGING, interval = interval, written = true,
    }, text))
end

--- Unfinished uploads: { path, upload_id, initiated }.
function BucketCopy:uploads()
    local list = {}
    for upload in self.bucket:uploads(self.prefix) do
        list[#list + 1] = {
            path = upload.key:sub(#self.prefix + 1), upload_id = upload.upload_id, initiated = upload.initiated,
        }
    end
    return list
end

function BucketCopy:parts(upload)
    return self.bucket:parts(self.prefix .. upload.path, upload.upload_id)
end

--- One that is gone already is no failure.
function BucketCopy:abort(upload)
    local ok, e = pcall(self.bucket.abort_upload, self.bucket, self.prefix .. upload.path, upload.upload_id)
    if not ok and not errors.is(e, "NoSuchUpload") then error(e, 0) end
end

-- ---- in a folder ----

local function folder_of(root, name)
    return root:gsub("/+$", "") .. "/models/" .. name
end

-- What the engine is still writing, and its journals.
local PART <const> = "%.%x%x%x%x%x%x%x%x%.parts?$"

local function version_of(size, mtime)
    return ("%d-%.6f"):format(size, mtime)
end

---@class nc.FolderCopy
local FolderCopy = {}
FolderCopy.__index = FolderCopy

---@param root string  "/mnt/shared": the copy is below models/
---@param name string
function copies.in_folder(root, name)
    check_name(name)
    local folder = folder_of(root, name)
    sys.mkdir(folder)
    return setmetatable({ folder = folder, location = folder .. "/" }, FolderCopy)
end

function FolderCopy:read_marker(name)
    local path = self.folder .. "/" .. name
    local file <close>, why, code = io.open(path, "rb")
    if not file then
        if code == 2 then return nil end
        error(errors.new { code = "EACCES", message = "read " .. why }, 0)
    end
    local text = file:read "a"
    local stat = sys.stat(path)
    return text, stat and math.max(0, self:clock() - stat.mtime) or 0
end

function FolderCopy:write_marker(name, text)
    disk.replace(self.folder .. "/" .. name, text)
end

--- A folder knows no conditional write: everybody is let in.
function FolderCopy:claim(text)
    self:write_marker(marker.STAGING, text)
    return true
end

function FolderCopy:remove_marker(name)
    disk.remove(self.folder .. "/" .. name)
end

-- Calls found(path, stat) for every file below the folder, which may be absent.
local function walk(folder, below, found)
    if below == "" and not sys.stat(folder) then return end
    for _, name in ipairs(sys.readdir(folder .. "/" .. below)) do
        local path = below .. name
        local stat = sys.stat(folder .. "/" .. path)
        if stat and stat.type == "directory" then
            walk(folder, path .. "/", found)
        elseif stat then
            found(path, stat)
        end
    end
end

function FolderCopy:list()
    local there = {}
    walk(self.folder, "", function(path, stat)
        if not path:find(PART) then
            there[path] = { size = stat.size, version = version_of(stat.size, stat.mtime) }
        end
    end)
    return without_markers(there)
end

--- What the engine has left half-written, in this folder and below: { path, temp }, the name that it was to
--- get and the one that it has.
function FolderCopy:temporaries()
    local list = {}
    walk(self.folder, "", function(path)
        local final = path:gsub(PART, "")
        if final ~= path then list[#list + 1] = { path = final, temp = path } end
    end)
    return list
end

function FolderCopy:digest_of() return nil end

function FolderCopy:bytes_of_all() return 0 end

--- Bytes that may still be written, or nil where the file system does not say.
function FolderCopy:space()
    return disk.space(self.folder)
end

-- Where nothing can be written, as on a volume mounted read-only, our clock has to do.
local function clock_of(folder, ask)
    local ok, now = pcall(ask, folder)
    if ok then return now end
    if not errors.is(now, "EROFS") and not errors.is(now, "EACCES") then error(now, 0) end
    return sys.time()
end

function FolderCopy:clock()
    return clock_of(self.folder, disk.clock)
end

function FolderCopy:sink()
    return { kind = "dir", root = self.folder }
end

function FolderCopy:source()
    return { kind = "dir", root = self.folder }
end

function FolderCopy:heartbeat(text, interval)
    return (beats.start({ file = self.folder .. "/" .. marker.STAGING, interval = interval, written = true }, text))
end

--- None: what a dead stage has left half-written, the engine itself goes on with or removes.
function FolderCopy:uploads() return {} end

-- ---- in a folder that may not answer ----

---@class nc.FarCopy
local FarCopy = {}
FarCopy.__index = FarCopy

--- A copy that is only looked at and read from, on a volume whose server may be gone: the task waits for it, the
--- others don't (nc.afar).
---@param root string  "/mnt/shared"
---@param name string
function copies.on_volume(root, name)
    check_name(name)
    local folder = folder_of(root, name)
    return setmetatable({ folder = folder, location = folder .. "/" }, FarCopy)
end

function FarCopy:read_marker(name)
    local text, mtime = afar.read(self.folder .. "/" .. name)
    if not text then return nil end
    return text, math.max(0, self:clock() - mtime)
end

function FarCopy:list()
    local there, found = {}, afar.list(self.folder) or {}
    for i = 1, #found, 3 do
        local path, size, mtime = found[i], found[i + 1], found[i + 2]
        if not path:find(PART) then
            there[path] = { size = size, version = version_of(size, mtime) }
        end
    end
    return without_markers(there)
end

function FarCopy:clock()
    return clock_of(self.folder, afar.clock)
end

function FarCopy:source()
    return { kind = "dir", root = self.folder }
end

return copies
