--- The two markers of a staged copy, as values. Pure: text in, tables out.
--
-- `.staging` is rewritten while a stage runs; `.complete` is the last write of all and lists every
-- file. Both are JSON. A bare or empty `.complete`, as older tools write it, is valid too.

local errors = require "nc.errors"
local json   = require "nc.json"

local marker = {}

marker.STAGING = ".staging"
marker.COMPLETE = ".complete"
marker.FRESH_S = 600
marker.DIGEST = "xxh3-128" -- of every part, beside the whole file's SHA-256

local VERSION <const> = 1

local function refuse(why)
    error(errors.new { code = "BadMarker", message = "the marker " .. why }, 0)
end

local function check(condition, why)
    if not condition then refuse(why) end
end

local function is_count(n)
    return math.type(n) == "integer" and n >= 0
end

local function is_hex(s, digits)
    return type(s) == "string" and #s == digits and not s:find "[^%da-f]"
end

local function check_parts(path, f)
    check(is_count(f.part_size) and f.part_size > 0, "gives no part size for " .. path)
    check(type(f.parts) == "table" and #f.parts == math.max(1, (f.size + f.part_size - 1) // f.part_size),
        "has the wrong number of part digests for " .. path)
    for _, digest in ipairs(f.parts) do
        check(is_hex(digest, 32), "has a part digest for " .. path .. " that is none")
    end
end

local function check_file(f)
    check(type(f) == "table" and type(f.path) == "string" and f.path ~= "", "lists a file without a path")
    check(is_count(f.size), "gives no size for " .. f.path)
    check(f.sha256 == nil or is_hex(f.sha256, 64), "gives a SHA-256 for " .. f.path .. " that is none")
    if f.parts ~= nil then check_parts(f.path, f) end
end

--- The manifest of a complete copy.
---@param m { repository: string, commit: string, files: table[], finished: string, by: string }
---@return string
function marker.encode_complete(m)
    local bytes, files = 0, json.array {}
    for i, f in ipairs(m.files) do
        bytes = bytes + f.size
        files[i] = {
            path = f.path, size = f.size, sha256 = f.sha256, verified = f.verified,
            part_size = f.parts and f.part_size, parts = f.parts and json.array(f.parts),
        }
    end
    return json.encode({
        version = VERSION, repository = m.repository, commit = m.commit, part_digest = marker.DIGEST,
        files = files, total_files = #files, total_bytes = bytes, finished = m.finished, by = m.by,
    }, { indent = 1 }) .. "\n"
end

--- What a `.complete` says: its table, or { bare = true } for one that an older tool left.
--- Raises the code "BadMarker" for a manifest that contradicts itself.
---@return table
function marker.decode_complete(text)
    local ok, m = pcall(json.decode, text)
    if not ok or type(m) ~= "table" or m.version == nil then return { bare = true } end
    check(m.version == VERSION, ("is of version %s; this program reads %d"):format(tostring(m.version), VERSION))
    check(type(m.repository) == "string" and is_hex(m.commit, 40), "names no repository and commit")
    check(type(m.files) == "table", "lists no files")
    local bytes = 0
    for _, f in ipairs(m.files) do
        check_file(f)
        bytes = bytes + f.size
    end
    check(m.total_files == #m.files and m.total_bytes == bytes, "has totals that are not those of its files")
    return m
end

--- The text of a heartbeat without its closing brace, to which the engine adds the numbers.
---@param s { owner: table, repository: string, commit: string, started: string, journal: table,
---  ended: string? }
---@return string
function marker.encode_staging(s)
    local text = json.encode {
        version = VERSION, owner = s.owner, repository = s.repository, commit = s.commit,
        started = s.started, ended = s.ended, journal = s.journal,
    }
    return (text:gsub("}$", ""))
end

-- Files that an earlier run finished, by path; what does not read well is left out: the file is then
-- looked at anew.
local function done_files(journal)
    local done = {}
    for path, f in pairs(type(journal.done) == "table" and journal.done or {}) do
        if type(f) == "table" then
            f.path = path
            if pcall(check_file, f) and f.sha256 then done[path] = f end
        end
    end
    return done
end

local function set_of(list)
    local set = {}
    for _, name in ipairs(type(list) == "table" and list or {}) do
        if type(name) == "string" then set[name] = true end
    end
    return set
end

--- What a `.staging` says, in a form that can be relied on whatever was in it: { owner, commit,
--- started, ended, bytes_done, bytes_total, done = { path -> file }, unverified = { path -> true },
--- strangers = { id -> true } or nil }.
---@return table
function marker.decode_staging(text)
    local ok, s = pcall(json.decode, text)
    if not ok or type(s) ~= "table" then s = {} end
    local journal = type(s.journal) == "table" and s.journal or {}
    return {
        owner = type(s.owner) == "table" and s.owner or {},
        commit = is_hex(s.commit, 40) and s.commit or nil,
        started = type(s.started) == "string" and s.started or nil,
        ended = type(s.ended) == "string" and s.ended or nil,
        bytes_done = is_count(s.bytes_done) and s.bytes_done or 0,
        bytes_total = is_count(s.bytes_total) and s.bytes_total or 0,
        done = done_files(journal),
        unverified = set_of(journal.unverified),
        strangers = type(journal.strangers) == "table" and set_of(journal.strangers) or nil,
    }
end

--- Refuses file names that would leave the copy, hide its markers, or hide each other. All of them
--- are checked before the first byte moves.
---@param files { path: string }[]
function marker.check_paths(files)
    local all = {}
    local function bad(path, why)
        error(errors.new {
            code = "BadPath",
            message = ('the file name "%s" %s; nothing was copied'):format(path:gsub("%c", "?"), why),
        }, 0)
    end
    for _, f in ipairs(files) do
        local path = f.path
        if path == "" then bad(path, "is empty") end
        if path:find "%c" then bad(path, "holds a control character") end
        if #path > 900 then bad(path, "is longer than 900 bytes") end
        if path:sub(1, 1) == "/" then bad(path, "is absolute") end
        local top = path:match "^[^/]*" -- a folder of that name would be in the marker's way on a volume
        if top == marker.STAGING or top == marker.COMPLETE then bad(path, "is that of a marker") end
        for part in (path .. "/"):gmatch "([^/]*)/" do
            if part == "" or part == "." or part == ".." then bad(path, "would leave the copy's folder") end
            if #part > 255 then bad(path, "has a part longer than 255 bytes") end
        end
        if all[path] then bad(path, "is there twice") end
        all[path] = true
    end
    for _, f in ipairs(files) do
        for at in f.path:gmatch "()/" do
            local above = f.path:sub(1, at - 1)
            if all[above] then bad(above, ('is also the folder of "%s"'):format(f.path)) end
        end
    end
end

return marker
