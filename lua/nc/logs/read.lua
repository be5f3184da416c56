--- Logs where nc.logs has put them: which there are, and their bytes.
--
--     local store <close> = reader.in_bucket(bucket)             -- or reader.in_folder "/mnt/shared"
--     local newest = reader.newest(store, "logs/nanogpt/")
--     local offset = reader.copy(store, newest.key, 0, out)      -- out: reader.output()
--
-- Bytes pass as they are, in constant memory: a few ranges are fetched ahead of the one being written.

local errors = require "nc.errors"
local run    = require "nc.core.run"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

local reader = {}

local FIRST <const> = 256 << 10 -- the first bytes come soon
local RANGE <const> = 4 << 20
local AHEAD <const> = 4         -- ranges in memory at a time

-- ---- in a bucket ----

local BucketStore = {}
BucketStore.__index = BucketStore

---@param bucket nc.Bucket
function reader.in_bucket(bucket)
    return setmetatable({ bucket = bucket, clock = function() return bucket:clock() end }, BucketStore)
end

--- "s3://bucket/logs/a/"
function BucketStore:url(key) return self.bucket:url(key) end

--- { key, size, modified } of every object below a prefix.
function BucketStore:list(prefix)
    return self.bucket:list(prefix)
end

--- { size, version } of one object, or nil; equal versions have equal bytes.
function BucketStore:look(key)
    local object = self.bucket:head(key)
    return object and { size = object.size, version = object.etag }
end

--- Bytes first..last of it, fewer at its end, and its size; nil where there is none.
function BucketStore:read(key, first, last)
    local ok, body, object = pcall(self.bucket.get, self.bucket, key, {
        range = { first, last }, max_body = last - first + 1,
    })
    if ok then return body, object and object.total end
    if errors.is(body) and body.status == 416 then return "", first end -- it ends here, or before
    error(body, 0)
end

-- ---- in a folder ----

local FolderStore = {}
FolderStore.__index = FolderStore

---@param root string  where the volume is mounted
function reader.in_folder(root)
    return setmetatable({ root = root:gsub("/+$", "") .. "/", clock = sys.time }, FolderStore)
end

function FolderStore:url(key) return self.root .. key end

local function walk(root, prefix, found)
    for _, name in ipairs(sys.readdir(root .. prefix)) do
        local key = prefix .. name
        local st = sys.stat(root .. key)
        if st and st.type == "directory" then
            walk(root, key .. "/", found)
        elseif st then
            found[#found + 1] = { key = key, size = st.size, modified = st.mtime }
        end
    end
end

function FolderStore:list(prefix)
    local found, at = {}, 0
    if sys.stat(self.root .. prefix) then walk(self.root, prefix, found) end
    return function()
        at = at + 1
        return found[at]
    end
end

function FolderStore:look(key)
    local st = sys.stat(self.root .. key)
    return st and { size = st.size, version = ("%d %.9f"):format(st.size, st.mtime) }
end

function FolderStore:read(key, first, last)
    local file <close>, why, number = io.open(self.root .. key, "rb")
    if not file then
        if number == 2 then return nil end
        error(errors.new { code = "EACCES", message = "read " .. why }, 0)
    end
    local size = file:seek "end"
    file:seek("set", first)
    return file:read(last - first + 1) or "", size
end

-- ---- choosing ----

--- The log that was written last, by the clock of where it lies; nil where there is none.
---@return { key: string, size: integer, modified: number }?
function reader.newest(store, prefix)
    local newest
    for object in store:list(prefix) do
        -- At the same second the later name: pod.log comes after pod.1.log, the attempt before it.
        if not newest or object.modified >= newest.modified then newest = object end
    end
    return newest
end

--- All logs below a prefix, those written last first: { job, pod, key, size, age } with the age in seconds.
---@return table[]
function reader.list(store, prefix)
    local found = {}
    for object in store:list(prefix) do
        local job, pod = object.key:match "^logs/([^/]+)/(.+)$"
        if job then
            pod = pod:gsub("%.log$", "")
            found[#found + 1] = { job = job, pod = pod, key = object.key, size = object.size, at = object.modified }
        end
    end
    local now = store.clock()
    for _, entry in ipairs(found) do entry.age = math.max(0, now - entry.at) end
    table.sort(found, function(a, b)
        if a.age ~= b.age then return a.age < b.age end
        return a.key > b.key -- as reader.newest has it
    end)
    return found
end

-- ---- reading ----

--- Where output goes: raises an error with the code "EPIPE" once nobody reads it any more.
function reader.output()
    local sink = run.sink(1)
    local function check()
        local state = sink:state()
        if state.closed then error(errors.new { code = "EPIPE", message = "nobody reads the output" }, 0) end
        if state.lost > 0 then
            error(errors.new { code = "WriteFailed", message = "write the output: " .. tostring(state.error) }, 0)
        end
    end
    local out = {}
    function out.write(data)
        local at = 1
        while at <= #data do
            at = sink:put(data, at)
            if at <= #data then task.wait(sink:empty()) end
            check()
        end
    end
    --- Waits until all of it is written.
    function out.flush()
        task.wait(sink:empty())
        check()
    end
    return out
end

-- Ranges of `from` up to `to`, fetched ahead, written in order.
local function copy_ranges(store, key, from, to, out)
    local fetching = {}
    local _ <close> = setmetatable({}, { __close = function()
        for _, t in ipairs(fetching) do
            local _ <close> = t
        end
    end })
    local at = from
    while at < to or #fetching > 0 do
        while at < to and #fetching < AHEAD do
            fetching[#fetching + 1] = task.spawn(store.read, store, key, at, math.min(at + RANGE, to) - 1)
            at = at + RANGE
        end
        local data = fetching[1]:wait()
        table.remove(fetching, 1)
        if not data then return end
        out.write(data)
        collectgarbage() -- ranges are large: not more of them than need be
    end
end

--- Writes what there is from an offset on. Returns the offset after it; nil where there is no such log.
---@return integer?
function reader.copy(store, key, from, out)
    local data, size = store:read(key, from, from + FIRST - 1)
    if not data then return nil end
    out.write(data)
    local at = from + #data
    if #data > 0 and size > at then
        copy_ranges(store, key, at, size, out)
        at = size
    end
    out.flush()
    return at
end

-- The place after the n-th newline of data, counted from its end.
local function nth_last_newline(data, n)
    local _, count = data:gsub("\n", "")
    local at = 0
    for _ = 1, count - n + 1 do at = data:find("\n", at + 1, true) end
    return at
end

--- The offset at which the last `lines` lines of a log of that size begin.
---@return integer
function reader.tail_offset(store, key, size, lines)
    local last, range, wanted = size, 64 << 10, lines
    while last > 0 do
        local first = math.max(0, last - range)
        local data = store:read(key, first, last - 1) or ""
        if last == size and data:sub(-1) == "\n" then wanted = wanted + 1 end
        local _, count = data:gsub("\n", "")
        if count >= wanted then return first + nth_last_newline(data, wanted) end
        wanted, last, range = wanted - count, first, math.min(range * 4, RANGE)
    end
    return 0
end

return reader
