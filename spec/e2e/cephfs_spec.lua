-- A real CephFS that two nodes have mounted, with jobs on both at the same time.
local helper = require "spec.helper"
local json   = require "dkjson"

local WRITERS <const> = 8

local function run(argv, opts)
    local code, out, err = helper.run(argv, helper.env({ timeout = 120 }, opts or {}))
    if code ~= 0 then error(("%s: %s%s"):format(table.concat(argv, " "), out, err), 2) end
    return out, err
end

describe("a CephFS", function()
    local rig, data = helper.tmp(), helper.tmp()
    local mounts = { helper.tmp(), helper.tmp() }

    local function mount_of(i) return mounts[i % 2 + 1] end

    -- Runs argv_of(i) for each writer at the same time, waits for all of them, and returns what they said.
    local function together(argv_of, meanwhile)
        local jobs, said = {}, {}
        for i = 1, WRITERS do jobs[i] = helper.start(argv_of(i)) end
        local _ <close> = setmetatable({}, { __close = function()
            for _, job in ipairs(jobs) do job:__close() end
        end })
        while meanwhile and jobs[WRITERS]:running() do meanwhile() end
        for i, job in ipairs(jobs) do
            local code, out, err = job:wait(120)
            assert.equal(0, code, out .. err)
            said[i] = err
        end
        return said
    end

    setup(function()
        run { "spec/rigs/ceph-up", rig, "0" }
        for _, mount in ipairs(mounts) do run { "spec/rigs/cephfs-up", rig, mount } end
        -- As a stage leaves it: large shards, and many small files in folders.
        run { "sh", "-ec", [[cd "$0"; mkdir images
            for i in 1 2 3; do head -c 12582912 /dev/urandom >shard-$i.bin; done
            for i in $(seq 30); do head -c 40000 /dev/urandom >images/$i.png; done
            seq 30 >labels.csv]], data }
        local server <close> = helper.server()
        run({ helper.NCRUN, "cp", "-r", data, "s3://ncdev/data" }, { env = server.env })
        run({ helper.NCRUN, "cp", "-r", "s3://ncdev/data", mounts[1] .. "/data" }, { env = server.env })
    end)

    teardown(function()
        helper.run({ "spec/rigs/ceph-down", rig }, { timeout = 60 })
    end)

    it("gives a staged dataset to eight processes at once, each with many parts in flight", function()
        local scratch = helper.tmp()
        local said = together(function(i)
            return { helper.NCRUN, "cp", "-r", "parallel=4", mount_of(i) .. "/data", ("%s/%d"):format(scratch, i) }
        end)
        for i = 1, WRITERS do
            run { "diff", "-r", data, ("%s/%d"):format(scratch, i) }
            assert.truthy(said[i]:find(" 4 parts at a time", 1, true), said[i])
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

    it("holds one whole file while eight processes write it at once", function()
        local sources, size = helper.tmp(), 6 << 20
        for i = 1, WRITERS do helper.write(("%s/%d"):format(sources, i), tostring(i):rep(size)) end
        local seen = 0
        together(function(i)
            return { helper.NCRUN, "cp", ("%s/%d"):format(sources, i), mount_of(i) .. "/result" }
        end, function()
            local text = helper.read(mounts[1] .. "/result")
            if text then
                assert.is_true(text == text:sub(1, 1):rep(size), "a torn file")
                seen = seen + 1
            end
        end)
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
