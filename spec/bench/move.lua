--- One transfer by the engine alone, without markers or manifests: for what `ncrun cp` does not do.
--
--   ncrun spec/bench/move.lua from=hub:owner/name to=s3://bucket/prefix/
--   ncrun spec/bench/move.lua from=hub:owner/name to=folder
--   ncrun spec/bench/move.lua from=hub:owner/name to=none                  only reads

local errors   = require "nc.errors"
local hub      = require "nc.hub"
local recipe   = require "nc.recipe"
local s3       = require "nc.s3"
local sys      = require "nc.core.sys"
local transfer = require "nc.transfer"

-- Files below a folder, as { path, size }.
local function files_below(root, under, list)
    for _, name in ipairs(sys.readdir(root .. "/" .. under)) do
        local path = under .. name
        local stat = sys.stat(root .. "/" .. path)
        if stat.type == "directory" then
            files_below(root, path .. "/", list)
        else
            list[#list + 1] = { path = path, size = stat.size }
        end
    end
    return list
end

local function bucket_and_prefix(address)
    local name, prefix = address:match "^s3://([^/]+)/(.*)$"
    return name and s3.bucket(name), prefix
end

-- Where files come from, and which: { source }, { path, size, sha256? }[].
local function open_source(address)
    local repository = address:match "^hub:(.+)$"
    if repository then
        local model = hub.open():pin(repository, "main")
        return model:source(), model:files()
    end
    local bucket, prefix = bucket_and_prefix(address)
    if not bucket then return { kind = "dir", root = address }, files_below(address, "", {}) end
    local list = {}
    for object in bucket:list(prefix) do
        list[#list + 1] = { path = object.key:sub(#prefix + 1), size = object.size }
    end
    return { kind = "s3", client = bucket.client, prefix = prefix }, list
end

local function open_sink(address)
    if address == "none" then return { kind = "none" } end
    local bucket, prefix = bucket_and_prefix(address)
    return bucket and { kind = "s3", client = bucket.client, prefix = prefix } or { kind = "dir", root = address }
end

return recipe {
    summary = "Move files from one place to another.",
    params = {
        from      = { nil, "hub:owner/name, s3://bucket/prefix/ or a folder", required = true },
        to        = { nil, "s3://bucket/prefix/, a folder, or none: only read", required = true },
        parallel  = { 0, "parts in flight; 0: the engine's own choice" },
        part_size = { "0", "bytes of a part; 0: the engine's own choice", type = "size" },
        memory    = { "0", "most memory for parts in flight; 0: the engine's own choice", type = "size" },
    },

    run = function(p)
        local source, files = open_source(p.from)
        local function given(value) return value > 0 and value or nil end
        local done = transfer.run {
            source = source, sink = open_sink(p.to), files = files, label = "move",
            parallel = given(p.parallel), part_size = given(p.part_size), memory = given(p.memory),
        }
        if #done.failed > 0 then
            error(errors.new { code = "SomeFailed", message = ("%d files failed"):format(#done.failed) }, 0)
        end
    end,
}
