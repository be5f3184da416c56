--- Who this job is, by what Kubernetes or Slurm says of it in the environment. Pure, but for os.getenv
--- and the host's name.
--
--     local me = batch.here { job = "train" }
--     print(me.user, me.job, me.task, me.run)   -- alice  train  3  812_3

local errors = require "nc.errors"
local sys    = require "nc.core.sys"

local batch = {}

-- A word that can be one part of a path and of a key.
local function check(what, word)
    if word:find "[/%c]" or word:find "^%.+$" then
        error(errors.usage('"%s" can\'t be %s: it is part of a path', (word:gsub("%c", "?")), what), 0)
    end
    return word
end

local function first(getenv, ...)
    for _, name in ipairs { ... } do
        local value = getenv(name)
        if value and value ~= "" then return value end
    end
end

--- job: the job's name; user: whose it is, nil where nothing says so; task: which of an array or of an
--- indexed Job this one is, nil where it is no such; run: a name that no other run of the job has at the
--- same time, and that stays the same when it is queued again.
---@param given { job: string?, user: string?, env: (fun(name: string): string?)? }?  what comes before
---  the environment
---@return { job: string, user: string?, task: string?, run: string }
function batch.here(given)
    local o = errors.check_options(given, { "env", "job", "user" })
    local getenv = o.env or os.getenv
    local slurm = first(getenv, "SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID")
    local task = first(getenv, "SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")
    local user = o.user or first(getenv, "NRP_USER", "SLURM_JOB_USER", "USER", "LOGNAME")
    return {
        job = check("a job's name", o.job or first(getenv, "JOB_NAME", "SLURM_JOB_NAME") or "run-job"),
        user = user and check("a user's name", user),
        task = task and check("a task's number", task),
        run = check("a run's name", first(getenv, "POD_NAME")
            or slurm and slurm .. (task and "_" .. task or "") or sys.hostname()),
    }
end

return batch
