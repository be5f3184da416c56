--- A command's output: on our stdout, in a file, on the shared volume and in the bucket.
--
--     local log   <close> = logs.keep { job = "train", bucket = "my-bucket", every = "60s" }
--     local train <close> = proc.supervise(command, { output = log, grace = "30s" })
--     return train:wait()
--
-- Bytes go everywhere as they come, each place behind a buffer of its own (runtime/run/sink.h). The
-- bucket's object logs/<job>/<pod>.log is made from the file: every so often, at once when the command
-- is told to stop, and once more when it is closed. Nothing here fails the run or holds the command up;
-- what goes wrong is said once.

local errors  = require "nc.errors"
local log     = require "nc.log"
local run     = require "nc.core.run"
local s3      = require "nc.s3"
local ships   = require "nc.logs.ship"
local sys     = require "nc.core.sys"
local task    = require "nc.task"
local units   = require "nc.units"
local volumes = require "nc.volume"

local logs = {}

local OPTIONS <const> = { "bucket", "endpoint", "every", "folder", "job", "pod", "volume" }
local SHARE_MAX_S <const> = 15   -- of the grace, for the last upload
local SETTLE_S <const> = 3       -- for an upload under way when a newer one is wanted at once
local LAST_S <const> = 10        -- for the last upload, where nobody has set a time
local LAST_DEAD_S <const> = 3    -- the same, where the one before has failed or there is no server
local NO_SERVER <const> = { ConnectFailed = true, DnsFailed = true }
local SLOWEST <const> = 2 << 20  -- bytes a second that an upload may count on
local MARGIN_S <const> = 0.5     -- before the grace is over

---@class nc.Log
---@field places string[]   where it is kept, for people
local Log = {}
Log.__index = Log

--- The key and, below the volume, the path of a pod's log.
---@return string
function logs.key(job, pod)
    for _, word in ipairs { job, pod } do
        if word == "" or word:find "[/%c]" or word:find "^%.+$" then
            error(errors.usage('"%s" can\'t be part of a log\'s name', word), 0)
        end
    end
    return ("logs/%s/%s.log"):format(job, pod)
end

--- This pod's name.
---@return string
function logs.pod()
    local pod = os.getenv "POD_NAME"
    return pod and pod ~= "" and pod or sys.hostname()
end

-- ---- uploading ----

local function say_failure(self, e)
    local reason = errors.is(e) and e.code or tostring(e)
    if self.said[reason] then return end
    self.said[reason] = true
    log.warn(("the log can't be uploaded: %s; the run goes on, and it is tried again every %s"):format(
        tostring(e), units.format_duration(self.every)))
end

-- fn() in a task that self[name] holds, for others to cancel. Returns whether it worked, or its error;
-- that we are cancelled ourselves is raised.
local function interruptible(self, name, fn)
    local t <close> = task.spawn(fn)
    self[name] = t
    local ok, e = pcall(t.wait, t)
    self[name] = nil
    if not ok and not t.results then error(e, 0) end
    return ok, e
end

-- One upload; true when the object is what the file is.
local function try(self)
    local ok, e = interruptible(self, "upload", function() self.ship:upload() end)
    if ok then
        if self.failure then log.info("the log is in the bucket again") end
        self.failure = nil
        return true
    end
    self.failure = e
    self.ship:forget()
    return false
end

local function seconds_for_last(self)
    local behind = self.ship:behind() / SLOWEST + self.ship:size() / (32 * SLOWEST)
    return (self.failure and LAST_DEAD_S or LAST_S) + behind
end

-- Cancels the upload under way when its time is over; self.deadline may come nearer meanwhile.
local function watch_deadline(self)
    while sys.now() < self.deadline do task.sleep "50ms" end
    while true do
        if self.upload then self.upload:cancel() end
        task.sleep "50ms"
    end
end

-- The keys or the name are wrong: the next second changes nothing.
local function is_hopeless(e)
    local code = errors.exit_code(e)
    return code == 3 or code == 4 or not errors.is(e)
end

local function try_last(self)
    local begun = sys.now()
    self.deadline = self.deadline or begun + seconds_for_last(self)
    local _ <close> = task.spawn(watch_deadline, self)
    while not try(self) do
        local until_s = self.deadline
        if NO_SERVER[errors.is(self.failure) and self.failure.code] then
            until_s = math.min(until_s, begun + LAST_DEAD_S)
        end
        if is_hopeless(self.failure) or sys.now() + 1 >= until_s then break end
        task.sleep "1s"
    end
    if not self.failure then
        log.info(("the log is in the bucket: %s, %s sent"):format(
            units.format_size(self.ship:size()), units.format_size(self.ship.sent)))
    else
        local why = errors.is(self.failure, "Cancelled") and "there was no more time" or tostring(self.failure)
        log.error(("the end of the log, %s, is not in the bucket: %s"):format(
            units.format_size(self.ship:behind()), why))
    end
end

local function pause(self, seconds)
    if self.ending or self.poked then return end
    interruptible(self, "sleeper", function() task.sleep(seconds) end)
end

-- Uploads until it is ending, then for the last time.
local function work(self)
    while not self.ending do
        pause(self, self.every)
        if self.ending then break end
        self.poked = false
        if not try(self) and not errors.is(self.failure, "Cancelled") then say_failure(self, self.failure) end
    end
    try_last(self)
