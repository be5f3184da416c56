-- The parts of placing that are values or a folder: deciding, what is known of the NVMe, the claim.
local claims = require "nc.place.claim"
local copies = require "nc.copy"
local decide = require "nc.place.decide"
local disk   = require "nc.core.disk"
local errors = require "nc.errors"
local helper = require "spec.helper"
local locks  = require "nc.core.lock"
local placed = require "nc.place.placed"
local sys    = require "nc.core.sys"

local COMPLETE <const> = { date = "2026-11-28", bytes = 527 << 30, commit = ("1a2b3c4d"):rep(5) }

local function staging(fields)
    return helper.env({ who = "job stage on pod", age = 20, at = 1000, bytes_done = 1 << 30, bytes_total = 4 << 30 },
        fields or {})
end

describe("decide.step", function()
    it("takes the volume where it is complete, whatever the bucket is", function()
        local step = decide.step { { name = "volume", complete = COMPLETE }, { name = "bucket", complete = COMPLETE } }
        assert.equal("volume", step.take)
        assert.equal("the volume holds a complete copy of 2026-11-28, 527.0 GiB, commit 1a2b3c4d", step.say)
    end)

    it("takes a complete bucket rather than wait for the volume", function()
        local step = decide.step { { name = "volume", staging = staging() }, { name = "bucket", complete = COMPLETE } }
        assert.equal("bucket", step.take)
        assert.equal("the volume holds no complete copy; the bucket holds one of 2026-11-28, 527.0 GiB, "
            .. "commit 1a2b3c4d", step.say)
    end)

    it("waits for whoever stages, in either place", function()
        for _, looks in ipairs {
            { { name = "volume", staging = staging() }, { name = "bucket" } },
            { { name = "volume" }, { name = "bucket", staging = staging() } },
        } do
            local step = decide.step(looks)
            assert.equal("wait", step.take)
            assert.truthy(step.say:find("1.0 GiB of 4.0 GiB", 1, true), step.say)
        end
    end)

    it("goes to the hub when nobody has or makes one, and says what there is instead", function()
        assert.equal("there is no shared volume and no bucket, so it comes from the hub", decide.step({}).say)
        local step = decide.step { { name = "bucket", note = "its marker can't be read" } }
        assert.equal("hub", step.take)
        assert.truthy(step.say:find("(its marker can't be read)", 1, true))
    end)

    it("says of a copy whose marker names no commit that another tool has made it", function()
        local step = decide.step { { name = "bucket", complete = { date = "2026-11-28", bytes = 5 } } }
        assert.truthy(step.say:find("marked by another tool", 1, true))
    end)
end)

describe("decide.seconds_left", function()
    it("goes by the last two heartbeats, else by all of the stage", function()
        local s = staging { started = 900 } -- a GiB in 100 s
        assert.equal(300, decide.seconds_left(s))
        assert.equal(30, decide.seconds_left(s, staging { at = 995, bytes_done = 1 << 29 }))
        assert.equal(300, decide.seconds_left(s, s))
    end)

    it("is not told where nothing has moved", function()
        assert.is_nil(decide.seconds_left(staging { started = 900, bytes_done = 0 }))
        assert.is_nil(decide.seconds_left(staging {}))
    end)
end)

local SHA <const> = ("ab"):rep(32)

describe("what is placed", function()
    local root, copy, here

    before_each(function()
        root = helper.tmp()
        copy = copies.in_folder(root, "tiny")
        helper.write(copy.folder .. "/a", "12345")
        here = placed.open(copy)
    end)

    -- Which list of the plan the file is in.
    local function verdict(file)
        local plan = here:plan { file }
        for _, name in ipairs { "kept", "check", "move" } do
            if plan[name][1] then return name end
        end
    end

    it("is moved where it is missing or of another size", function()
        assert.equal("move", verdict { path = "b", size = 5, sha256 = SHA })
        assert.equal("move", verdict { path = "a", size = 6, sha256 = SHA })
    end)

    it("is read back once, and then known until somebody writes to it", function()
        local file = { path = "a", size = 5, sha256 = SHA }
        assert.equal("check", verdict(file))
        here:add(file)
        assert.equal("kept", verdict(file))
        here:flush(true)
        here = placed.open(copy)
        assert.equal("kept", verdict(file))
        helper.write(copy.folder .. "/a", "54321")
        assert.equal("check", verdict(file))
    end)

    it("is moved where other content of that size is wanted, or it was read and is wrong", function()
        here:add { path = "a", sha256 = ("cd"):rep(32) }
        assert.equal("move", verdict { path = "a", size = 5, sha256 = SHA })
        here:refuse "a"
        assert.equal("move", verdict { path = "a", size = 5, sha256 = SHA })
    end)

    it("is known by the digests of its parts or its git blob too", function()
        here:add { path = "a", blob = ("1"):rep(40), part_size = 4, parts = { "x", "y" } }
        assert.equal("kept", verdict { path = "a", size = 5, blob = ("1"):rep(40) })
        assert.equal("kept", verdict { path = "a", size = 5, part_size = 4, parts = { "x", "y" } })
        assert.equal("move", verdict { path = "a", size = 5, part_size = 4, parts = { "x", "z" } })
        assert.equal("check", verdict { path = "a", size = 5, part_size = 8, parts = { "x" } })
    end)

    it("counts by its size where a copy gives no digest", function()
        assert.equal("kept", verdict { path = "a", size = 5 })
    end)

    it("is complete with its marker, also one that lists nothing, and not without", function()
        here:add { path = "a" }
        assert.is_false(here:is_complete())
        here:mark({ { path = "a", size = 5 } }, "")
        assert.is_true(placed.open(copy):is_complete())
        os.remove(copy.folder .. "/a")
        assert.is_false(placed.open(copy):is_complete())
    end)

    it("is not complete by a bare marker alone", function()
        helper.write(copy.folder .. "/.complete", "")
        assert.is_false(placed.open(copy):is_complete())
    end)

    it("is looked at anew where what was known of it can't be read", function()
        for _, text in ipairs { "", "{", "[1]", '{"version":9}', '{"version":1,"files":{"a":3,"b":{"size":1}}}' } do
            helper.write(copy.folder .. "/.placed", text)
            here = placed.open(copy)
            assert.equal("check", verdict { path = "a", size = 5, sha256 = SHA })
        end
    end)

    it("has no file of a name that is used here", function()
        for _, path in ipairs { ".placed", ".placing.1", ".complete", "../a" } do
            local ok, e = pcall(placed.check_paths, { { path = path, size = 1 } })
            assert.is_false(ok)
            assert.is_true(errors.is(e, "BadPath"))
        end
    end)
end)

