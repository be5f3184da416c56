--- Runs a command and gets what it makes off the node: checkpoints as they appear, results at the end
--- and before, its log all the time; all of it before the process exits, whatever ends it.
--
--     local out <close> = outgoing.keep {
--         log = log, results = results, scratch = work,
--         checkpoints = { folder = "/scratch/checkpoints", to = store, whose = "alice/train", keep = 3 },
--     }
--     local path = out:resume()                        -- the newest checkpoint, staged in, or nil
--     return out:run(command, { grace = "28s" })
--
-- It is proc.supervise's output, so it hears what the command hears. A TERM gives the command half of the
-- grace (60 s of it are ours at most); while it stops, what it still writes goes up, and then what is left,
-- the most precious first: the newest checkpoint, the results, older checkpoints. After a command that has
-- done its work the results come first. USR1 (a batch system's early warning) sends all there is at once.
-- A failure is tried again while there is time, and never changes the fate of the command; but of one that
-- has succeeded, results that are nowhere are a failure.

local errors  = require "nc.errors"
local log     = require "nc.log"
local proc    = require "nc.proc"
local shelves = require "nc.checkpoints.shelf"
local sys     = require "nc.core.sys"
local task    = require "nc.task"
local units   = require "nc.units"
local watch   = require "nc.checkpoints.watch"

local outgoing = {}

local OPTIONS <const> = { "checkpoints", "every", "log", "results", "scratch" }
local CHECKPOINTS <const> = { "complete", "folder", "keep", "settle", "to", "whose" }
local LOOK_S <const> = 0.25       -- between two looks at the checkpoints
local LOOK_FAST_S <const> = 0.05  -- ... while the command stops
local AGAIN_S <const> = 10        -- after a failure, while the command runs
local AGAIN_LAST_S <const> = 1    -- ... and after it
local PATIENCE_S <const> = 600    -- for the last upload, where nobody has set a time
local SHARE_MAX_S <const> = 60    -- of the grace
local LOG_S <const> = 2           -- of our share, for the end of the log
local MARGIN_S <const> = 0.5

---@class nc.Outgoing
local Outgoing = {}
Outgoing.__index = Outgoing

-- ---- one upload ----

local function say_failure(self, what, e)
    local text = ("%s can't be uploaded: %s"):format(what, tostring(e))
    if self.said == text then return end
    self.said = text
    log.warn(text .. "; it is tried again")
end

-- Stores it. Where it is another by now, that is why it failed, whatever was said.
local function store(c, entry)
    local function is_same() return c.watch:is_same(entry) end
    local ok, e = pcall(c.shelf.put, c.shelf, c.folder, entry, is_same)
    if ok then return end
    if errors.is(e, "Cancelled") or is_same() then error(e, 0) end
    error(errors.new { code = "Changed", message = ("%s changed while it was read"):format(entry.name) }, 0)
end

-- Sends the newest of the whole checkpoints, which are listed the oldest first, and takes it from the list.
-- Each has a number from when it was first seen here: it may well go up after newer ones.
local function put_newest(self, list)
    local c = self.checkpoints
    for _, entry in ipairs(list) do
        self.numbers[entry.signature] = self.numbers[entry.signature] or c.shelf:next_number()
        entry.number = self.numbers[entry.signature]
    end
    table.sort(list, function(a, b) return a.number < b.number end)
    local entry = list[#list]
    if c.shelf:is_wanted(entry.number, c.keep) then
        store(c, entry)
        c.shelf:prune(c.keep)
    end
    c.watch:done(entry)
    list[#list] = nil
end

-- fn() in a task that others can cancel. True, or false and why.
local function attempt(self, what, fn, ...)
    local t <close> = task.spawn(fn, ...)
    self.upload, self.uploading = t, what
    local ok, e = pcall(t.wait, t)
    self.upload, self.uploading = nil, nil
    if not ok and not t.results then error(e, 0) end -- it is us who are cancelled
    return ok, e
end

-- ---- while the command runs ----

-- What a command that has died had open is closed now: nothing that is seen then may count.
local function look(self)
    while self.child and not self.child:has_ended() do
        self.whole = self.checkpoints.watch:look()
        task.sleep(self.deadline and LOOK_FAST_S or LOOK_S)
    end
end

local function try_checkpoint(self)
    local list = self.whole or {}
    if #list == 0 or sys.now() < self.checkpoint_at then return false end
    local ok, e = attempt(self, "a checkpoint", put_newest, self, list)
    self.whole = nil
    if not ok and not errors.is(e, "Changed") then
        say_failure(self, "a checkpoint", e)
        self.checkpoint_at = sys.now() + AGAIN_S
    end
    return true
end

local function try_results(self)
    if not self.results or sys.now() < self.results_at then return false end
    self.results_at = sys.now() + (self.every > 0 and self.every or math.huge)
    local ok, e = attempt(self, "results", self.results.publish, self.results, true)
    if not ok and not errors.is(e, "Cancelled") then say_failure(self, "the results", e) end
    return true
end

local function work(self)
    while not self.over do
        if not try_checkpoint(self) and not try_results(self) then
            task.sleep(self.deadline and LOOK_FAST_S or LOOK_S)
        end
    end
end

-- ---- after its end ----

-- The next second changes nothing: the keys or the name are wrong, there is no room.
local function is_hopeless(e)
    local code = errors.exit_code(e)
    return not errors.is(e) or (code >= 2 and code <= 5)
end

-- fn() until it is done. Raises why it was not.
local function insist(self, what, fn, ...)
    local begun = sys.now()
    while true do
        local ok, e = pcall(fn, ...)
        if ok then return end
        if errors.is(e, "Cancelled") or is_hopeless(e)
            or sys.now() + AGAIN_LAST_S > (self.deadline or begun + PATIENCE_S) then
            error(e, 0)
        end
        say_failure(self, what, e)
        task.sleep(AGAIN_LAST_S)
    end
end

-- The newest checkpoints: `most` of them, where that many are whole and not up.
local function last_checkpoints(self, most)
    if not self.checkpoints then return end
    local list = self.checkpoints.watch:look(self.over)
    for _ = 1, math.min(most, #list) do insist(self, "a checkpoint", put_newest, self, list) end
end

local function last_results(self)
    if self.results then insist(self, "the results", self.results.publish, self.results) end
end

local function note(self, what, ok, e)
    if ok then return end
    if errors.is(e, "Cancelled") then error(e, 0) end
    self.failures[#self.failures + 1] = { what = what, error = e }
end

local function last(self)
    self.worker:wait()
    local precious = { "the newest checkpoint", "the results" }
    if self.over.done then precious = { "the results", "the newest checkpoint" } end
    for _, what in ipairs(precious) do
        self.at = what
        if what == "the results" then
            note(self, what, pcall(last_results, self))
        else
            note(self, what, pcall(last_checkpoints, self, 1))
        end
    end
    self.at = "older checkpoints"
    if self.checkpoints then note(self, self.at, pcall(last_checkpoints, self, self.checkpoints.keep)) end
end

local function watch_deadline(self, t)
    while not self.deadline or sys.now() < self.deadline do task.sleep(LOOK_FAST_S) end
    if self.upload then self.upload:cancel() end
    t:cancel()
end

-- Waits for the last uploads. Who cancels us now wants it within the grace.
local function wait_for_last(self)
    local t <close> = task.spawn(last, self)
    local _ <close> = task.spawn(watch_deadline, self, t)
    local ok, e = pcall(t.wait, t)
    if not ok and not t.results then
        self.deadline = math.min(self.deadline or math.huge, sys.now() + self.grace - LOG_S - MARGIN_S)
        ok, e = pcall(t.wait, t)
    end
    if not ok then
        local why = errors.is(e, "Cancelled") and errors.new {
            code = "Timeout", message = "there was no more time",
        } or e
        self.failures[#self.failures + 1] = { what = self.at or "an upload", error = why }
    end
end

local function report(self)
    for _, failure in ipairs(self.failures) do
        log.error(("not uploaded: %s: %s"):format(failure.what, tostring(failure.error)))
    end
    local c = self.checkpoints
    local torn = c and #self.failures == 0 and c.watch:rest() or {}
    if #torn > 0 then
        log.warn(("not uploaded, since they may be half written: %s"):format(table.concat(torn, ", ")))
    end
    if #self.failures > 0 and self.scratch then
        self.scratch.keep = true
        log.warn("what was not uploaded is still in " .. self.scratch.path)
    end
end

-- Ended by itself, or as one that was told to and did so by exiting.
local function has_ended_in_order(self, result)
    return result.code == 0 or (self.warned and result.code ~= nil and result.code > 128)
end

local function finish(self, result)
    self.over = { done = result.code == 0, in_order = has_ended_in_order(self, result) }
    if self.uploading == "results" then self.upload:cancel() end -- they are complete only now
    wait_for_last(self)
    report(self)
    if result.code ~= 0 then return result end
    for _, failure in ipairs(self.failures) do
        if failure.what == "the results" then return errors.exit_code(failure.error) end
    end
    return result
end

-- ---- as proc.supervise's output ----

function Outgoing:sinks()
    return self.log:sinks()
end

--- Seconds of the grace that are for the last uploads.
function Outgoing:share(grace)
    return math.max(self.log:share(grace), math.min(SHARE_MAX_S, grace / 2))
end

--- The command was told to stop.
function Outgoing:hurry(deadline)
    self.log:hurry(deadline)
    self.deadline = deadline - LOG_S - MARGIN_S
    self:nudge()
end

--- A warning: what there is goes up now.
function Outgoing:nudge()
    self.log:nudge()
    self.warned = true
    self.checkpoint_at, self.results_at = 0, 0
end

function Outgoing:say(line)
    self.log:say(line)
end

-- ---- ----

local function open_checkpoints(options)
    local o = errors.check_options(options, CHECKPOINTS)
    sys.mkdir(o.folder)
    return {
        folder = o.folder, keep = o.keep, shelf = shelves.open(o.to, o.whose),
        watch = watch.new { folder = o.folder, settle = o.settle, complete = o.complete },
    }
end

--- Opens it; nothing is sent before run.
--- checkpoints: what is in `folder` goes to the store `to` (nc.stores), the newest `keep` of them; settle,
--- complete: as of nc.checkpoints.watch; whose: user and job, for their manifests.
--- every: how often results go up while the command runs; 0 (the default): not before it is told to stop.
--- scratch: is kept when something in it could not be sent.
---@param options { log: nc.Log, results: nc.Results?, every: string|number?, scratch: nc.Scratch?,
---  checkpoints: { folder: string, to: table, whose: string, keep: integer, settle: number, complete: string? }? }
---@return nc.Outgoing  `<close>` ends what it has under way
function outgoing.keep(options)
    local o = errors.check_options(options, OPTIONS)
    return setmetatable({
        log = o.log, results = o.results, scratch = o.scratch,
        checkpoints = o.checkpoints and open_checkpoints(o.checkpoints),
        every = units.duration(o.every or 0, 2), checkpoint_at = 0, failures = {}, numbers = {},
    }, Outgoing)
end

--- Stages the newest whole checkpoint in, to go on from.
---@return string? path  nil where there is none, or nowhere to look
function Outgoing:resume()
    local c = self.checkpoints
    if not c then return nil end
    local name, number = c.shelf:fetch_newest(c.folder)
    if not name then
        log.info(("no checkpoint in %s yet: starting from the beginning"):format(c.shelf.location))
        return nil
    end
    log.info(("going on from checkpoint %s%s/%s"):format(c.shelf.location, number, name))
    return c.folder .. "/" .. name
end

--- Runs the command to its end, and returns how that was once all is up: as proc.supervise's wait, or,
--- of a command that has succeeded and whose results are not up, an exit code.
---@param command string[]
---@param options { grace: string|number, env: table?, cwd: string? }
---@return table|integer
function Outgoing:run(command, options)
    local o = errors.check_options(options, { "cwd", "env", "grace" })
    self.grace = units.duration(o.grace, 2)
    if self.checkpoints then self.checkpoints.watch:skip_all() end -- what is there now is not new
    self.results_at = self.every > 0 and sys.now() + self.every or math.huge
    self.worker = task.spawn(work, self)
    local result
    do
        -- Closed before the last uploads: then signals come to us again.
        local child <close> = proc.supervise(command, {
            output = self, grace = self.grace, env = o.env, cwd = o.cwd,
        })
        self.child = child
        self.looker = self.checkpoints and task.spawn(look, self)
        result = child:wait()
        self.child = nil
    end
    return finish(self, result)
end

function Outgoing:__close()
    self.over = self.over or {}
    for _, name in ipairs { "worker", "looker" } do
        local _ <close> = self[name]
    end
end

return outgoing
