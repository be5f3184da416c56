--- Bringing one copy of the weights onto the NVMe, once: what is there and right stays, what is missing
--- moves, and nothing that the copy does not list is touched.

local disk     = require "nc.core.disk"
local errors   = require "nc.errors"
local log      = require "nc.log"
local plans    = require "nc.stage.plan"
local sys      = require "nc.core.sys"
local transfer = require "nc.transfer"
local units    = require "nc.units"

local pull = {}

---@class nc.place.Source
---@field name string     "volume", "bucket", "hub"
---@field files table[]   { path, size, sha256?, blob?, part_size?, parts?, version?, etag? }
---@field source table    of nc.transfer

-- Parts that differ from those the copy's marker lists; nil where they can't be compared.
local function wrong_part(done, wanted)
    if not wanted.parts or not done.parts or done.part_size ~= wanted.part_size then return nil end
    for i, digest in ipairs(wanted.parts) do
        if done.parts[i] ~= "" and done.parts[i] ~= digest then return i end
    end
end

local function damage(f, n)
    return errors.new {
        code = "DigestMismatch",
        message = ("%s: part %d is not what the copy's marker says"):format(f.path, n),
    }
end

-- Runs one transfer, keeping in `here` what has ended well. Returns its result, with the files in
-- `failed` whose parts are not those that were asked for.
local function run(o, here, files, options)
    local wanted, wrong = plans.by_path(files), {}
    options.files, options.memory, options.parallel = files, o.memory, o.parallel
    options.stall, options.heartbeat = o.stall, o.beat
    options.on_files = function(list)
        for _, f in ipairs(list) do
            local w = wanted[f.path]
            local n = not f.error and wrong_part(f, w)
            if n then
                wrong[#wrong + 1] = { path = f.path, error = damage(f, n) }
            elseif not f.error then
                here:add {
                    path = f.path, sha256 = f.sha256 or w.sha256, blob = w.blob,
                    part_size = w.parts and w.part_size or f.part_size, parts = w.parts or f.parts,
                }
            end
        end
        here:flush()
    end
    local result = transfer.run(options)
    table.move(wrong, 1, #wrong, #result.failed + 1, result.failed)
    return result
end

--- Reads files of the NVMe back. Those that are right are known from then on.
---@return table[] bad  the others
function pull.check(o, here, files)
    if #files == 0 then return {} end
    log.info(("reading back %d files (%s) on the NVMe"):format(#files, units.format_size(plans.total(files))))
    local wanted, bad = plans.by_path(files), {}
    local result = run(o, here, files, { label = "check", source = here.copy:source(), sink = { kind = "none" } })
    for _, f in ipairs(result.failed) do
        here:refuse(f.path)
        bad[#bad + 1] = wanted[f.path]
    end
    if #bad > 0 then
        log.warn(("%d files on the NVMe are not what they should be (%s%s)"):format(
            #bad, bad[1].path, #bad > 1 and ", ..." or ""))
    end
    return bad
end

-- Removes what dead placers have left half-written, but for what will be gone on with: a temporary file
-- with its journal beside it, of a file that is to be moved. Returns the bytes that these hold.
local function clear_temporaries(here, moving)
    local held, folder = 0, here.copy.folder .. "/"
    for _, left in ipairs(here.copy:uploads()) do
        local journal = folder .. left.temp:gsub("%.part$", ".parts")
        local there = disk.look(folder .. left.temp)
        if moving[left.path] and sys.stat(journal) then
            held = held + (there and there.allocated or 0)
        else
            disk.remove(folder .. left.temp)
            disk.remove(journal)
        end
    end
    for _, name in ipairs(sys.readdir(here.copy.folder)) do -- markers that were being written
        if name:find "^%.[%w.]+%.%d+%.part$" then disk.remove(folder .. name) end
    end
    return held
end

local function check_space(here, files, held)
    local space, need = here.copy:space(), plans.total(files)
    if space and need > space + held then
        error(errors.new {
            code = "ENOSPC",
            message = ("%s: %s are still to be written and %s are free: make room, or set nvme= to a larger disk")
                :format(here.copy.location, units.format_size(need), units.format_size(space + held)),
        }, 0)
    end
end

-- One reason for all that failed: that the copy is damaged, where it is nothing else.
local function refuse_failed(failed, source)
    if #failed == 0 then return end
    local first, damaged = failed[1].error, true
    for _, f in ipairs(failed) do damaged = damaged and errors.is(f.error, "DigestMismatch") end
    error(errors.new {
        code = damaged and "DamagedCopy" or "SomeFailed", retryable = not damaged,
        message = ("%d files could not be brought from the %s (%s%s): %s"):format(
            #failed, source.name, failed[1].path, #failed > 1 and ", ..." or "", tostring(first)),
    }, 0)
end

--- Brings all files of a source here, or raises the reason why not all of them are. Every file that is
--- there afterwards is whole.
---@param o { verify: boolean?, memory: integer?, parallel: integer?, stall: number?, beat: userdata? }
---@param here nc.place.Placed
---@param source nc.place.Source
---@return { moved: integer, kept: integer, bytes: integer, seconds: number, retries: integer }
function pull.run(o, here, source)
    local plan = here:plan(source.files)
    local move = plan.move
    for _, f in ipairs(pull.check(o, here, plan.check)) do move[#move + 1] = f end
    local report = { moved = #move, kept = #source.files - #move, bytes = 0, seconds = 0, retries = 0 }
    local held = clear_temporaries(here, plans.by_path(move))
    if #move == 0 then return report end
    check_space(here, move, held)
    here:unmark()
    here:flush(true)
    local result = run(o, here, move, { label = "place", source = source.source, sink = here.copy:sink() })
    report.bytes, report.seconds, report.retries = result.bytes, result.seconds, result.retries
    here:flush(true)
    refuse_failed(result.failed, source)
    return report
end

return pull
