--- What the commands about places share: their options, flags and patterns.

local errors = require "nc.errors"
local log    = require "nc.log"
local text   = require "nc.core.text"

local shared = {}

-- name -> declaration as of a recipe's parameters
local PARAMS <const> = {
    dry_run    = { false, "only say what would be done" },
    endpoint   = { nil, "the S3 server's address; else as the AWS CLI finds it" },
    exclude    = { nil, "leave out what matches (* ? []); the last pattern that matches decides" },
    human      = { false, "sizes for people" },
    include    = { nil, "take what matches in again" },
    limit_rate = { nil, "bytes a second, at most", type = "size" },
    memory     = { nil, "for parts in flight; else by what the machine allows", type = "size" },
    parallel   = { nil, "parts in flight; else by the machine", type = "count" },
    part_size  = { nil, "of large files; else by their size", type = "size" },
    profile    = { nil, "of ~/.aws/config" },
    quiet      = { false, "print errors and warnings alone" },
    recursive  = { false, "all that is below" },
    region     = { nil, "the bucket's region" },
    summarize  = { false, "count objects and bytes at the end" },
    verify     = { true, "check against the digests of a .complete manifest" },
}

local FLAGS <const> = {
    dry_run   = { ["--dryrun"] = "dry_run=yes", ["--dry-run"] = "dry_run=yes", ["-n"] = "dry_run=yes" },
    endpoint  = { ["--endpoint-url"] = "endpoint", ["--endpoint"] = "endpoint" },
    exclude   = { ["--exclude"] = "exclude" },
    human     = { ["--human-readable"] = "human=yes" },
    include   = { ["--include"] = "include" },
    profile   = { ["--profile"] = "profile" },
    quiet     = { ["--quiet"] = "quiet=yes", ["-q"] = "quiet=yes", ["--only-show-errors"] = "quiet=yes",
                  ["--no-progress"] = "quiet=yes" },
    recursive = { ["--recursive"] = "recursive=yes", ["-r"] = "recursive=yes", ["-R"] = "recursive=yes" },
    region    = { ["--region"] = "region" },
    summarize = { ["--summarize"] = "summarize=yes" },
}

--- The declarations of these options, and the flags that stand for them.
---@param names string[]
---@return table params, table flags
function shared.options(names)
    local params, flags = {}, {}
    for _, name in ipairs(names) do
        params[name] = PARAMS[name]
        for flag, meaning in pairs(FLAGS[name] or {}) do flags[flag] = meaning end
    end
    return params, flags
end

--- The part of p that says how a bucket is reached.
function shared.reach(p)
    return { endpoint = p.endpoint, profile = p.profile, region = p.region }
end

--- Makes log and progress as quiet as p wants them.
function shared.quiet(p)
    log.quiet(p.quiet)
end

--- A function that says whether a path is wanted by exclude= and include= in their order, the last one
--- that matches deciding; nil where there are none. `*` crosses "/".
---@param patterns { name: string, value: string }[]
---@return (fun(path: string): boolean)?
function shared.wanted(patterns)
    if #patterns == 0 then return nil end
    return function(path)
        local wanted = true
        for _, p in ipairs(patterns) do
            if text.glob(p.value, path) then wanted = p.name == "include" end
        end
        return wanted
    end
end

--- Raises the reasons why some files failed, after they have all been told: one file's own, or that
--- there were several.
---@param failed { path: string, error: any }[]
---@param listed integer   files in all
function shared.refuse_failed(failed, listed)
    if #failed == 0 then return end
    local names = {}
    for i = 1, math.min(3, #failed) do names[i] = failed[i].path:gsub("%c", "?") end
    error(errors.new {
        code = "SomeFailed",
        message = ("%d of %d files failed (%s%s); the reasons are above"):format(
            #failed, math.max(listed, #failed), table.concat(names, ", "), #failed > 3 and ", ..." or ""),
    }, 0)
end

return shared
