--- Copying one file, to a name of one's choice.
--
--     files.copy("out.log", "s3://bucket/logs/job-1.log")
--     files.copy("s3://bucket/models/a.bin", "/nvme/")          -- keeps its name
--
-- The engine moves a file under one name at both ends. Another name is had by an alias of the source (a
-- folder), a folder of its own beside the target (a folder), or the server's own copy (two buckets).

local compare = require "nc.trees.compare"
local disk    = require "nc.core.disk"
local errors  = require "nc.errors"
local moving  = require "nc.trees.move"
local stores  = require "nc.stores"
local sys     = require "nc.core.sys"
local task    = require "nc.task"
local text    = require "nc.core.text"

local files = {}

local OPTIONS <const> = {
    "endpoint", "limit_rate", "memory", "overwrite", "parallel", "part_size", "planned", "profile", "region",
}
local COPY_MAX <const> = 5 << 30 -- bytes in one CopyObject, and in one part of a copy
local COPY_PART <const> = 512 << 20
local COPIES_AT_ONCE <const> = 8

-- "a/b/c" -> "a/b/", "c"
local function split(path)
    return path:match "^(.-)([^/]*)$"
end

-- The address without its last part, which is the file's name.
local function folder_and_name(address)
    local a = stores.parse(address)
    local above, name = split(a.key or a.path)
    if a.bucket then return ("s3://%s/%s"):format(a.bucket, above), name end
    return above == "" and "./" or above, name
end

--- Where a file called `name` goes that is copied to `address`: into it where it is a folder or ends
--- with "/", else under that very name.
---@return string address
function files.target(address, name)
    local a = stores.parse(address)
    if a.bucket then
        if a.key == "" then return ("s3://%s/%s"):format(a.bucket, name) end
        return a.key:sub(-1) == "/" and address .. name or address
    end
    local st = sys.stat(a.path)
    if a.path:sub(-1) == "/" then return a.path .. name end
    return st and st.type == "directory" and a.path .. "/" .. name or a.path
end

local function not_there(store, name)
    local what = store.kind == "bucket" and "there is no such object" or "there is no such file"
    local hint = ""
    if store.kind == "folder" and sys.stat(store:url(name)) then
        what, hint = "it is no regular file", ": a folder wants -r, a pipe `-`"
    elseif store.kind == "bucket" and store.bucket:list(store.prefix .. name .. "/")() then
        what, hint = "there is no such object", ", but there are some below it: copy them with -r"
    end
    return errors.new { code = "NotFound", message = ("%s: %s%s"):format(store:url(name), what, hint) }
end

-- ---- another name ----

local function run(o, from, to, name)
    local file = from:stat(name)
    if not file then error(not_there(from, name), 0) end
    local report = moving.new_report()
    moving.move(setmetatable({ from = from, to = to, label = "copy" }, { __index = o }), { file }, report)
    if report.failed[1] then error(report.failed[1].error, 0) end
    return report
end

-- A folder with a link under the other name in it is a source as good as the file's own.
local function from_alias(o, from, name, to, other)
    local folder = sys.mkdtemp()
    local _ <close> = setmetatable({}, {
        __close = function()
            disk.remove(folder .. "/" .. other)
            os.remove(folder)
        end,
    })
    disk.alias(from:url(name), folder .. "/" .. other)
    local alias <close> = stores.open(folder)
    return run(o, alias, to, other)
end

-- Its name in the bucket, in a folder that only this copy uses, then renamed. An interrupted copy finds
-- the folder again, since its name comes from the object's.
local function through_folder(o, from, name, to, other)
    sys.mkdir(to.root)
    local folder = ("%s.%s.copy"):format(to:url(other), text.sha256(from:url(name)):sub(1, 8))
    local between <close> = stores.open(folder)
    local report
    do
        local _ <close> = setmetatable({}, { __close = function() os.remove(folder) end })
        report = run(o, from, between, name)
        disk.rename(between:url(name), to:url(other))
    end
    return report
