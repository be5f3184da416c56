local helper = require "spec.helper"

local UP <const>, DOWN <const> = "spec/rigs/slurm-up", "spec/rigs/slurm-down"

local function is_gone(pid)
    local status = helper.read(("/proc/%s/status"):format(pid))
    return not status or status:find "State:%s+[ZX]" ~= nil
end

describe("the Slurm rig", function()
    local slurm

    setup(function() slurm = helper.slurm() end)
    teardown(function() slurm:__close() end)

    it("says the same when it is up already", function()
        local code, out = helper.run { UP, slurm.dir }
        assert.equal(0, code)
        assert.equal(("export SLURM_CONF='%s/slurm.conf'\n"):format(slurm.dir), out)
    end)

    it("runs a job and keeps its exit code", function()
        local job = slurm:ended(slurm:submit "#!/bin/sh\necho hello from $SLURM_JOB_ID\nexit 3\n")
        assert.equal("FAILED", job.JobState)
        assert.equal("3:0", job.ExitCode)
        assert.equal(("hello from %s\n"):format(job.JobId), helper.read(job.StdOut))
    end)

    it("runs an array", function()
        local id = slurm:submit("#!/bin/sh\nexit $SLURM_ARRAY_TASK_ID\n", { args = { "--array=0-7" } })
        slurm:ended(id)
        for task = 0, 7 do
            assert.equal(task .. ":0", slurm:job(id .. "_" .. task).ExitCode)
        end
    end)

    it("requeues what is preempted where that is asked for", function()
        local low = slurm:submit("#!/bin/sh\n[ -n \"$SLURM_RESTART_COUNT\" ] || exec sleep 600\n",
            { args = { "--partition=requeue", "--cpus-per-task=4" } })
        helper.eventually(20, "the first job", function() return slurm:job(low).JobState == "RUNNING" end)
        slurm:submit("#!/bin/sh\nexit 0\n", { args = { "--partition=high" } })
        helper.eventually(60, "its requeue", function() return slurm:job(low).Restarts == "1" end)
        slurm:run { "scancel", low }
    end)

    it("ends its daemons and the jobs that still run, and starts again where it was", function()
        local id = slurm:submit("#!/bin/sh\nsetsid sleep 600 &\necho $! $$\nexec sleep 600\n",
            { args = { "--export=NONE" } })
        local out = slurm:job(id).StdOut
        local pids = helper.eventually(20, "the job's pids", function()
            return (helper.read(out) or ""):match "%d+ %d+\n"
        end)
        for line in helper.read(slurm.dir .. "/pids"):gmatch "[^\n]+" do pids = pids .. line:match "%d+" .. " " end
        assert.equal(0, (helper.run { DOWN, slurm.dir }))
        assert.equal(0, (helper.run { DOWN, slurm.dir }))
        local count = 0
        for pid in pids:gmatch "%d+" do
            assert.is_true(is_gone(pid), pid)
            count = count + 1
        end
        assert.equal(5, count)
        assert.is_nil(helper.read(slurm.dir .. "/env"))
        assert.equal(0, (helper.run { UP, slurm.dir }))
    end)

    it("says so when one of its daemons is gone", function()
        helper.sh("kill -KILL " .. helper.read(slurm.dir .. "/pids"):match "munged (%d+)")
        local code, _, err = helper.run { UP, slurm.dir }
        assert.equal(3, code)
        assert.truthy(err:find("2 of 3 daemons", 1, true), err)
    end)

    it("stops what it started when a daemon refuses to start", function()
        local other = helper.tmp()
        local code, _, err = helper.run { UP, other, "conf=NoSuchOption=1" }
        assert.equal(1, code)
        assert.truthy(err:find("slurmctld ended while waiting", 1, true), err)
        assert.truthy(err:find("what was started has been stopped", 1, true), err)
        assert.equal("", helper.read(other .. "/pids"))
    end)
end)
