--- Placing weights: a complete, checked copy of a model on this node's NVMe, before an engine loads it.
--
--     place.run {
--         model = { repository = "owner/name", revision = "main" }, nvme = copies.in_folder("/mnt/nvme", "name"),
--         volume = copies.on_volume("/mnt/shared", "name"), bucket = copies.in_bucket(bucket, "name"),
--     }
--
-- In this order: already here; from the volume; from the bucket; from the hub. Before the hub it waits for
-- whoever is staging the model. One placer works on a node at a time (nc.place.claim); what it has done
-- is kept (nc.place.placed), so that the next one goes on from there.

local afar   = require "nc.afar"
local claims = require "nc.place.claim"
local decide = require "nc.place.decide"
local errors = require "nc.errors"
local hub    = require "nc.hub"
local log    = require "nc.log"
local look   = require "nc.place.look"
local owners = require "nc.owner"
local placed = require "nc.place.placed"
local plans  = require "nc.stage.plan"
local pull   = require "nc.place.pull"
local sys    = require "nc.core.sys"
local task   = require "nc.task"
local units  = require "nc.units"

local place = {}

local OPTIONS <const> = {
    "bucket", "every", "job", "limit_rate", "memory", "model", "nvme", "parallel", "patience", "pause", "stale",
    "stall", "verify", "volume", "wait",
}
local TRIES <const> = 5
local SAY_EVERY_S <const> = 30

-- Reasons that the next try would meet again.
local function is_final(e)
    if not errors.is(e) then return true end
    local exit = errors.exit_code(e)
    return e.code == "Cancelled" or e.code == "BadPath" or e.code == "Busy" or exit == 2 or exit == 4 or exit == 5
end

-- ---- deciding ----

local function look_at_bucket(o)
    return look.at("bucket", o.bucket, o.model.repository, o.stale)
end

-- A volume that can't be read, or does not answer, is none: the weights are elsewhere, too. One that did not
-- answer once is not asked again.
local function look_at_volume(o)
    if o.unanswered then return o.unanswered end
    local ok, found = afar.within(o.patience, look.at, "volume", o.volume, o.model.repository, o.stale)
    if ok then return found end
    if found.code == "BadPath" then error(found, 0) end
    log.warn(("the volume at %s can't be read: %s"):format(o.volume.location, tostring(found)))
    local none = { name = "volume", note = tostring(found) }
    o.unanswered = found.code == "NoAnswer" and none or nil
    return none
end

local LOOKS <const> = { { "volume", look_at_volume }, { "bucket", look_at_bucket } }

