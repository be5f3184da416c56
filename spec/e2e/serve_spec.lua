-- The engine under supervision, and where it keeps what it compiles.
local helper  = require "spec.helper"
local placing = require "spec.placing"
local staging = require "spec.staging"
local volumes = require "spec.volumes"

local function words(phase, nvme, ...)
    return { helper.NCRUN, "recipes/serve.lua", "model=acme/tiny", "phase=" .. phase, "nvme=" .. nvme, ... }
end

-- An NVMe with the weights on it.
local function placed()
    local nvme = helper.tmp()
    local server <close> = helper.server { hub = staging.hub "8MiB" }
    assert.equal(0, (placing.run(server.env, nvme)))
    return nvme
end

-- Files below a folder, sorted.
local function files_in(folder)
    local _, out = helper.sh(("cd %s && find . -type f | sort"):format(folder))
    return out
end

describe("serving", function()
    it("places the weights, then runs the engine on them, offline", function()
        local hub, nvme = staging.hub "8MiB", helper.tmp()
        local server <close> = helper.server { hub = hub }
        local code, out, err = helper.run(words("all", nvme, "--", "sh", "-c",
            'echo "$0 $MODEL_DIR $HF_HUB_OFFLINE"; ls "$0" | wc -l; exit 7', "{dir}"), { env = server.env })
        assert.equal(7, code, err)
        local folder = placing.folder(nvme)
        assert.equal(("%s %s 1\n8\n"):format(folder, folder), out)
        placing.assert_placed(hub, nvme)
    end)

    it("starts no engine when the weights can't be placed", function()
        local code, out = helper.run(words("all", helper.tmp(), "--", "echo", "engine"),
            { env = { HF_ENDPOINT = "http://127.0.0.1:9" } })
        assert.equal(1, code)
        assert.equal("", out)
    end)

    it("refuses a model whose engine is not known, before anything is placed", function()
        local nvme = helper.tmp()
        local code, _, err = helper.run(words("all", nvme))
        assert.equal(2, code)
        assert.truthy(err:find("give its command after --", 1, true), err)
        assert.equal("", (select(2, helper.sh("ls " .. nvme))))
    end)

    it("starts no engine on weights of which a file is missing", function()
        local nvme = placed()
        os.remove(placing.folder(nvme) .. "/" .. placing.SHARDS[3])
        local code, out, err = helper.run(words("engine", nvme, "--", "echo", "engine"))
        assert.equal(3, code)
        assert.equal("", out)
        assert.truthy(err:find("lacks files of the copy it is marked as: run phase=place first", 1, true), err)
        code, out, err = helper.run(words("engine", helper.tmp(), "--", "echo", "engine"))
        assert.equal(3, code)
        assert.equal("", out)
        assert.truthy(err:find("holds no complete copy", 1, true), err)
    end)

    it("leaves the engine's variables as the pod sets them", function()
        local code, out = helper.run(words("engine", placed(), "--", "sh", "-c",
            'echo "$TRITON_CACHE_DIR $HF_HUB_OFFLINE"'), { env = { TRITON_CACHE_DIR = "/mine", HF_HUB_OFFLINE = "0" } })
        assert.equal(0, code)
        assert.equal("/mine 0\n", out)
    end)

    it("tells the engine on SIGTERM, and waits while it answers what it has begun", function()
        local run <close> = helper.start(words("engine", placed(), "grace=20s", "--", "sh", "-c",
            "trap 'sleep 1; echo drained; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
        helper.eventually(20, "the engine", function() return run:stdout():find "ready" end)
        run:kill "TERM"
        local code, out, err = run:wait(30)
        assert.equal(0, code, err)
        assert.truthy(out:find("drained", 1, true), out)
    end)
end)

describe("what an engine compiles", function()
    local COMPILE <const> = 'echo made >"$TRITON_CACHE_DIR/kernel.so"; echo "$TRITON_CACHE_DIR"'

    it("is on the NVMe without a volume, and there again at the next start", function()
        local nvme = placed()
        local code, out, err = helper.run(words("engine", nvme, "--", "sh", "-c", COMPILE))
        assert.equal(0, code, err)
        assert.equal(nvme .. "/cache/tiny/custom/triton\n", out)
        local _, again = helper.run(words("engine", nvme, "--", "sh", "-c", 'cat "$TRITON_CACHE_DIR"/*'))
        assert.equal("made\n", again)
    end)

    it("is on the volume where one is mounted", function()
        local volume <close> = volumes.mount "juicefs"
        local code, out, err = helper.run(words("engine", placed(), "volume=" .. volume.path, "--", "sh", "-c",
            COMPILE))
        assert.equal(0, code, err)
        assert.equal(volume.path .. "/cache/tiny/custom/triton\n", out)
        assert.equal("./triton/kernel.so\n", files_in(volume.behind .. "/cache/tiny/custom"))
    end)

    it("is compiled on the NVMe and kept on a volume that is NFS, finished modules only", function()
        local volume <close> = volumes.mount "fuse-nfs"
        local nvme = placed()
        local store = volume.behind .. "/cache/tiny/custom"
        local run <close> = helper.start(words("engine", nvme, "volume=" .. volume.path, "sync=300ms", "--", "sh", "-c",
            [[cd "$TRITON_CACHE_DIR"; pwd; echo first >a.so; echo x >lock_a; echo x >b.so.tmp
            until [ -e go ]; do echo more >>growing.so; sleep 0.05; done
            echo last >z.so]]))
        helper.eventually(30, "a module on the volume", function() return helper.read(store .. "/triton/a.so") end)
        assert.is_nil(helper.read(store .. "/triton/growing.so"))
        helper.write(nvme .. "/cache/tiny/custom/triton/go", "")
        local code, out, err = run:wait(30)
        assert.equal(0, code, err)
        assert.equal(nvme .. "/cache/tiny/custom/triton\n", out)
        assert.equal("./triton/a.so\n./triton/go\n./triton/growing.so\n./triton/z.so\n", files_in(store))

        -- Another node: what was compiled is there before the engine starts.
        local other = placed()
        code, out, err = helper.run(words("engine", other, "volume=" .. volume.path, "--", "sh", "-c",
            'cd "$TRITON_CACHE_DIR"; cat a.so z.so; ls'))
        assert.equal(0, code, err)
        assert.equal("first\nlast\na.so\ngo\ngrowing.so\nz.so\n", out)
        assert.truthy(err:find("4 compiled modules restored", 1, true), err)
    end)

    for what, name in pairs { hang = "does not answer", die = "is gone" } do
        for _, kind in ipairs { "juicefs", "fuse-nfs" } do
            it(("does not hold the engine up where the server of a %s %s"):format(kind, name), function()
                local volume <close>, nvme = volumes.mount(kind), placed()
                volume[what](volume)
                local code, out, err = helper.run(words("engine", nvme, "volume=" .. volume.path, "patience=1s", "--",
                    "sh", "-c", COMPILE))
                assert.equal(0, code, err)
                assert.equal(nvme .. "/cache/tiny/custom/triton\n", out)
            end)
        end
    end

    it("does not hold the engine up where the volume can't be written", function()
        local volume <close> = volumes.mount "fuse-nfs"
        assert.equal(0, (helper.sh("mount -o remount,ro,bind " .. volume.path)))
        local code, out, err = helper.run(words("engine", placed(), "volume=" .. volume.path, "--", "sh", "-c",
            COMPILE))
        assert.equal(0, code, err)
        assert.truthy(out:find("/triton", 1, true))
        assert.truthy(err:find("the engine goes on without it", 1, true), err)
    end)
end)
