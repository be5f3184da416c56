local helper = require "spec.helper"

local UP <const>, DOWN <const> = "spec/rigs/ceph-up", "spec/rigs/ceph-down"
local SLURM_UP <const>, SLURM_DOWN <const> = "spec/rigs/slurm-up", "spec/rigs/slurm-down"

local function up(dir, port, ...)
    return helper.run({ UP, dir, port or "0", ... }, { timeout = 90 })
end

local function down(dir)
    return helper.run({ DOWN, dir }, { timeout = 90 })
end

local function port_of(exports)
    return exports:match "AWS_ENDPOINT_URL='http://127.0.0.1:(%d+)'"
end

local function is_gone(pid)
    local status = helper.read(("/proc/%s/status"):format(pid))
    return not status or status:find "State:%s+[ZX]" ~= nil
end

describe("the Ceph rig", function()
    local dir = helper.tmp()

    teardown(function()
        down(dir)
    end)

    it("starts, and says how to reach it", function()
        local code, out, err = up(dir)
        assert.are.equal(0, code, err)
        assert.is_truthy(port_of(out))
        assert.is_truthy(out:find "export NC_BUCKET='ncbucket'")
    end)

    it("says the same when it is up already", function()
        local code, out = up(dir)
        assert.are.equal(0, code)
        assert.are.equal(helper.read(dir .. "/env"), out)
    end)

    it("refuses a port that is taken, and leaves nothing behind", function()
        local other = helper.tmp()
        local code, out, err = up(other, port_of(helper.read(dir .. "/env")))
        assert.are.equal(4, code)
        assert.are.equal("", out)
        assert.is_truthy(err:find "in use")
        assert.is_nil(helper.read(other .. "/pids"))
    end)

    it("says so when one of its daemons is gone", function()
        local gateway = helper.read(dir .. "/pids"):match "rgw (%d+)"
        helper.sh("kill -KILL " .. gateway)
        local code, _, err = up(dir)
        assert.are.equal(3, code)
        assert.is_truthy(err:find "2 of 3 daemons")
    end)

    it("ends all that it started and stays down", function()
        local pids = {}
        for pid in helper.read(dir .. "/pids"):gmatch "%w+ (%d+)" do pids[#pids + 1] = pid end
        assert.are.equal(0, (down(dir)))
        assert.are.equal(0, (down(dir)))
        for _, pid in ipairs(pids) do
            assert.is_true(is_gone(pid), pid)
        end
        assert.is_nil(helper.read(dir .. "/env"))
    end)

    it("starts again where it was, with https", function()
        local code, out, err = up(dir, "0", "tls_port=0", "store=bluestore")
        assert.are.equal(0, code, err)
        local curl = "curl -sS -f --cacert \"$NC_TLS_CA\" \"$NC_TLS_ENDPOINT_URL\""
        assert.are.equal(0, (helper.sh("eval \"$EXPORTS\"; " .. curl, { EXPORTS = out })))
    end)

    it("adds a CephFS, and takes its mount point away with the rest", function()
        local mount = helper.tmp()
        local code, _, err = helper.run({ "spec/rigs/cephfs-up", dir, mount }, { timeout = 90 })
        assert.are.equal(0, code, err)
        assert.are.equal(0, (helper.sh(("grep -q ' %s .* fuse.ceph-fuse ' /proc/self/mountinfo"):format(mount))))
        helper.write(mount .. "/sub/file", "text")
        assert.are.equal("text", helper.read(mount .. "/sub/file"))
        assert.are.equal(0, (down(dir)))
        assert.are.equal(1, (helper.sh(("grep -q ' %s ' /proc/self/mountinfo"):format(mount))))
    end)

    it("refuses a CephFS where no rig is up", function()
        local code = helper.run { "spec/rigs/cephfs-up", helper.tmp(), helper.tmp() }
        assert.are.equal(3, code)
    end)

    it("stops what it started when the time is over", function()
        local other = helper.tmp()
        local code, _, err = up(other, "0", "timeout=0")
        assert.are.equal(1, code)
        assert.is_truthy(err:find "what was started has been stopped")
        assert.are.equal("", helper.read(other .. "/pids"))
    end)

    it("leaves a folder alone that is not its own", function()
        local other = helper.tmp()
        helper.write(other .. "/thesis.txt", "years of work")
        assert.are.equal(3, (up(other)))
        assert.are.equal(3, (down(other)))
        assert.are.equal("years of work", helper.read(other .. "/thesis.txt"))
    end)
end)

describe("the Slurm rig", function()
    local slurm

    setup(function() slurm = helper.slurm() end)
    teardown(function() slurm:__close() end)

    it("says the same when it is up already", function()
        local code, out = helper.run { SLURM_UP, slurm.dir }
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
        assert.equal(0, (helper.run { SLURM_DOWN, slurm.dir }))
        assert.equal(0, (helper.run { SLURM_DOWN, slurm.dir }))
        local count = 0
        for pid in pids:gmatch "%d+" do
            assert.is_true(is_gone(pid), pid)
            count = count + 1
        end
        assert.equal(5, count)
        assert.is_nil(helper.read(slurm.dir .. "/env"))
        assert.equal(0, (helper.run { SLURM_UP, slurm.dir }))
    end)

    it("says so when one of its daemons is gone", function()
        helper.sh("kill -KILL " .. helper.read(slurm.dir .. "/pids"):match "munged (%d+)")
        local code, _, err = helper.run { SLURM_UP, slurm.dir }
        assert.equal(3, code)
        assert.truthy(err:find("2 of 3 daemons", 1, true), err)
    end)

    it("stops what it started when a daemon refuses to start", function()
        local other = helper.tmp()
        local code, _, err = helper.run { SLURM_UP, other, "conf=NoSuchOption=1" }
        assert.equal(1, code)
        assert.truthy(err:find "slurmctld did not start" or err:find "slurmctld ended while waiting", err)
        assert.truthy(err:find("what was started has been stopped", 1, true), err)
        assert.equal("", helper.read(other .. "/pids"))
    end)
end)