-- The places that count, up to the first with a complete copy: the others need not be looked at.
local function look_around(o, damaged)
    local looks = {}
    for _, l in ipairs(LOOKS) do
        local name, look_at = l[1], l[2]
        if o[name] and damaged[name] then
            looks[#looks + 1] = { name = name, note = "some of its bytes are wrong" }
        elseif o[name] then
            looks[#looks + 1] = look_at(o)
            if looks[#looks].complete then break end
        end
    end
    return looks
end

local function busy(o, say)
    return errors.new {
        code = "Busy",
        message = ("%s; gave up after %s: stop that job, or allow a longer wait="):format(
            say, units.format_duration(o.wait)),
    }
end

-- The next step, once nobody is staging any more.
local function next_step(o, damaged)
    local first, said = {}, nil
    while true do
        local looks = look_around(o, damaged)
        for _, l in ipairs(looks) do first[l.name] = first[l.name] or l.staging end
        local step = decide.step(looks, first)
        if step.take ~= "wait" then
            log.info(step.say)
            return step
        end
        local now = sys.now()
        if now >= o.deadline then error(busy(o, step.say), 0) end
        if not said or now - said >= SAY_EVERY_S then
            log.info(step.say)
            said = now
        end
        task.sleep(math.min(o.every, math.max(0.05, o.deadline - now)))
    end
end

-- The commit that is here already, where part of it is and the hub still has it; else the revision's.
local function pin(o, here)
    local remote = hub.open()
    if here.commit then
        local ok, model = pcall(remote.pin, remote, o.model.repository, here.commit)
        if ok then return model end
        if not errors.is(model, "RevisionNotFound") then error(model, 0) end
    end
    return remote:pin(o.model.repository, o.model.revision)
end

local function from_hub(o, here)
    local model = pin(o, here)
    log.info(("taking %s at %s from the hub"):format(model.repository, model.commit:sub(1, 8)))
    local files = model:files()
    if #files == 0 then
        error(errors.new { code = "NotFound", message = model.repository .. ": the hub lists no files" }, 0)
    end
    placed.check_paths(files)
    return {
        name = "hub", files = files, source = model:source(), commit = model.commit,
        marker = function() return here:manifest_of(model, files) end,
    }
end

local function source_of(o, here, step)
    if step.take == "hub" then return from_hub(o, here) end
    local c = step.look.complete
    return {
        name = step.take, files = c.files, source = o[step.take]:source(), commit = c.commit,
        marker = function() return c.marker end,
    }
end

-- ---- working ----

-- Two repositories of one name would lie over each other.
local function check_repository(o, here)
    local other = here.manifest and here.manifest.repository
    if other and other ~= o.model.repository then
        error(errors.usage("%s holds %s, not %s: give this one another folder with name=, or remove that one",
            o.nvme.location, other, o.model.repository), 0)
    end
end

-- What is here is read back where that is needed to know it; true when all of it is right.
local function check_here(o, here)
    local files = here:files()
    if not files then return false end
    local plan = here:plan(files)
    local bad = pull.check(o, here, plan.check)
    here:flush(true)
    return #plan.move == 0 and #bad == 0
end

local function give_up(o, e)
    return errors.new {
        code = e.code, status = e.status,
        message = ("%s is not on the NVMe after %d tries: %s; what is there is kept, and the next start goes on "
            .. "from it"):format(o.model.repository, TRIES, tostring(e)),
    }
end

-- Up to five tries, each decided anew.
local function bring(o, here)
    local damaged = {}
    for try = 1, TRIES do
        local source = source_of(o, here, next_step(o, damaged))
        local ok, result = pcall(pull.run, o, here, source)
        if ok then return result, source end
        if is_final(result) or (result.code == "DamagedCopy" and source.name == "hub") then error(result, 0) end
        if try == TRIES then error(give_up(o, result), 0) end
        damaged[source.name] = result.code == "DamagedCopy" or nil
        log.warn(("try %d of %d: %s"):format(try, TRIES, tostring(result)))
        task.sleep(o.pause * 2 ^ (try - 1))
    end
end

local function report_of(files, r)
    r.files, r.total = #files, plans.total(files)
    return r
end

local function already(here)
    return report_of(here:files(), { from = "nvme", moved = 0, bytes = 0, seconds = 0, retries = 0 })
end

--- The folder of a copy that is marked and lacks no file, for an engine to load; else an error.
---@param nvme nc.FolderCopy
---@return string
function place.require(nvme)
    local here = placed.open(nvme)
    local files = here:files()
    if files and #here:plan(files).move == 0 then return nvme.folder end
    error(errors.new {
        code = "NotFound",
        message = nvme.location .. (files and " lacks files of the copy it is marked as" or " holds no complete copy")
            .. ": run phase=place first",
    }, 0)
end

--- Returns when a complete copy is on the NVMe, or raises the reason why none is.
---
--- nvme: the copy on the NVMe (nc.copy, in a folder). volume, bucket: where copies may be, or nil. model:
--- { repository, revision }: whose copy counts, and what to take from the hub. job: our name for others
--- who come. wait: seconds for others at work, stages and placers. stale: seconds after which the
--- heartbeat of a stage is that of a dead one (600). patience: seconds that the volume has for its answer
--- (30). every: seconds between looks (5). pause: seconds after the first try that failed, twice as long
--- after each (1). verify: read back whatever is here.
--- memory, parallel, stall, limit_rate: of the transfer.
---@return { from: string, files: integer, total: integer, moved: integer, bytes: integer,
---  seconds: number, retries: integer }  from: "nvme" (nothing had to move), "volume", "bucket", "hub"
function place.run(options)
    local o = {}
    for name, value in pairs(errors.check_options(options, OPTIONS)) do o[name] = value end
    o.every, o.stale, o.pause, o.wait = o.every or 5, o.stale or 600, o.pause or 1, o.wait or 6 * 3600
    o.patience = o.patience or 30
    o.deadline = sys.now() + o.wait
    local here = placed.open(o.nvme)
    local function is_done()
        here:load()
        check_repository(o, here)
        return here:is_complete()
    end
    if not o.verify and is_done() then return already(here) end
    local claim <close> = claims.take {
        copy = o.nvme, owner = owners.here(o.job or "serve"), repository = o.model.repository,
        deadline = o.deadline, is_done = o.verify and function() return false end or is_done,
    }
    if not claim then return already(here) end
    o.beat = claim.beat
    is_done() -- as the placer before us has left it
    if o.verify then here:doubt() end
    here.commit = here.manifest and here.manifest.commit
    if check_here(o, here) then return already(here) end
    local result, source = bring(o, here)
    here:mark(source.files, source.marker())
    result.from = result.moved > 0 and source.name or "nvme"
    return report_of(source.files, result)
end

return place
