--- What `cp` and `sync` share: a tree copied with a line for each file, and the summary.

local errors = require "nc.errors"
local log    = require "nc.log"
local output = require "cli.output"
local shared = require "cli.stores"
local stores = require "nc.stores"
local sys    = require "nc.core.sys"
local trees  = require "nc.trees"
local units  = require "nc.units"

local transfers = {}

local PART_MIN <const> = 5 << 20 -- of every S3 server, but for the last part

--- The options that both take.
transfers.OPTIONS = {
    "dry_run", "endpoint", "exclude", "include", "limit_rate", "memory", "parallel", "part_size", "profile", "quiet",
    "region", "verify",
}

--- Refuses values that no server takes.
function transfers.check(p)
    if p.part_size and p.part_size < PART_MIN then
        error(errors.usage("part_size=%s: a part has at least 5 MiB", units.format_size(p.part_size)), 0)
    end
    shared.quiet(p)
end

-- As aws names it: by the two ends.
local function verb(from_kind, to_kind)
    if from_kind == to_kind then return "copy" end
    return from_kind == "folder" and "upload" or "download"
end

--- A function that prints what is done, or would be, to one file.
---@return fun(what: string, from: string, to: string?)
function transfers.printer(p)
    local columns = not log.is_json() and not p.quiet and sys.isatty(2)
    local prefix = p.dry_run and "(dryrun) " or ""
    return function(what, from, to)
        if p.quiet and not p.dry_run then return end
        if columns then io.stderr:write "\r\27[K" end -- the bar, which comes again
        output.line(prefix .. what .. ": " .. output.clean(from) .. (to and " to " .. output.clean(to) or ""))
        if columns then output.finish() end
    end
end

--- What one file's copy is called.
function transfers.verb(from_address, to_address)
    local function kind(address) return stores.parse(address).bucket and "bucket" or "folder" end
    return verb(kind(from_address), kind(to_address))
end

--- The last line.
function transfers.summarize(report, from, to)
    local parts = { ("copied %d files, %s from %s to %s in %s, %s, %d retries"):format(
        report.files, units.format_size(report.bytes), from, to, units.format_duration(report.seconds),
        units.format_rate(report.seconds > 0 and report.bytes / report.seconds or 0), report.retries) }
    local function add(count, text) if count > 0 then parts[#parts + 1] = text:format(count) end end
    add(report.verified, "%d checked against the manifest")
    add(report.kept or 0, "%d there already")
    add(report.removed or 0, "%d removed")
    add(#report.failed, "%d failed")
    log.info(table.concat(parts, "; "), log.is_json() and {
        files = report.files, bytes = report.bytes, seconds = report.seconds, retries = report.retries,
        verified = report.verified, kept = report.kept, removed = report.removed, failed = #report.failed,
    } or nil)
    if report.unverified then
        log.warn(("%s is marked complete by a tool that listed no digests: its files were taken by their size, "
            .. "not verified"):format(from))
    end
end

--- Copies a tree; options are those of nc.trees that the command decides.
function transfers.tree(p, from_address, to_address, options)
    local print_line = transfers.printer(p)
    local from <close> = stores.open(from_address, shared.reach(p))
    local to <close> = stores.open(to_address, shared.reach(p))
    local what = verb(from.kind, to.kind)
    local function copied(path) print_line(what, from:url(path), to:url(path)) end
    local function removed(path) print_line("delete", to:url(path)) end
    local report = trees.copy {
        from = from, to = to, label = options.label, overwrite = options.overwrite, delete = options.delete,
        wanted = shared.wanted(p.many), verify = p.verify,
        parallel = p.parallel, part_size = p.part_size, memory = p.memory, limit_rate = p.limit_rate,
        done = copied, removed = removed,
        planned = p.dry_run and function(action, path)
            if action == "copy" then copied(path) else removed(path) end
        end,
    }
    output.finish()
    if not p.dry_run then transfers.summarize(report, from.location, to.location) end
    shared.refuse_failed(report.failed, report.listed)
end

return transfers
