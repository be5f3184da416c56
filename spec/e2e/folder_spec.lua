-- Staging onto a volume. The copy is a folder here: what tells a volume from a folder is checked by
-- spec/lua/volume_spec.lua, and refused below.
local helper = require "spec.helper"
local staging = require "spec.staging"

-- A person's own script over the same library, since the recipe insists on a network file system.
local SCRIPT <const> = [[
local copies = require "nc.copy"
local hub    = require "nc.hub"
local stage  = require "nc.stage"
local folder, extra = ...
local done = stage.run {
    model = hub.open():pin "acme/tiny", copy = copies.in_folder(folder, "tiny"), job = "spec", wait = 1,
    part_size = 5 << 20, verify = extra == "verify",
}
print(done.already, done.files, done.moved)
]]

local function script()
    local path = helper.tmp() .. "/stage.lua"
    helper.write(path, SCRIPT)
    return path
end

local function assert_same(hub, folder)
    local code, _, err = helper.sh(("diff -r -x .staging -x .complete %s/acme/tiny %s/models/tiny"):format(hub, folder))
    assert.equal(0, code, err)
end

local function leftovers(folder)
    local _, out = helper.sh(("find %s -name '*.part' | wc -l"):format(folder))
    return tonumber(out)
end

describe("a copy in a folder", function()
    it("holds every file and the marker, and ends at once the second time", function()
        local hub, folder = staging.hub(), helper.tmp()
        local server <close> = helper.server { hub = hub }
        local code, out, err = helper.ncrun({ script(), folder }, { env = server.env })
        assert.equal(0, code, err)
        assert.equal("nil\t9\t9\n", out)
        assert_same(hub, folder)
        assert.equal(0, leftovers(folder))
        code, out = helper.ncrun({ script(), folder }, { env = server.env })
        assert.equal(0, code)
        assert.equal("true\t9\t0\n", out)
    end)

    it("never has part of a file under its name, whenever it is killed, and goes on from there", function()
        local hub, folder = staging.hub("64MiB", 8), helper.tmp()
        local server <close> = helper.server { hub = hub, rate = 24 << 20 }
        local path = script()
        for round = 1, 4 do
            local run <close> = helper.start({ helper.NCRUN, path, folder }, { env = server.env })
            helper.sh(("sleep 0.%d"):format(round * 2))
            run:kill "KILL"
            run:wait(10)
            local _, names = helper.sh(("cd %s/models/tiny 2>/dev/null && find . -type f ! -name '*.part' "
                .. "! -name '.*' -printf '%%P\n'"):format(folder))
            for name in names:gmatch "[^\n]+" do
                assert.is_true(helper.read(folder .. "/models/tiny/" .. name)
                    == helper.read(hub .. "/acme/tiny/" .. name), name)
            end
        end
        local code, _, err = helper.ncrun({ path, folder }, { env = server.env })
        assert.equal(0, code, err)
        assert_same(hub, folder)
        assert.equal(0, leftovers(folder))
    end)

    it("is read back with verify, and only what is wrong is fetched anew", function()
        local hub, folder = staging.hub(), helper.tmp()
        local server <close> = helper.server { hub = hub }
        assert.equal(0, (helper.ncrun({ script(), folder }, { env = server.env })))
        helper.sh(("printf X | dd of=%s/models/tiny/%s bs=1 seek=6000000 conv=notrunc"):format(folder, staging.SHARD))
        server:reset()
        local code, _, err = helper.ncrun({ script(), folder, "verify" }, { env = server.env })
        assert.equal(0, code, err)
        assert_same(hub, folder)
        assert.is_true(staging.sum(server:counters().cdn.ops, "out") < 17 << 20)
    end)

    it("ends with exit 5 and no temporary file where the disk is full", function()
        local hub, folder = staging.hub(), helper.tmp()
        local server <close> = helper.server { hub = hub }
        -- A file system of 24 MiB in a mount namespace of its own; space is looked at before the first byte.
        local code, _, err = helper.sh(("unshare -m sh -c 'mount -t tmpfs -o size=24m none %s && exec %s %s %s'")
            :format(folder, helper.NCRUN, script(), folder), server.env)
        assert.equal(5, code, err)
        assert.truthy(err:find("are free: make room", 1, true), err)
    end)

    it("must lie on a network file system", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        local folder = helper.tmp()
        local code, _, err = staging.run(server.env, "to=volume", "volume=" .. folder)
        assert.equal(3, code)
        assert.truthy(err:find("no shared volume is mounted at", 1, true), err)
        assert.equal("", (select(2, helper.sh("ls " .. folder))))
    end)
end)

describe("the soft cap", function()
    it("gives a warning with the figure and stops nothing", function()
        local server <close> = helper.server { hub = staging.hub "8MiB" }
        local code, _, err = staging.run(server.env, "soft_cap=1MiB")
        assert.equal(0, code, err)
        assert.truthy(err:find("the models in the bucket are 8.1 MiB, over the soft cap of 1.0 MiB", 1, true), err)
    end)
end)