end

-- Part by part, all inside the server.
local function copy_parts(from, source, to, key, file)
    local bucket = to.bucket
    local id = bucket:create_upload(key)
    local whole = false
    local _ <close> = setmetatable({}, {
        __close = function()
            if not whole then pcall(bucket.abort_upload, bucket, key, id) end
        end,
    })
    local part_size = math.max(COPY_PART, (file.size + 9999) // 10000)
    local count, taken, parts, workers = (file.size + part_size - 1) // part_size, 0, {}, {}
    local function work()
        while taken < count do
            taken = taken + 1
            local number = taken
            local first = (number - 1) * part_size
            local range = { first, math.min(first + part_size, file.size) - 1 }
            parts[number] = { number = number, etag = bucket:copy_part(key, id, number, source, range, from.bucket) }
        end
    end
    for i = 1, math.min(COPIES_AT_ONCE, count) do workers[i] = work end
    task.all(workers)
    local now = from.bucket:head(source)
    if not now or now.etag ~= file.etag then
        error(errors.new { code = "Changed", message = from.bucket:url(source)
            .. " was replaced while it was copied: copy it again" }, 0)
    end
    bucket:complete_upload(key, id, parts)
    whole = true
end

local function inside_server(from, file, to, other)
    local began, source, key = sys.now(), from.prefix .. file.path, to.prefix .. other
    if file.size <= COPY_MAX then
        to.bucket:copy(source, key, from.bucket)
    else
        copy_parts(from, source, to, key, file)
    end
    local report = moving.new_report()
    report.files, report.bytes, report.seconds = 1, file.size, sys.now() - began
    return report
end

local function copy(o, from, file, to, other)
    local name = file.path
    if name == other then return run(o, from, to, name) end
    if from.kind == "folder" then return from_alias(o, from, name, to, other) end
    if to.kind == "folder" then return through_folder(o, from, name, to, other) end
    return inside_server(from, file, to, other)
end

-- Whether what is there already is left as it is.
local function is_kept(overwrite, file, to, other)
    local there = (overwrite or "yes") ~= "yes" and to:stat(other)
    return there and (overwrite == "no" or compare.is_same(file, there)) or false
end

local function refuse_itself(from, name, to, other)
    local same
    if from.kind == "bucket" then
        same = to.kind == "bucket" and from:url(name) == to:url(other)
    elseif to.kind == "folder" then
        local a, b = sys.stat(from:url(name)), sys.stat(to:url(other))
        same = a and b and a.id == b.id
    end
    if same then error(errors.usage("%s can't be copied onto itself", from:url(name)), 0) end
end

--- Copies one file; `to` is its new name, or a folder that gets it under its own.
--- overwrite: as of nc.trees.copy. planned(from, to): called with the two addresses in place of doing it.
---@return table report, string from, string to   report as of nc.trees.copy, and the whole addresses
function files.copy(from_address, to_address, options)
    local o = errors.check_options(options, OPTIONS)
    local where = { endpoint = o.endpoint, profile = o.profile, region = o.region }
    local above, name = folder_and_name(from_address)
    if name == "" then error(errors.usage("%s names no file: copy what is below it with -r", from_address), 0) end
    local to_above, other = folder_and_name(files.target(to_address, name))
    local from <close> = stores.open(above, where)
    local to <close> = stores.open(to_above, where)
    local from_url, to_url = from:url(name), to:url(other)
    refuse_itself(from, name, to, other)
    local file = from:stat(name)
    if not file then error(not_there(from, name), 0) end
    local report = moving.new_report()
    if is_kept(o.overwrite, file, to, other) then
        report.kept = 1
    elseif o.planned then
        o.planned(from_url, to_url)
    else
        report = copy(o, from, file, to, other)
    end
    return report, from_url, to_url
end

return files
