--- A job's input on the node's own disk: files, trees and archives, from buckets and volumes, at once.
--
--     local done = inputs.stage({ "s3://bucket/dataset.tar.gz", "/mnt/shared/labels/" }, "/scratch/input")
--
-- An address that ends with "/" or names a folder brings all that is below it; else it is one file, and
-- an archive among those is unpacked while it streams (nc.archive).

local archive = require "nc.archive"
local errors  = require "nc.errors"
local files   = require "nc.files"
local log     = require "nc.log"
local stores  = require "nc.stores"
local sys     = require "nc.core.sys"
local task    = require "nc.task"
local trees   = require "nc.trees"
local units   = require "nc.units"

local inputs = {}

local OPTIONS <const> = { "endpoint", "unpack" }
local UNPACK <const> = { auto = true, all = true, no = true }

local function new_count()
    return { files = 0, bytes = 0 }
end

local function add(count, done)
    count.files, count.bytes = count.files + done.files, count.bytes + done.bytes
end

-- The address's folder and the name in it; the name is "" for a tree.
local function split(address)
    local above, name = address:match "^(.-)([^/]*)$"
    if address:match "^s3://[^/]*$" then return address .. "/", "" end
    return above == "" and "./" or above, name
end

-- Whether the address names a tree, which may be said without the "/" at its end.
local function is_tree(store, name)
    if name == "" then return true end
    if store.kind == "folder" then
        local st = sys.stat(store:url(name))
        return st and st.type == "directory"
    end
    return not store:stat(name) and store.bucket:list(store.prefix .. name .. "/")() ~= nil
end

local function unpack(store, path, folder, count)
    local begun = sys.now()
    local done = archive.unpack(store, path, folder)
    add(count, done)
    log.info(("unpacked %s: %d files, %s in %s"):format(store:url(path), done.files,
        units.format_size(done.bytes), units.format_duration(sys.now() - begun)))
end

-- The archives of a tree that are unpacked, each into the folder it would lie in.
local function archives_of(store)
    local paths = {}
    for file in store:list() do
        if archive.is(file.path) then paths[#paths + 1] = file.path end
    end
    return paths
end

local function refuse_failures(report, location)
    local first = report.failed[1]
    if not first then return end
    error(errors.new {
        code = "SomeFailed",
        message = ("%d files of %s could not be staged in, such as %s: %s"):format(
            #report.failed, location, first.path, tostring(first.error)),
    }, 0)
end

local function stage_tree(store, folder, o, count)
    local packed = o.unpack == "all" and archives_of(store) or {}
    for _, path in ipairs(packed) do
        unpack(store, path, folder .. "/" .. (path:match "^(.*)/" or ""), count)
    end
    local to <close> = stores.open(folder)
    local wanted = #packed > 0 and function(path) return not archive.is(path) end or nil
    local ok, report = pcall(trees.copy, { from = store, to = to, label = "stage in", wanted = wanted })
    if not ok and #packed > 0 and errors.is(report, "NotFound") then return end -- nothing but archives
    if not ok then error(report, 0) end
    refuse_failures(report, store.location)
    add(count, report)
end

local function stage_one(address, folder, o, count)
    local where = { endpoint = o.endpoint }
    local above, name = split(address)
    local store <close> = stores.open(above, where)
    if is_tree(store, name) then
        local tree <close> = stores.open(address, where)
        stage_tree(tree, folder, o, count)
    elseif o.unpack ~= "no" and archive.is(name) then
        unpack(store, name, folder, count)
    else
        add(count, (files.copy(address, folder .. "/", where)))
    end
end

--- Brings what the addresses name into a folder, all at the same time.
--- unpack: archives that are named themselves ("auto", the default), those in trees too ("all"), or none
--- ("no").
---@param addresses string[]
---@param options { endpoint: string?, unpack: string? }?
---@return { files: integer, bytes: integer, seconds: number }
function inputs.stage(addresses, folder, options)
    local o = errors.check_options(options, OPTIONS)
    o = { endpoint = o.endpoint, unpack = o.unpack or "auto" }
    if not UNPACK[o.unpack] then error('unpack is "auto", "all" or "no"', 2) end
    local count, begun, work = new_count(), sys.now(), {}
    sys.mkdir(folder)
    for i, address in ipairs(addresses) do
        work[i] = function() stage_one(address, folder, o, count) end
    end
    task.all(work)
    count.seconds = sys.now() - begun
    if count.files > 0 then
        log.info(("staged in %d files, %s in %s"):format(count.files, units.format_size(count.bytes),
            units.format_duration(count.seconds)))
    end
    return count
end

return inputs
