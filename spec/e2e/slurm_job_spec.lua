-- run-job as people give it to sbatch, on a real Slurm: however the job ends, its result and its last
-- checkpoint are in the bucket.
local helper = require "spec.helper"
local jobs = require "spec.jobs"
local staging = require "spec.staging"

-- Ready, then a checkpoint and a partial result on TERM or USR1, as a training does that is told to stop.
local PATIENT <const> = [[
    save() { echo whole >"$NC_CHECKPOINTS/.step"; mv "$NC_CHECKPOINTS/.step" "$NC_CHECKPOINTS/last.pt"; exit 143; }
    trap save TERM USR1
    echo partial >"$NC_OUTPUT/result.txt"; echo ready
    while :; do sleep 0.1; done
]]

describe("a job under Slurm", function()
    local server, slurm, env

    setup(function()
        server = helper.server { memory = "yes" }
        slurm = helper.slurm { kill_wait = 20, grace = 20 }
        env = jobs.env(server)
    end)
    teardown(function()
        slurm:__close()
        server:__close()
    end)

    -- The whole batch script of the recipe's first lines.
    local function submit(name, script, args, options)
        local path = helper.tmp() .. "/application"
        helper.write(path, script)
        local words = { "--job-name=" .. name }
        table.move(args or {}, 1, #(args or {}), 2, words)
        return slurm:submit(("#!/bin/sh\nexec %s %s volume=/none logs=/none settle=300ms grace=18s %s -- sh %s\n")
            :format(helper.NCRUN, "recipes/run-job.lua", options or "", path), { env = env, args = words })
    end

    local function ready(id)
        local out = slurm:job(id).StdOut
        helper.eventually(60, "the start of job " .. id, function() return (helper.read(out) or ""):find "ready" end)
        return out
    end

    local function result(name)
        return staging.object(env, ("alice/%s/result.txt"):format(name))
    end

    local function last_checkpoint(name)
        local list = jobs.checkpoints(env, ("alice/%s/checkpoints/"):format(name))
        return list[#list] and list[#list].files["last.pt"]
    end

    it("succeeds, and its result is up", function()
        local job = slurm:ended(submit("good", 'echo done >"$NC_OUTPUT/result.txt"'))
        assert.equal("COMPLETED", job.JobState, helper.read(job.StdOut))
        assert.equal("0:0", job.ExitCode)
        assert.equal("done\n", result "good")
        assert.equal("", jobs.left(env))
    end)

    it("keeps the exit code of an application that fails, and its partial result is up", function()
        local job = slurm:ended(submit("bad", 'echo some >"$NC_OUTPUT/result.txt"; exit 42'))
        assert.equal("FAILED", job.JobState)
        assert.equal("42:0", job.ExitCode)
        assert.equal("some\n", result "bad")
    end)

    for _, case in ipairs {
        { "is cancelled", "scancel", function(id) slurm:run { "scancel", id } end },
        { "reaches its time limit", "limit", function(id)
            slurm:run { "scontrol", "update", "JobId=" .. id, "EndTime=now" }
        end },
        { "is warned of it by USR1", "usr1", function() end, { "--time=1", "--signal=B:USR1@58" } },
        { "is preempted with a grace time", "preempted", function()
            slurm:submit("#!/bin/sh\nexit 0\n", { args = { "--partition=high", "--cpus-per-task=4" } })
        end, { "--partition=cancel", "--cpus-per-task=4" } },
    } do
        it("that " .. case[1] .. " has its result and last checkpoint in the bucket", function()
            local id = submit(case[2], PATIENT, case[4])
            local out = ready(id)
            case[3](id)
            slurm:ended(id, 90)
            helper.eventually(30, "the end of ncrun", function()
                return (helper.read(out) or ""):find("the log is in the bucket", 1, true)
            end)
            assert.equal("partial\n", result(case[2]), helper.read(out))
            assert.equal("whole\n", last_checkpoint(case[2]), helper.read(out))
        end)
    end

    it("goes on from its last checkpoint when it is queued again", function()
        local id = submit("again", [[
            echo "restart [${SLURM_RESTART_COUNT:-}] from [$(basename "$NC_RESUME")]" >"$NC_OUTPUT/result.txt"
            [ -n "$SLURM_RESTART_COUNT" ] && exit 0
        ]] .. PATIENT:gsub("echo partial [^;]*; ", ""), { "--requeue" }, "resume=latest")
        ready(id)
        slurm:run { "scontrol", "requeue", id }
        -- Slurm lets a job wait that was queued again; it need not.
        helper.eventually(60, "its second place in the queue", function()
            return slurm:job(id).Restarts == "1" and slurm:job(id).JobState == "PENDING"
        end)
        slurm:run { "scontrol", "update", "JobId=" .. id, "StartTime=now" }
        local job = slurm:ended(id, 200)
        assert.equal("0:0", job.ExitCode, helper.read(job.StdOut))
        assert.equal("restart [1] from [last.pt]\n", result "again")
    end)

    it("of eight in an array leaves the others alone", function()
        local id = submit("array", [[
            echo "$SLURM_ARRAY_TASK_ID" >"$NC_OUTPUT/result.txt"; echo "$SLURM_ARRAY_TASK_ID" >"$NC_CHECKPOINTS/last.pt"
        ]], { "--array=0-7" })
        slurm:ended(id, 120)
        for task = 0, 7 do
            assert.equal(task .. "\n", result("array/" .. task))
            assert.equal(task .. "\n", last_checkpoint("array/" .. task))
            assert.truthy(staging.object(env, ("logs/array/%s_%d.log"):format(id, task)))
        end
        assert.equal("", jobs.left(env))
    end)
end)