end

-- An upload is wanted now. One that has begun before gets a little time to end.
local function poke(self)
    self.poked = true
    if self.sleeper then self.sleeper:cancel() end
    local upload = self.upload
    if not upload then return end
    task.spawn(function()
        task.sleep(SETTLE_S)
        upload:cancel()
    end)
end

-- ---- places ----

-- Where the bucket's log is made from: a folder that is there (a volume of the pod, which outlives a
-- restart of its container), else a temporary one.
local function open_file(self, folder, key)
    local st = sys.stat(folder)
    local name = key:match "^logs/(.*)$"
    if st and st.type == "directory" then
        local path = folder:gsub("/+$", "") .. "/" .. name
        local ok, e = pcall(sys.mkdir, path:match "^(.*)/")
        local file <close>, why = io.open(path, "ab")
        if file then return path end
        log.warn(("no log file in %s: %s; using a temporary one"):format(folder, ok and why or tostring(e)))
    end
    local ok, temp = pcall(sys.mkdtemp)
    if ok then
        self.temporary = temp
        return temp .. "/log"
    end
    log.warn("no place for a log file: " .. tostring(temp))
end

local function open_volume(self, root, key)
    if not volumes.is_mounted(root) then return end
    local path = root:gsub("/+$", "") .. "/" .. key
    self.volume = run.sink(path)
    self.places[#self.places + 1] = path
end

local function open_bucket(self, o, key)
    local path = open_file(self, o.folder or "/logs", key)
    if not path then return end
    self.file = run.sink(path)
    self.ship = ships.new {
        path = path, key = key,
        open = function() return s3.bucket(o.bucket, { endpoint = o.endpoint, attempts = 1 }) end,
    }
    self.places[#self.places + 1] = ("s3://%s/%s every %s"):format(o.bucket, key, units.format_duration(self.every))
end

--- Opens the places there are: the bucket, where a name is given, and the volume, where one is mounted.
---@param options { job: string, pod: string?, bucket: string?, endpoint: string?, volume: string?,
---  folder: string?, every: string|number? }  folder: for the log file, where there is such a folder
---  ("/logs"); volume: "/mnt/shared"
---@return nc.Log  `<close>` uploads what is left
function logs.keep(options)
    local o = errors.check_options(options, OPTIONS)
    local key = logs.key(o.job, o.pod or logs.pod())
    local volume = o.volume or "/mnt/shared"
    local self = setmetatable({
        every = units.duration(o.every or "60s", 2), places = {}, said = {},
        stdout = run.sink(1), stderr = run.sink(2),
    }, Log)
    -- A stderr that nobody reads must not hold us up either.
    log.to(function(line) self.stderr:put(line .. "\n", 1) end)
    if o.bucket and o.bucket ~= "" then open_bucket(self, o, key) end
    open_volume(self, volume, key)
    if #self.places == 0 then
        log.info(("no bucket (NC_BUCKET) and no shared volume at %s: nothing of this run's log is kept"):format(volume))
    else
        log.info("keeping the log in " .. table.concat(self.places, " and "))
    end
    if self.ship then self.worker = task.spawn(work, self) end
    return self
end

-- ---- as proc.supervise's output ----

--- Where the command's output goes.
function Log:sinks()
    local list = {}
    for _, name in ipairs { "file", "volume", "stdout" } do list[#list + 1] = self[name] end
    return list
end

--- Seconds of the grace that are for the last upload.
function Log:share(grace)
    return self.ship and math.min(SHARE_MAX_S, grace / 3) or 0
end

--- The command was told to stop: uploads at once, and has until `deadline` for everything.
function Log:hurry(deadline)
    self.deadline = deadline - MARGIN_S
    if self.worker then poke(self) end
end

--- A batch system has warned of the end: uploads at once.
function Log:nudge()
    if self.worker then poke(self) end
end

--- A line of ours in the log, where the command has none to say.
function Log:say(line)
    for _, sink in ipairs(self:sinks()) do
        if sink ~= self.stdout then sink:feed("ncrun: " .. log.clean(line) .. "\n") end
    end
end

-- Waits for the last upload. Someone who cancels us now wants it short.
local function finish_worker(self)
    self.ending = true
    poke(self)
    local ok, e = pcall(self.worker.wait, self.worker)
    if ok then return end
    if self.worker.results then error(e, 0) end
    self.deadline = math.min(self.deadline or math.huge, sys.now() + 1)
    self.worker:wait()
end

local function report_sink(what, sink)
    local state = sink and sink:state()
    if not state or (state.lost == 0 and not state.error) then return end
    log.warn(("%s: %s of the output are missing%s"):format(what, units.format_size(state.lost),
        state.error and " (" .. state.error .. ")" or ""))
end

function Log:__close()
    for _, name in ipairs { "file", "volume" } do
        if self[name] then self[name]:flush(1) end
    end
    report_sink("the log file", self.file)
    report_sink("the log on the volume", self.volume)
    report_sink("stdout", self.stdout)
    if self.worker then
        local _ <close> = self.ship
        finish_worker(self)
    end
    if self.temporary then
        os.remove(self.temporary .. "/log")
        os.remove(self.temporary)
    end
    self.stderr:flush(1)
    log.to(nil)
end

return logs
