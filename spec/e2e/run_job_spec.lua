-- A job's data in, its checkpoints and results out, on the local server and on a Ceph gateway.
local helper = require "spec.helper"
local jobs = require "spec.jobs"
local staging = require "spec.staging"

-- The seed's data set: 30 images, labels.csv and shards.
local function dataset(folder)
    helper.sh(([[
        mkdir -p %s/images %s/shards && cd %s || exit 1
        for i in $(seq 30); do head -c 20000 /dev/urandom >images/$i.jpg; echo "$i.jpg,$((i %% 3))" >>labels.csv; done
        for i in 0 1; do head -c 1500000 /dev/urandom >shards/$i.bin; done
        tar -czf ../dataset.tar.gz .
    ]]):format(folder, folder, folder))
    return (folder:gsub("[^/]*$", "dataset.tar.gz"))
end

local function read_result(env, key)
    return staging.object(env, key or "alice/run-job/result.txt")
end

for _, name in ipairs { "ncdev", "rgw" } do
    describe("a job on " .. name, function()
        local server = name == "rgw" and helper.rgw() or helper.server { memory = "yes" }
        local env = jobs.env(server)
        local data = helper.tmp() .. "/dataset"
        local packed = dataset(data)

        setup(function()
            jobs.put(env, packed, "dataset.tar.gz")
            jobs.put(env, data .. "/labels.csv", "extra/labels.csv")
        end)
        teardown(function() local _ <close> = server end)

        it("stages the data set in, unpacked, and publishes its result below its user's name", function()
            local code, out, err = jobs.run(env, { "input=dataset.tar.gz,extra/" }, ([[
                diff -r %s "$NC_INPUT" && ls "$NC_INPUT/images" | wc -l
                echo "hello from alice" >"$NC_OUTPUT/result.txt"
            ]]):format(data))
            assert.equal(0, code, err)
            assert.equal("30\n", out)
            assert.equal("hello from alice\n", read_result(env))
            assert.equal("", jobs.left(env))
        end)

        it("does not publish over what another user has there, and does not even begin", function()
            local bob = helper.env(env, { NRP_USER = "bob" })
            local code, out, err = jobs.run(bob, { "output=alice/run-job/" }, "echo ran")
            assert.equal(4, code, err)
            assert.equal("", out)
            assert.truthy(err:find("belongs to alice", 1, true), err)
            assert.equal("hello from alice\n", read_result(env))
            code, out, err = jobs.run(bob, { "output=extra/" }, "echo ran") -- nobody's name is on it
            assert.equal(4, code, err)
            assert.equal("", out)
            assert.truthy(err:find("holds objects of somebody", 1, true), err)
            code, _, err = jobs.run(bob, { "output=alice/run-job/", "overwrite=yes" },
                'echo bob >"$NC_OUTPUT/result.txt"')
            assert.equal(0, code, err)
            assert.equal("bob\n", read_result(env))
        end)

        it("goes to one of those who want the same place at once", function()
            local runs = {}
            for i = 1, 4 do
                runs[i] = jobs.start(helper.env(env, { NRP_USER = "user" .. i }), { "output=shared/" },
                    ('echo %d >"$NC_OUTPUT/won.txt"'):format(i))
            end
            local codes, winner = {}, nil
            for i, run in ipairs(runs) do
                local code = run:wait(60)
                codes[code] = (codes[code] or 0) + 1
                if code == 0 then winner = i end
            end
            assert.same({ [0] = 1, [4] = 3 }, codes)
            assert.equal(winner .. "\n", read_result(env, "shared/won.txt"))
        end)

        it("goes on from its newest whole checkpoint", function()
            local options = { "job=train", "resume=latest" }
            local code, out, err = jobs.run(env, options, [[
                echo "from [$NC_RESUME]"
                mkdir "$NC_CHECKPOINTS/tmp-step-1"; echo one >"$NC_CHECKPOINTS/tmp-step-1/model.bin"
                echo 1 >"$NC_CHECKPOINTS/tmp-step-1/state"; mv "$NC_CHECKPOINTS/tmp-step-1" "$NC_CHECKPOINTS/step-1"
                exit 3
            ]])
            assert.equal(3, code, err)
            assert.equal("from []\n", out)
            -- Never seen under its temporary name and not settled: as far as anybody knows it may be a half.
            code, _, err = jobs.run(env, options, [[
                mkdir "$NC_CHECKPOINTS/tmp-step-1"; echo one >"$NC_CHECKPOINTS/tmp-step-1/model.bin"
                sleep 1
                mv "$NC_CHECKPOINTS/tmp-step-1" "$NC_CHECKPOINTS/step-1"; sleep 1.5
                exit 3
            ]])
            assert.equal(3, code, err)
            local kept = jobs.checkpoints(env, "alice/train/checkpoints/")
            assert.is_true(#kept >= 1)
            code, out, err = jobs.run(env, options, 'cat "$NC_RESUME/model.bin"; basename "$NC_RESUME"')
            assert.equal(0, code, err)
            assert.equal("one\nstep-1\n", out)
            -- What it went on from is not sent again.
            assert.same(kept, jobs.checkpoints(env, "alice/train/checkpoints/"))
        end)
    end)
end

describe("a job", function()
    local server = helper.server { memory = "yes" }
    local env = jobs.env(server)
    teardown(function() server:__close() end)

    -- Looks at the bucket while it runs; every checkpoint is what its marker says, and of one letter.
    local function watch(run, job, most)
        local prefix = ("alice/%s/checkpoints/"):format(job)
        local seen, count = {}, 0
        helper.eventually(most or 60, "the end of the job", function()
            local over = not run:running()
            for _, kept in ipairs(jobs.checkpoints(env, prefix)) do
                assert.is_nil(kept.torn)
                for path, body in pairs(kept.files) do
                    assert.is_true(body == body:sub(1, 1):rep(#body), kept.number .. "/" .. path .. " is torn")
                end
                if not seen[kept.number] then
                    seen[kept.number] = true
                    count = count + 1
                end
            end
            return over
        end)
        local code, _, err = run:wait(10)
        return code, err, count
    end

    -- A file of one letter, a MiB, written in two halves; `between` comes between them.
    local WRITE <const> = [[
        letters() { head -c 524288 /dev/zero | tr '\0' "$1"; }
        write() { { letters "$1"; sleep "$3"; letters "$1"; } >"$2"; }
        cd "$NC_CHECKPOINTS" || exit 9
    ]]

    it("of a slow writer gets no half: nobody may have it open", function()
        local run <close> = jobs.start(env, { "job=slow" }, WRITE .. "write a ckpt.pt 2; sleep 1.5; exit 3")
        local code, err, count = watch(run, "slow")
        assert.equal(3, code, err)
        assert.equal(1, count, err)
    end)

    it("of a writer that overwrites in place gets whole versions, the newest at last", function()
        local run <close> = jobs.start(env, { "job=place", "keep=2", "resume=latest" }, WRITE
            .. "for l in a b c d; do write $l ckpt.pt 0.2; sleep 1.5; done; exit 3")
        local code, err, count = watch(run, "place")
        assert.equal(3, code, err)
        assert.is_true(count >= 2, err)
        local kept = jobs.checkpoints(env, "alice/place/checkpoints/")
        assert.equal(2, #kept)
        assert.equal("d", kept[2].files["ckpt.pt"]:sub(1, 1))
    end)

    it("of a writer that never stops gets nothing torn", function()
        local run <close> = jobs.start(env, { "job=busy", "settle=50ms" }, WRITE
            .. "for i in $(seq 8); do for l in a b c d; do write $l ckpt.pt 0; sleep 0.07; done; done")
        local code, err = watch(run, "busy")
        assert.equal(0, code, err)
        local kept = jobs.checkpoints(env, "alice/busy/checkpoints/")
        assert.equal("d", kept[#kept].files["ckpt.pt"]:sub(1, 1))
    end)

    it("of a writer that crashes gets no half, and the next goes on from the last whole one", function()
        local run <close> = jobs.start(env, { "job=crash" }, WRITE
            .. "write a .part1 0; mv .part1 step-1.pt; sleep 1.5; exec 3>step-2.pt; letters b >&3; "
            .. "kill -KILL $$")
        local code, err = watch(run, "crash")
        assert.equal(137, code, err)
        assert.truthy(err:find("may be half written: step-2.pt", 1, true), err)
        local _, out = jobs.run(env, { "job=crash", "resume=latest" }, 'basename "$NC_RESUME"')
        assert.equal("step-1.pt\n", out)
    end)

    it("that writes faster than the bucket takes sends the newest first, and keeps their order", function()
        server:faults { "PUT */step-* slow=1000000" }
        server:reset()
        local code, _, err = jobs.run(env, { "job=behind", "keep=4" }, WRITE
            .. "for l in a b c d; do letters $l >.$l; mv .$l step-$l.pt; done")
        server:faults {}
        assert.equal(0, code, err)
        local sent = ""
        for _, request in ipairs(server:log()) do
            if request.method == "PUT" then sent = sent .. (request.path:match "step%-(%a)%.pt" or "") end
        end
        assert.equal(4, #sent, err)
        -- The first was chosen before all were there.
        for i = 2, 3 do assert.is_true(sent:sub(i, i) > sent:sub(i + 1, i + 1), sent) end
        local letters = ""
        for _, kept in ipairs(jobs.checkpoints(env, "alice/behind/checkpoints/")) do
            letters = letters .. next(kept.files):match "step%-(%a)"
        end
        assert.equal("abcd", letters)
    end)

    it("waits for the file that completes a checkpoint, where it is told of one", function()
        local run <close> = jobs.start(env, { "job=index", "complete=.done", "settle=0" }, WRITE
            .. "letters a >one.pt; sleep 1; letters a >>one.pt; touch one.pt.done; letters b >two.pt; sleep 1.5; "
            .. "exit 3")
        local code, err = watch(run, "index")
        assert.equal(3, code, err)
        local kept = jobs.checkpoints(env, "alice/index/checkpoints/")
        assert.equal(1, #kept)
        assert.equal(1048576, #kept[1].files["one.pt"])
    end)

    it("passes over a checkpoint that is damaged in the bucket", function()
        local run <close> = jobs.start(env, { "job=damage" }, WRITE
            .. "for l in a b; do write $l .x 0; mv .x $l.pt; sleep 1; done")
        assert.equal(0, (watch(run, "damage")))
        local path = helper.tmp() .. "/damaged"
        helper.write(path, ("x"):rep(1048576))
        jobs.put(env, path, "alice/damage/checkpoints/000002/b.pt")
        local code, out, err = jobs.run(env, { "job=damage", "resume=latest" }, 'basename "$NC_RESUME"')
        assert.equal(0, code, err)
        assert.equal("a.pt\n", out)
        assert.truthy(err:find("trying the one before", 1, true), err)
    end)

    for _, case in ipairs {
        { "TERM", "trap 'write b .s 0; mv .s step-2.pt; exit 143' TERM", 143 },
        { "INT", "trap 'write b .s 0; mv .s step-2.pt; exit 130' INT", 130 },
        { "USR1", "trap 'write b .s 0; mv .s step-2.pt; exit 0' USR1", 0 },
    } do
        it(("on %s has its result and its last checkpoint in the bucket before it ends"):format(case[1]), function()
            local job = case[1]:lower()
            local run <close> = jobs.start(env, { "job=" .. job, "settle=10s" }, WRITE .. case[2] .. [[

                echo partial >"$NC_OUTPUT/result.txt"; touch "$NC_OUTPUT/ready"
                while :; do sleep 0.1; done
            ]])
            helper.eventually(30, "its start", function()
                local _, out = helper.sh(("ls %s/*/output/ready 2>/dev/null"):format(env.TMPDIR))
                return out ~= ""
            end)
            run:kill(case[1])
            local code, _, err = run:wait(40)
            assert.equal(case[3], code, err)
            assert.equal("partial\n", read_result(env, ("alice/%s/result.txt"):format(job)))
            local kept = jobs.checkpoints(env, ("alice/%s/checkpoints/"):format(job))
            assert.equal(1, #kept, err)
            assert.equal("b", kept[1].files["step-2.pt"]:sub(1, 1))
            assert.equal("", jobs.left(env))
        end)
    end

    it("that is killed by the signal it was told with has sent what was whole before", function()
        local run <close> = jobs.start(env, { "job=plain", "settle=300ms" }, WRITE .. [[
            write a step-1.pt 0; echo partial >"$NC_OUTPUT/result.txt"
            sleep 600
        ]])
        helper.eventually(30, "a checkpoint", function()
            return #jobs.checkpoints(env, "alice/plain/checkpoints/") == 1
        end)
        run:kill "TERM"
        local code, _, err = run:wait(40)
        assert.equal(143, code, err)
        assert.equal("partial\n", read_result(env, "alice/plain/result.txt"))
    end)

    it("that is told to stop while it stages in does not begin; a USR1 does not end it", function()
        local path = helper.tmp() .. "/big"
        helper.sh(("head -c 40000000 /dev/zero >%s"):format(path))
        jobs.put(env, path, "big")
        for _, case in ipairs { { "TERM", 143, "" }, { "USR1", 0, "ran\n" } } do
            local folder = jobs.env(server)
            server:faults { "GET */big slow=20000000" }
            local run <close> = jobs.start(folder, { "job=early", "input=big" }, "echo ran")
            helper.eventually(30, "its start", function()
                return run:stderr():find("copy: 1 files", 1, true)
            end)
            run:kill(case[1])
            local code, out, err = run:wait(60)
            server:faults {}
            assert.equal(case[2], code, err)
            assert.equal(case[3], out)
            assert.equal("", jobs.left(folder))
        end
    end)

    it("keeps its own code when the bucket is gone; one that has succeeded has not, and its work stays", function()
        for _, case in ipairs { { "exit 5", 5 }, { "exit 0", 4 } } do
            local folder = jobs.env(server)
            local run <close> = jobs.start(folder, { "job=gone" .. case[2] }, [[
                echo precious >"$NC_OUTPUT/result.txt"; touch "$NC_OUTPUT/ready"
                until [ -e "$NC_WORK/go" ]; do sleep 0.1; done; ]] .. case[1])
            helper.eventually(30, "its start", function()
                local _, out = helper.sh(("ls %s/*/output/ready 2>/dev/null"):format(folder.TMPDIR))
                return out ~= ""
            end)
            server:faults { "PUT * status=403:AccessDenied" }
            helper.sh(("for d in %s/gone*; do touch $d/go; done"):format(folder.TMPDIR))
            local code, _, err = run:wait(60)
            server:faults {}
            assert.equal(case[2], code, err)
            assert.truthy(err:find("not uploaded: the results", 1, true), err)
            assert.truthy(err:find("is still in " .. folder.TMPDIR, 1, true), err)
            local _, text = helper.sh(("cat %s/*/output/result.txt"):format(folder.TMPDIR))
            assert.equal("precious\n", text)
        end
    end)

    it("publishes what is new while it runs, where it is told to", function()
        local run <close> = jobs.start(env, { "job=live", "publish=300ms" }, [[
            echo first >"$NC_OUTPUT/part.txt"; until [ -e "$NC_WORK/go" ]; do sleep 0.1; done
            echo second >>"$NC_OUTPUT/part.txt"
        ]])
        helper.eventually(30, "the first part", function()
            return read_result(env, "alice/live/part.txt") == "first\n"
        end)
        helper.sh(("for d in %s/live*; do touch $d/go; done"):format(env.TMPDIR))
        assert.equal(0, (run:wait(30)))
        assert.equal("first\nsecond\n", read_result(env, "alice/live/part.txt"))
    end)

    it("works from and to a volume in the same way", function()
        local volume = helper.tmp()
        helper.write(volume .. "/in/a/b.txt", "from the volume")
        local options = { "input=" .. volume .. "/in/", "output=" .. volume .. "/out", "resume=latest" }
        local code, _, err = jobs.run(env, options, [[
            cp "$NC_INPUT/a/b.txt" "$NC_OUTPUT/copy.txt"; echo 1 >"$NC_CHECKPOINTS/step-1.pt"
        ]])
        assert.equal(0, code, err)
        assert.equal("from the volume", helper.read(volume .. "/out/copy.txt"))
        local _, out = jobs.run(env, options, 'cat "$NC_RESUME"')
        assert.equal("1\n", out)
    end)

    it("runs without any bucket, and says that nothing leaves the node", function()
        local alone = { TMPDIR = helper.tmp(), NC_BUCKET = false }
        local code, out, err = helper.ncrun({ "recipes/run-job.lua", "volume=/none", "run=echo $NC_RESUME ok" },
            { env = alone })
        assert.equal(0, code, err)
        assert.equal("ok\n", out)
        assert.truthy(err:find("results and checkpoints stay on this node", 1, true), err)
    end)

    it("is refused where nobody can tell whose results they are, or which bucket a key is in", function()
        local nobody = helper.env(env, { NRP_USER = false })
        local code, _, err = jobs.run(nobody, {}, "true")
        assert.equal(2, code)
        assert.truthy(err:find("set user=, or output=", 1, true), err)
        code, _, err = jobs.run({ TMPDIR = env.TMPDIR }, { "input=data.tar" }, "true")
        assert.equal(2, code)
        assert.truthy(err:find("no bucket is set", 1, true), err)
    end)
end)
