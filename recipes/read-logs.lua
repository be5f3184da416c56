--- Read a training's log from the bucket, or from the shared volume: while it runs, or after its node
--- is gone.
--
--   ncrun recipes/read-logs.lua job=nanogpt               the newest log below logs/nanogpt/
--   ncrun recipes/read-logs.lua key=logs/nanogpt/pod.log  this one
--   ncrun recipes/read-logs.lua job=nanogpt follow=yes    and what comes, until Ctrl-C
--   ncrun recipes/read-logs.lua job=nanogpt tail=100      its last 100 lines (and follow=yes from there)
--   ncrun recipes/read-logs.lua list=yes                  which logs there are
--
-- The log goes to stdout byte for byte. Where there is none yet the exit code is 3. Logs come into the
-- bucket once a minute, so that is how old the last line may be; those on the volume are as they are
-- written.

local cluster = require "manifests.cluster"
local errors  = require "nc.errors"
local k8s     = require "nc.k8s"
local log     = require "nc.log"
local reader  = require "nc.logs.read"
local recipe  = require "nc.recipe"
local s3      = require "nc.s3"
local task    = require "nc.task"
local units   = require "nc.units"
local volume  = require "nc.volume"

local function open_bucket(p)
    if p.bucket == "" then
        error(errors.usage "from=bucket needs the bucket's name: set NC_BUCKET or bucket=", 0)
    end
    return s3.bucket(p.bucket, { endpoint = p.endpoint ~= "" and p.endpoint or nil })
end

local function not_found(message, ...)
    return errors.new { code = "NotFound", message = message:format(...) }
end

local function print_list(entries, out)
    local lines = { ("%-24s %-48s %10s %10s\n"):format("JOB", "POD", "SIZE", "AGE") }
    for _, e in ipairs(entries) do
        lines[#lines + 1] = ("%-24s %-48s %10s %10s\n"):format(
            e.job, e.pod, units.format_size(e.size), units.format_duration(e.age))
    end
    out.write(log.clean(table.concat(lines)))
    out.flush()
end

local function find_log(p, store, prefix)
    if p.key ~= "" then
        local found = store:look(p.key)
        if not found then error(not_found("there is no log %s (yet)", store:url(p.key)), 0) end
        return p.key
    end
    local newest = reader.newest(store, prefix)
    if not newest then error(not_found("there is no log below %s (yet)", store:url(prefix)), 0) end
    return newest.key
end

-- What comes after `at`, for ever. A log that is shorter than what was read of it belongs to another
-- attempt, and is read from its beginning.
local function follow(p, store, key, at, out)
    local version, said
    while true do
        task.sleep(p.every)
        local ok, found = pcall(store.look, store, key)
        if not ok then
            if not errors.is(found) or not found.retryable then error(found, 0) end
            if not said then log.warn("still trying: " .. tostring(found)) end
            said = true
        elseif found and found.version ~= version then
            if found.size < at then
                log.info "the log has begun anew"
                at = 0
            end
            at = reader.copy(store, key, at, out) or at
            version, said = found.version, nil
        end
    end
end

local function print_log(p, store, prefix, out)
    local key = find_log(p, store, prefix)
    local from = 0
    if p.tail > 0 then
        local found = store:look(key)
        from = found and reader.tail_offset(store, key, found.size, p.tail) or 0
    end
    local at = reader.copy(store, key, from, out) or from
    if p.follow then follow(p, store, key, at, out) end
end

return recipe {
    summary = "Print a training's log: the newest of a job, or one of your choice.",
    params = {
        job      = { "", "whose newest log; by default the newest of all", env = "JOB" },
        key      = { "", "this log: its whole key", env = "KEY" },
        from     = { "bucket", "where it lies", choices = { "bucket", "volume" } },
        follow   = { false, "go on with what comes" },
        every    = { "5s", "how often to look whether there is more", type = "duration" },
        tail     = { 0, "only so many lines from the end; 0: all" },
        list     = { false, "print which logs there are: job, pod, size and age" },
        bucket   = { "", "the bucket's name", env = "NC_BUCKET" },
        endpoint = { "", "the S3 endpoint, where AWS_ENDPOINT_URL does not say it" },
        volume   = { "/mnt/shared", "where the shared volume is mounted", type = "path" },
    },

    run = function(p)
        local bucket <close> = p.from == "bucket" and open_bucket(p) or nil
        local store = bucket and reader.in_bucket(bucket) or reader.in_folder(volume.require(p.volume))
        local prefix = p.job == "" and "logs/" or ("logs/%s/"):format(p.job)
        local out = reader.output()
        local ok, e = pcall(function()
            if p.list then return print_list(reader.list(store, prefix), out) end
            print_log(p, store, prefix, out)
        end)
        if not ok and not errors.is(e, "EPIPE") then error(e, 0) end -- `| head` has seen enough
    end,

    -- JOB and KEY are in its env block, to be changed there. It is gone two minutes after it has ended, so
    -- that the same file can be applied again.
    manifest = function(p, this)
        return k8s.job(this, {
            k8s.cpu_worker(), p.from == "bucket" and k8s.bucket_secret() or k8s.shared_volume { read_only = true },
            image = cluster.images.client, env = { JOB = p.job, KEY = p.key },
            requests = { cpu = "100m", memory = "128Mi" }, limits = { memory = "1Gi" },
            keep = "120s", reclaimed = false,
        })
    end,
}
