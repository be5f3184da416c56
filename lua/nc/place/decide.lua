--- Where the weights come from: the volume, else the bucket, else, when nobody is staging them, the hub.
--- Pure: what was seen goes in, a step and the sentence that explains it come out.

local units = require "nc.units"

local decide = {}

-- "one of 2026-11-28, 527.0 GiB, commit 1a2b3c4d"
local function describe(c)
    return ("%s, %s, %s%s"):format(c.date, units.format_size(c.bytes),
        c.commit and "commit " .. c.commit:sub(1, 8) or "marked by another tool",
        c.chosen and " (the files that were chosen, not all of the repository)" or "")
end

--- Seconds that a stage still needs, or nil where that can't be told. The rate is that between two of
--- its heartbeats, else that since it began.
---@param s table       the staging of a nc.place.Look
---@param first table?  the same at an earlier look
---@return number?
function decide.seconds_left(s, first)
    local bytes, seconds = s.bytes_done, s.started and s.at - s.started or 0
    if first and s.at > first.at and s.bytes_done > first.bytes_done then
        bytes, seconds = s.bytes_done - first.bytes_done, s.at - first.at
    end
    if bytes <= 0 or seconds <= 0 or s.bytes_total <= 0 then return nil end
    return math.max(0, s.bytes_total - s.bytes_done) * seconds / bytes
end

local function describe_stage(look, first)
    local s = look.staging
    local left = decide.seconds_left(s, first)
    return ("%s stages one into the %s: %s of %s, %s"):format(s.who, look.name, units.format_size(s.bytes_done),
        units.format_size(s.bytes_total), left and ("about %s left"):format(units.format_duration(left))
        or ("heartbeat %s old"):format(units.format_duration(s.age)))
end

local function none(looks)
    if #looks == 0 then return "there is no shared volume and no bucket" end
    local clauses = {}
    for i, look in ipairs(looks) do
        local note = look.note and (" (%s)"):format(look.note) or ""
        clauses[i] = ("the %s holds no complete copy%s"):format(look.name, note)
    end
    return table.concat(clauses, "; ")
end

--- The next step: take = the name of a look, "wait" or "hub".
---@param looks nc.place.Look[]  in the order in which they count
---@param first table?           name -> staging at the first look, for the time left
---@return { take: string, say: string, look: nc.place.Look? }
function decide.step(looks, first)
    for i, look in ipairs(looks) do
        if look.complete then
            local before = table.move(looks, 1, i - 1, 1, {})
            local say = i == 1 and ("the %s holds a complete copy of %s"):format(look.name, describe(look.complete))
                or ("%s; the %s holds one of %s"):format(none(before), look.name, describe(look.complete))
            return { take = look.name, say = say, look = look }
        end
    end
    for _, look in ipairs(looks) do
        if look.staging then
            return {
                take = "wait", look = look,
                say = ("%s; %s; waiting for it, so that nothing is downloaded twice"):format(
                    none(looks), describe_stage(look, first and first[look.name])),
            }
        end
    end
    return { take = "hub", say = none(looks) .. ", so it comes from the hub" }
end

return decide
