-- A real CephFS that two nodes have mounted, with jobs on both at the same time.
local helper = require "spec.helper"
local json   = require "dkjson"

local WRITERS <const> = 8

-- Prints how many threads of a process are in a call on a file below a folder: /proc/PID/task/*/syscall
-- has the call's number and its arguments, the first of which is the descriptor.
local BUSY <const> = [[
count=0
for file in /proc/$1/task/*/syscall; do
    read -r _ fd _ <"$file" 2>/dev/null || continue
    case $fd in 0x*) ;; *) continue ;; esac
    case $(readlink "/proc/$1/fd/$((fd))" 2>/dev/null) in "$2"/*) count=$((count + 1)) ;; esac
done
echo $count
]]

local function run(argv, opts)
    local code, out, err = helper.run(argv, helper.env({ timeout = 120 }, opts or {}))
    if code ~= 0 then error(("%s: %s%s"):format(table.concat(argv, " "), out, err), 2) end
    return out, err
end

describe("a CephFS", function()
    local rig, data = helper.tmp(), helper.tmp()
    local mounts = { helper.tmp(), helper.tmp() }

    local function mount_of(i) return mounts[i % 2 + 1] end

    -- Runs argv_of(i) for each writer at the same time, and waits for all of them.
    local function together(argv_of, meanwhile)
        local jobs = {}
        for i = 1, WRITERS do jobs[i] = helper.start(argv_of(i)) end
        local _ <close> = setmetatable({}, { __close = function()
            for _, job in ipairs(jobs) do job:__close() end
        end })
        while meanwhile and jobs[WRITERS]:running() do meanwhile() end
        for _, job in ipairs(jobs) do
            local code, out, err = job:wait(120)
            assert.equal(0, code, out .. err)
        end
    end

    setup(function()
        run { "spec/rigs/ceph-up", rig, "0" }
        for _, mount in ipairs(mounts) do run { "spec/rigs/cephfs-up", rig, mount } end
        -- As a stage leaves it: large shards, and many small files in folders.
        run { "sh", "-ec", [[cd "$0"; mkdir images
            for i in 1 2 3 4; do head -c 8388608 /dev/urandom >shard-$i.bin; done
            for i in $(seq 30); do head -c 40000 /dev/urandom >images/$i.png; done
            seq 30 >labels.csv]], data }
        local server <close> = helper.server()
        run({ helper.NCRUN, "cp", "-r", data, "s3://ncdev/data" }, { env = server.env })
        run({ helper.NCRUN, "cp", "-r", "s3://ncdev/data", mounts[1] .. "/data" }, { env = server.env })
    end)

    teardown(function()
        helper.run({ "spec/rigs/ceph-down", rig }, { timeout = 60 })
    end)

    it("is read in parallel: with its disk held up, as many reads as were asked for wait for it", function()
        local scratch = helper.tmp()
        local osd = helper.read(rig .. "/pids"):match "osd (%d+)"
        -- The metadata server needs the disk too: what it is asked for this node has to know beforehand.
        run { "sync", "-f", mounts[1] }
        run { "sh", "-c", 'find "$0" -type f -exec head -c 1 {} +', mounts[2] .. "/data" }
        helper.sh("kill -STOP " .. osd)
        local job <close> = helper.start { helper.NCRUN, "cp", "-r", "parallel=4", mounts[2] .. "/data", scratch }
        local _ <close> = setmetatable({}, { __close = function() helper.sh("kill -CONT " .. osd) end })
        helper.eventually(30, "four reads at once", function()
            local _, count = helper.run { "sh", "-c", BUSY, "sh", tostring(job.pid), mounts[2] }
            return tonumber(count) >= 4
        end)
        helper.sh("kill -CONT " .. osd)
        assert.equal(0, (job:wait(60)))
        run { "diff", "-r", data, scratch }
    end)

    it("gives a staged dataset to eight processes at once", function()
        local scratch = helper.tmp()
        together(function(i)
            return { helper.NCRUN, "cp", "-r", mount_of(i) .. "/data", ("%s/%d"):format(scratch, i) }
        end)
        for i = 1, WRITERS do
            run { "diff", "-r", data, ("%s/%d"):format(scratch, i) }
        end
    end)

    it("takes results from eight processes at once, and shows all of them to each node", function()
        together(function(i)
            return { helper.NCRUN, "cp", "-r", data, ("%s/results/%d"):format(mount_of(i), i) }
        end)
        for i = 1, WRITERS do
            run { "diff", "-r", data, ("%s/results/%d"):format(mount_of(i + 1), i) }
        end
        local unfinished = run { "find", mounts[1], "-name", "*.part", "-o", "-name", "*.parts" }
        assert.equal("", unfinished)
    end)

    -- Of one node: with writers on two, ceph-fuse 16.2 now and then never answers a write to a file that
    -- has just been made.
    it("holds one whole file while eight processes write it at once", function()
        local sources, size = helper.tmp(), 6 << 20
        for i = 1, WRITERS do helper.write(("%s/%d"):format(sources, i), tostring(i):rep(size)) end
        local seen, torn = 0, {}
        together(function(i)
            return { helper.NCRUN, "cp", ("%s/%d"):format(sources, i), mounts[1] .. "/result" }
        end, function()
            local text = helper.read(mounts[1] .. "/result")
            if text then
                if text ~= text:sub(1, 1):rep(size) then torn[#torn + 1] = #text end
                seen = seen + 1
            end
        end)
        assert.same({}, torn)
        assert.is_true(seen > 0)
        local last = helper.read(mounts[2] .. "/result")
        assert.is_true(last == last:sub(1, 1):rep(size))
        assert.equal("result\n", (run { "sh", "-c", 'cd "$0"; ls | grep result | grep -v results', mounts[2] }))
    end)

    it("is what `ncrun check` calls it, and files can be made on it", function()
        local code, out = helper.ncrun { "check", "only=volume", "json=yes", "volume=" .. mounts[1] }
        local found = json.decode(out).checks[1]
        assert.equal(0, code, out)
        assert.truthy(found.detail:find("^CephFS %(fuse%.ceph%-fuse%) at "), found.detail)
    end)

    it("is given up by `ncrun check` when its metadata server hangs", function()
        local mds = helper.read(rig .. "/pids"):match "mds (%d+)"
        helper.sh("kill -STOP " .. mds)
        local started = os.time()
        local ok, code, out = pcall(helper.ncrun,
            { "check", "only=volume", "json=yes", "patience=1s", "volume=" .. mounts[1] }, { timeout = 30 })
        helper.sh("kill -CONT " .. mds)
        assert.is_true(ok, code)
        assert.equal(1, code)
        assert.equal("Timeout", json.decode(out).checks[1].code)
        assert.is_true(os.time() - started < 20)
    end)
end)
