--- Deciding file by file what a stage has to do.
--
-- How much of what is there can be trusted:
--   known     the journal of an earlier run, or the manifest of another revision, lists these bytes
--   claimed   its upload was begun for this SHA-256, and an upload is only ever completed once its
--             bytes were checked; read back where a run was interrupted, for the digests of its parts
--   unknown   somebody else put it there: it counts when its size is right, and small files, or all
--             of them with verify, are read back

local log  = require "nc.log"
local task = require "nc.task"

local plans = {}

local HEADS_AT_ONCE <const> = 16

---@generic T
---@param files T[]
---@return table<string, T>
function plans.by_path(files)
    local map = {}
    for _, f in ipairs(files) do map[f.path] = f end
    return map
end

---@return integer bytes
function plans.total(files)
    local bytes = 0
    for _, f in ipairs(files) do bytes = bytes + f.size end
    return bytes
end

--- Whether both sides say what the content is, and not the same.
---@return boolean
function plans.differ(known, file)
    return known.sha256 ~= nil and file.sha256 ~= nil and known.sha256 ~= file.sha256
end

-- The same content, as far as both sides say: the hub gives a SHA-256 or a git blob name.
local function same_content(known, file)
    if known.size ~= file.size then return false end
    if file.sha256 then return known.sha256 == file.sha256 end
    return known.blob ~= nil and known.blob == file.blob
end

-- Asks for the digests of many files, a few at a time.
local function digests_of(copy, paths)
    local digests, next_one = {}, 0
    local function work()
        while next_one < #paths do
            next_one = next_one + 1
            local path = paths[next_one]
            digests[path] = copy:digest_of(path)
        end
    end
    local workers = {}
    for i = 1, math.min(HEADS_AT_ONCE, #paths) do workers[i] = work end
    task.all(workers)
    return digests
end

---@class nc.stage.Plan
---@field kept table[]   entries of the manifest already certain
---@field check table[]  files to read back
---@field move table[]   files to fetch

local function known_entry(file, known)
    return {
        path = file.path, size = file.size, sha256 = known.sha256, blob = file.blob,
        part_size = known.part_size, parts = known.parts,
    }
end

-- Files that are there with the right size but that nothing vouches for.
local function sort_unvouched(plan, files, copy, verify, interrupted)
    local paths = {}
    for i, f in ipairs(files) do paths[i] = f.path end
    local digests = digests_of(copy, paths)
    local by_size = 0
    for _, f in ipairs(files) do
        local claimed = digests[f.path]
        if plans.differ({ sha256 = claimed }, f) then
            plan.move[#plan.move + 1] = f
        elseif verify or f.blob or interrupted then
            plan.check[#plan.check + 1] = f
        else
            by_size = by_size + (claimed and 0 or 1)
            plan.kept[#plan.kept + 1] = {
                path = f.path, size = f.size, sha256 = claimed, verified = claimed and "upload" or "size",
            }
        end
    end
    if by_size > 0 then
        log.warn(("%d files were there before, put by another tool: taken by their size, not verified; "
            .. "verify=yes reads them back"):format(by_size))
    end
end

--- What to keep, to read back and to fetch.
---@param files table[]      what the hub lists
---@param there table        what the copy lists
---@param earlier table?     an earlier run's heartbeat, decoded
---@param manifest table?    the `.complete` that was there
---@param verify boolean     read back whatever was there before
---@return nc.stage.Plan
function plans.make(files, there, copy, earlier, manifest, verify)
    local plan, unvouched = { kept = {}, check = {}, move = {} }, {}
    local listed = manifest and manifest.files and plans.by_path(manifest.files) or {}
    local done = earlier and earlier.done or {}
    local doubtful = earlier and earlier.unverified or {}
    for _, f in ipairs(files) do
        local present = there[f.path] and there[f.path].size == f.size
        local known = done[f.path] or listed[f.path]
        if not present then
            plan.move[#plan.move + 1] = f
        elseif doubtful[f.path] then
            plan.check[#plan.check + 1] = f
        elseif known and same_content(known, f) and not verify then
            plan.kept[#plan.kept + 1] = known_entry(f, known)
        elseif known and plans.differ(known, f) then
            plan.move[#plan.move + 1] = f -- another revision's bytes, of the same size
        else
            unvouched[#unvouched + 1] = f
        end
    end
    sort_unvouched(plan, unvouched, copy, verify, earlier ~= nil and #plan.move > 0)
    return plan
end

return plans
