--- ncrun rm [-r] OBJECT...

local command = require "cli.command"
local errors  = require "nc.errors"
local log     = require "nc.log"
local output  = require "cli.output"
local shared  = require "cli.stores"
local s3      = require "nc.s3"
local stores  = require "nc.stores"

local params, flags = shared.options {
    "dry_run", "endpoint", "exclude", "include", "profile", "quiet", "recursive", "region",
}
local BATCH <const> = 1000

local function not_found(bucket, key, why)
    error(errors.new { code = "NotFound", message = ("%s: %s"):format(bucket:url(key), why) }, 0)
end

local function tell(p, bucket, key)
    if p.quiet and not p.dry_run then return end
    output.line((p.dry_run and "(dryrun) " or "") .. "delete: " .. output.clean(bucket:url(key)))
end

local rm

local function remove_one(p, bucket, key)
    if key == "" then rm:misuse(bucket:url "" .. " is all of a bucket: add -r") end
    if not bucket:head(key) then
        local below = key:sub(-1) == "/" and key or key .. "/"
        if bucket:list(below)() then rm:misuse(bucket:url(below) .. " has more below it: add -r") end
        not_found(bucket, key, "there is no such object")
    end
    if not p.dry_run then bucket:delete(key) end
    tell(p, bucket, key)
end

local function remove_batch(p, bucket, keys, failed)
    local lost = {}
    for _, f in ipairs(p.dry_run and {} or bucket:delete_all(keys)) do
        lost[f.key] = true
        failed[#failed + 1] = { path = f.key }
        log.error(("delete %s: %s"):format(bucket:url(f.key), f.message or f.code))
    end
    for _, key in ipairs(keys) do
        if not lost[key] then tell(p, bucket, key) end
    end
end

local function remove_below(p, bucket, key)
    local prefix = (key == "" or key:sub(-1) == "/") and key or key .. "/"
    local wanted = shared.wanted(p.many)
    local keys, found, failed = {}, 0, {}
    for object in bucket:list(prefix) do
        if not wanted or wanted(object.key:sub(#prefix + 1)) then
            keys[#keys + 1], found = object.key, found + 1
            if #keys == BATCH then
                remove_batch(p, bucket, keys, failed)
                keys = {}
            end
        end
    end
    if found == 0 then not_found(bucket, prefix, "there is nothing to delete") end
    remove_batch(p, bucket, keys, failed)
    shared.refuse_failed(failed, found)
end

rm = command {
    name = "rm",
    operands = "[-r] s3://bucket/key ...",
    summary = "Delete objects.",
    text = [[
Deletes objects; with -r all that is below a prefix, a thousand in a request. dry_run=yes shows them
first. Ends with 3 where there is nothing to delete, with 6 where some could not be.

  ncrun rm s3://bucket/logs/old.log
  ncrun rm -r s3://bucket/scratch/ --exclude "*.json" --dryrun]],
    params = params,
    flags = flags,
    many = { "exclude", "include" },
    run = function(p, operands)
        if #operands == 0 then rm:misuse "wants an object" end
        shared.quiet(p)
        for _, address in ipairs(operands) do
            local a = stores.parse(address)
            if not a.bucket then rm:misuse(address .. " is on this machine: rm(1) removes that") end
            local bucket <close> = s3.bucket(a.bucket, shared.reach(p))
            if p.recursive then remove_below(p, bucket, a.key) else remove_one(p, bucket, a.key) end
        end
        output.finish()
        return 0
    end,
}

return rm