describe("a claim", function()
    local copy
    local other = helper.start { "sleep", "300" } -- a process that lives, for who is not us

    teardown(function() other:__close() end)
    before_each(function() copy = copies.in_folder(helper.tmp(), "tiny") end)

    local function take(o)
        return claims.take {
            copy = copy, owner = { job = "spec", pod = sys.hostname(), pid = o and o.pid or sys.pid() },
            repository = "acme/tiny", deadline = sys.now() + (o and o.wait or 0),
            is_done = o and o.is_done or function() return false end,
        }
    end

    -- A heartbeat of another pod, as old as that.
    local function beat(n, age)
        local path = copy.folder .. "/.placing." .. n
        helper.write(path, '{"version":1,"owner":{"job":"serve","pod":"elsewhere","pid":1}}')
        helper.sh(("touch -d '%d seconds ago' %s"):format(age, path))
        return path
    end

    it("is one at a time, and free again when it is closed", function()
        do
            local first <close> = take { pid = other.pid }
            assert.truthy(first)
            local ok, e = pcall(take)
            assert.is_false(ok)
            assert.is_true(errors.is(e, "Busy"), tostring(e))
            assert.truthy(tostring(e):find("job spec on", 1, true), tostring(e))
        end
        local second <close> = take()
        assert.truthy(second)
    end)

    it("is not needed once there is nothing left to do", function()
        local first <close> = take { pid = other.pid }
        assert.truthy(first)
        local asked = 0
        assert.is_nil(take { wait = 10, is_done = function()
            asked = asked + 1
            return asked > 2
        end })
    end)

    it("takes over at once what a dead process has left, where a lock tells", function()
        beat(7, 1)
        local claim <close> = take()
        assert.truthy(claim)
        assert.is_nil(helper.read(copy.folder .. "/.placing.7"))
        assert.truthy(helper.read(copy.folder .. "/.placing.8"))
    end)

    -- A lock that is held for ever tells nothing.
    local function held()
        local lock = locks.take(copy.folder .. "/.placing.lock")
        return assert(lock)
    end

    it("waits for a fresh heartbeat, and takes over a stale one, where no lock tells", function()
        local _ <close> = held()
        beat(7, 30)
        assert.is_false((pcall(take)))
        beat(7, 61)
        local claim <close> = take()
        assert.truthy(claim)
    end)

    it("believes a lock rather than its own view of processes", function()
        local _ <close> = held()
        helper.write(copy.folder .. "/.placing.7",
            ('{"version":1,"owner":{"job":"x","pod":"%s","pid":4000000}}'):format(sys.hostname()))
        assert.is_false((pcall(take)))
    end)

    it("goes by the last of several heartbeats", function()
        local _ <close> = held()
        beat(9, 1000)
        beat(10, 1)
        assert.is_false((pcall(take)))
    end)
end)

describe("lock.take", function()
    it("keeps others out, says that it does, and is gone when it is closed", function()
        local path = helper.tmp() .. "/lock"
        do
            local lock <close>, sure = locks.take(path)
            assert.truthy(lock)
            assert.is_true(sure)
            assert.is_nil(locks.take(path))
        end
        local again <close> = locks.take(path)
        assert.truthy(again)
    end)

    it("names the file that it can't make", function()
        local ok, e = pcall(locks.take, "/nowhere/lock")
        assert.is_false(ok)
        assert.is_true(errors.is(e, "ENOENT"), tostring(e))
    end)
end)

describe("lock.create", function()
    it("makes a file once", function()
        local path = helper.tmp() .. "/one"
        assert.is_true(locks.create(path, "first"))
        assert.is_false(locks.create(path, "second"))
        assert.equal("first", helper.read(path))
    end)
end)

describe("disk.look", function()
    it("gives another stamp for each content, and nil where there is no file", function()
        local path = helper.tmp() .. "/file"
        helper.write(path, "12345")
        local before = disk.look(path)
        assert.equal(5, before.size)
        assert.equal(before.stamp, disk.look(path).stamp)
        helper.sh("sleep 0.02; touch -r " .. path .. " " .. path .. ".old; printf 54321 >" .. path
            .. "; touch -r " .. path .. ".old " .. path) -- even with the old time put back
        assert.are_not.equal(before.stamp, disk.look(path).stamp)
        assert.is_nil(disk.look(path .. "/none"))
        assert.is_nil(disk.look "/tmp")
    end)
end)
