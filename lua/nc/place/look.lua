--- What a volume's or a bucket's copy of the weights is like, as a value for nc.place.decide.

local log    = require "nc.log"
local marker = require "nc.marker"
local owners = require "nc.owner"
local placed = require "nc.place.placed"
local plans  = require "nc.stage.plan"
local text   = require "nc.core.text"

local look = {}

---@class nc.place.Look
---@field name string        "volume", "bucket"
---@field complete table?    { commit?, chosen?, date, bytes, files, marker }: chosen: not the whole repository;
---  marker: the text of its `.complete`
---@field staging table?     { who, age, at, started?, bytes_done, bytes_total }: fresh, times in seconds
---@field note string?       why what is there counts for nothing

local function date_of(seconds)
    return os.date("!%Y-%m-%d", math.floor(seconds))
end

-- The files of the copy, with what identifies each one's content.
local function files_of(manifest, there)
    local files = {}
    if manifest.bare then
        for path, t in pairs(there) do
            files[#files + 1] = { path = path, size = t.size, version = t.version, etag = t.etag }
        end
        table.sort(files, function(a, b) return a.path < b.path end)
        placed.check_paths(files)
        return files, 0
    end
    placed.check_paths(manifest.files)
    local lacking = 0
    for i, f in ipairs(manifest.files) do
        local t = there[f.path]
        if not t or t.size ~= f.size then lacking = lacking + 1 end
        files[i] = {
            path = f.path, size = f.size, sha256 = f.sha256, part_size = f.part_size, parts = f.parts,
            version = f.sha256 or t and t.version, etag = t and t.etag,
        }
    end
    return files, lacking
end

local function complete_of(copy, body, age, repository)
    local ok, manifest = pcall(marker.decode_complete, body)
    if not ok then
        log.warn(("%s%s: %s"):format(copy.location, marker.COMPLETE, tostring(manifest)))
        return nil, "its marker can't be read"
    end
    if not manifest.bare and manifest.repository ~= repository then
        return nil, "its copy is of " .. manifest.repository
    end
    local files, lacking = files_of(manifest, copy:list())
    if lacking > 0 or #files == 0 then
        return nil, ("its copy is marked but lacks %s files"):format(#files == 0 and "all" or lacking)
    end
    return {
        commit = manifest.commit, chosen = (manifest.allow or manifest.ignore) and true,
        files = files, bytes = plans.total(files), marker = body,
        date = manifest.finished and manifest.finished:sub(1, 10) or date_of(copy:clock() - age),
    }
end

-- A heartbeat that is older than the `.complete` beside it is that of the stage that wrote it.
local function staging_of(copy, stale, complete_age)
    local body, age = copy:read_marker(marker.STAGING)
    if not body or age >= stale or (complete_age and age >= complete_age) then return nil end
    local s = marker.decode_staging(body)
    if s.ended then return nil end
    return {
        who = s.owner.job and owners.describe(s.owner) or "somebody", age = age, at = copy:clock() - age,
        started = s.started and text.iso_date(s.started), bytes_done = s.bytes_done, bytes_total = s.bytes_total,
    }
end

--- Looks at a copy: two requests where there is none, and a listing where there is one.
---@param name string        "volume"
---@param copy table         of nc.copy
---@param repository string  whose copy counts
---@param stale number       seconds after which a heartbeat is that of a dead stage
---@return nc.place.Look
function look.at(name, copy, repository, stale)
    local found = { name = name }
    local body, age = copy:read_marker(marker.COMPLETE)
    if body then found.complete, found.note = complete_of(copy, body, age, repository) end
    if not found.complete then found.staging = staging_of(copy, stale, age) end
    return found
end

return look
