-- `ncrun recipes/nanogpt.lua -- command`: the command's fate is its own, whatever becomes of its output.
local helper = require "spec.helper"
local logging = require "spec.logging"

describe("a supervised command", function()
    for _, case in ipairs {
        { "exit 0", 0 }, { "exit 3", 3 }, { "exit 255", 255 },
        { "kill -SEGV $$", 139 }, { "kill -KILL $$", 137 },
    } do
        it(("ends with %d after `%s`, its log whole in the bucket"):format(case[2], case[1]), function()
            local server <close> = helper.server()
            local code, out, err = logging.run(server.env, {}, "echo one; echo two >&2; " .. case[1])
            assert.equal(case[2], code, err)
            assert.equal("one\ntwo\n", out)
            assert.equal("one\ntwo\n", logging.object(server.env))
        end)
    end

    it("ends with 127 when it is not there and 126 when it can't be run, with the reason in the log", function()
        local server <close> = helper.server()
        local code, _, err = logging.run(server.env, {}, { "no-such-command" })
        assert.equal(127, code)
        assert.truthy(err:find("start no-such-command: command not found", 1, true))
        assert.equal("ncrun: start no-such-command: command not found\n", logging.object(server.env))
        assert.equal(126, (logging.run(server.env, { "pod=b" }, { "/etc/passwd" })))
        assert.truthy(logging.object(server.env, "b"):find("Permission denied", 1, true))
    end)

    it("runs where there is neither bucket nor volume, and one line says that nothing is kept", function()
        local code, out, err = logging.run({}, {}, "echo hello; exit 4")
        assert.equal(4, code)
        assert.equal("hello\n", out)
        local _, lines = err:gsub("\n", "")
        assert.equal(1, lines, err)
        assert.truthy(err:find("nothing of this run's log is kept", 1, true), err)
    end)

    -- What a GPU image has is played by scripts; the source is an archive of the real one's shape.
    it("is nanoGPT where none is given: fetched, prepared, trained on all GPUs", function()
        local place = helper.tmp()
        helper.write(place .. "/nanoGPT-master/data/shakespeare_char/prepare.py", "print('prepared')\n")
        helper.write(place .. "/bin/python3", [[#!/bin/sh
            case "$2" in
            *device_count*) echo 4 ;;
            "import torch" | "import numpy"*) ;;
            *) exec /usr/bin/python3 "$@" ;;
            esac
        ]])
        helper.write(place .. "/bin/torchrun", '#!/bin/sh\necho "torchrun $*"\n')
        helper.sh(("chmod +x %s/bin/*; tar -C %s -czf %s/master.tar.gz nanoGPT-master"):format(place, place, place))
        local env = { PATH = place .. "/bin:/usr/bin:/bin", MASTER_ADDR = "localhost", JOB_COMPLETION_INDEX = "1" }
        local words = { "recipes/nanogpt.lua", "logs=/none", "volume=/none", "steps=7",
            "source=file://" .. place .. "/master.tar.gz" }
        local code, out, err = helper.ncrun(words, { env = env })
        assert.equal(0, code, err .. out)
        assert.equal("prepared\ntorchrun --standalone --nproc-per-node=4 train.py config/train_shakespeare_char.py "
            .. "--max_iters=7 --lr_decay_iters=7 --gradient_accumulation_steps=4\n", out)
        words[#words + 1] = "nodes=2"
        code, out = helper.ncrun(words, { env = env })
        assert.equal(0, code)
        assert.truthy(out:find("torchrun --nnodes=2 --nproc-per-node=4 --node-rank=1 --master-addr=localhost "
            .. "--master-port=29500 --rdzv-conf timeout=900 train.py config/train_shakespeare_char.py", 1, true), out)
        assert.truthy(out:find("--gradient_accumulation_steps=8", 1, true))
    end)

    it("takes a line of shell as run=, and refuses both", function()
        local code, out = helper.ncrun({ "recipes/nanogpt.lua", "run=echo $NODES $NODE_RANK; exit 5", "nodes=2" })
        assert.equal(5, code)
        assert.equal("2 0\n", out)
        assert.equal(2, (logging.run({}, { "run=true" }, "true")))
    end)

    it("gives each pod of two nodes a key below logs/nanogpt-mn/", function()
        local server <close> = helper.server()
        local env = helper.env(server.env, { JOB_COMPLETION_INDEX = "1", POD_NAME = "train-1-x7" })
        local code = helper.ncrun({ "recipes/nanogpt.lua", "nodes=2", "--", "sh", "-c", "echo rank $NODE_RANK" },
            { env = env })
        assert.equal(0, code)
        assert.equal("rank 1\n", logging.object(server.env, "train-1-x7", "nanogpt-mn"))
    end)

    it("does not wait for a background process that holds its output open", function()
        local server <close> = helper.server()
        local begun = logging.now()
        assert.equal(0, (logging.run(server.env, {}, "sleep 61.5 & echo done")))
        assert.is_true(logging.now() - begun < 3)
        assert.equal("done\n", logging.object(server.env))
        assert.is_false(logging.alive "sleep 61.5")
    end)

    it("leaves nobody behind, not even who has left the group and ignores TERM", function()
        local begun = logging.now()
        assert.equal(6, (logging.run({}, {},
            [[setsid sh -c 'trap "" TERM; sleep 62.5; sleep 62.5' & sleep 0.2; exit 6]])))
        assert.is_true(logging.now() - begun < 5)
        assert.is_false(logging.alive "sleep 62.5")
    end)

    it("keeps its fate when stdout is closed, nobody reads it, or the log's disk is full", function()
        local script = "head -c 3000000 /dev/zero | tr '\\0' x; exit 9"
        local words = "recipes/nanogpt.lua logs=/none volume=/none -- sh -c \"" .. script .. "\""
        local _, closed = helper.sh(helper.NCRUN .. " " .. words .. " >&-; echo $?")
        assert.equal("9\n", closed)
        local _, gone = helper.sh("{ " .. helper.NCRUN .. " " .. words .. "; echo $? >&2; } 2>&3 3>&1 | true",
            nil, { timeout = 20 })
        assert.truthy(gone == "" or gone:find "9\n")
        -- Both outputs into a pipe that is full for good.
        local begun = logging.now()
        local _, stuck = helper.sh(
            ("mkfifo $0; sleep 20 <$0 & { %s; echo $? >$0.code; } >$0 2>&1; cat $0.code; kill $!")
            :gsub("%$0", helper.tmp() .. "/fifo"):format(helper.NCRUN .. " " .. words), nil, { timeout = 30 })
        assert.equal("9\n", stuck)
        assert.is_true(logging.now() - begun < 10)
    end)

    it("passes HUP, QUIT, USR1 and USR2 on", function()
        local run <close> = logging.start({}, {}, [[
            for s in HUP QUIT USR1 USR2; do trap "echo got $s" $s; done
            trap 'echo bye; exit 0' TERM
            echo ready; while :; do sleep 0.05; done]])
        helper.eventually(10, "the start", function() return run:stdout():find "ready" end)
        for _, signal in ipairs { "HUP", "QUIT", "USR1", "USR2" } do
            run:kill(signal)
            helper.eventually(10, signal, function() return run:stdout():find("got " .. signal) end)
        end
        run:kill "TERM"
        assert.equal(0, (run:wait(10)))
        assert.truthy(run:stdout():find "bye")
    end)

    it("has its grace after TERM, and only a second of it after another TERM", function()
        local run <close> = logging.start({}, { "grace=40s" },
            "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done")
        helper.eventually(10, "the start", function() return run:stdout():find "ready" end)
        run:kill "TERM"
        helper.eventually(10, "the signal", function() return run:stdout():find "told" end)
        os.execute "sleep 1"
        assert.is_true(run:running())
        local begun = logging.now()
        run:kill "TERM"
        assert.equal(137, (run:wait(10)))
        assert.is_true(logging.now() - begun < 4)
    end)
end)

describe("SIGTERM to a supervised run", function()
    -- Longer stretches of a life than these are told apart by nothing in the program.
    for _, delay in ipairs { 0.001, 0.03, 1 } do
        it(("%g s after its start ends it, told, with a whole log and no survivor"):format(delay), function()
            local server <close> = helper.server()
            local run <close> = logging.start(server.env, { "grace=9s" }, [[
                trap 'echo told; exit 7' TERM; setsid sleep 63.5 & echo start; sleep 63.5 & wait]])
            os.execute("sleep " .. delay)
            run:kill "TERM"
            local code, out, err = run:wait(20)
            assert.is_true(code == 143 or code == 7, ("%d: %s"):format(code, err))
            if delay == 1 then assert.equal("start\ntold\n", out) end
            local object = logging.object(server.env)
            if object or out ~= "" then assert.equal(out, object) end
            assert.is_false(logging.alive "sleep 63.5")
        end)
    end
end)
