-- Pulls that were killed: the next run moves what is missing, and believes nothing that it can't check.
local helper   = require "spec.helper"
local pipe     = require "spec.pipe"
local pulls    = require "spec.pulls"
local sys      = require "nc.core.sys"
local transfer = require "nc.transfer"

local PART <const> = pulls.PART
local PARTS <const> = 4
local TEXT <const> = pipe.bytes(PARTS * PART - 1000)
local VERSION <const> = "commit 0123 file 4567"

describe("a pull that was killed with -9 in the middle", function()
    it("goes on where it was, from a bucket", function()
        local folder, files = pulls.random(12 * PART)
        local server <close> = pulls.server(folder, files, { rate = 40 << 20 })
        local to = helper.tmp()
        local job = { from = { prefix = "from/" }, to = { root = to }, files = files, parallel = 4 }
        files[1].version = VERSION
        local kept = pulls.kill_half_way(job, server.env, 3)
        server:reset()
        local code, result, err = pulls.run(job, server.env)
        assert.equal(0, code, err)
        assert.equal((12 - kept) * PART, result.moved)
        assert.same({ { path = "big.bin", moved = result.moved, verified = "parts" } }, result.files)
        local requests, bytes = pulls.count(server, "GetObject")
        assert.equal(12 - kept, requests)
        assert.equal(result.moved, bytes)
        pulls.assert_pulled(folder, to)
    end)

    it("goes on where it was, from a folder", function()
        local folder, files = pulls.random(40 * PART)
        local to = helper.tmp()
        local job = { from = { root = folder }, to = { root = to }, files = files, parallel = 4 }
        files[1].version = VERSION
        local kept = pulls.kill_half_way(job, {}, 2)
        local code, result, err = pulls.run(job)
        assert.equal(0, code, err)
        assert.equal((40 - kept) * PART, result.moved)
        pulls.assert_pulled(folder, to)
    end)
end)

describe("what a run that is over has left half-written", function()
    local folder, files, server, bucket, to

    setup(function()
        folder, files = pulls.folder { big = TEXT }
        server = pulls.server(folder, files)
        bucket = pipe.bucket(server)
    end)

    teardown(function() server:__close() end)

    before_each(function()
        to = helper.tmp()
        server:faults {}
        server:reset()
    end)

    -- A half-written file with parts 1, 2 and 4 (from 1), and its journal; changes: head=, tail= of it, data=.
    local function leave(changes)
        changes = changes or {}
        local d = files[1].parts
        local data = changes.data or TEXT:sub(1, 2 * PART) .. ("\0"):rep(PART) .. TEXT:sub(3 * PART + 1)
        helper.write(to .. "/big.0123abcd.part", data)
        helper.write(to .. "/big.0123abcd.parts", (changes.head
            or ("ncrun parts 1\n%d %d %s\n"):format(#TEXT, PART, VERSION))
            .. (changes.tail or ("0 %s\n3 %s\n1 %s\n"):format(d[1], d[4], d[2])))
    end

    local function pull(changes)
        return transfer.run {
            source = { kind = "s3", client = bucket.client, prefix = "from/" }, sink = { kind = "dir", root = to },
            files = { helper.env(files[1], { version = VERSION }, changes or {}) }, part_size = PART, parallel = 4,
        }
    end

    -- What is moved when these parts (from 1) have to come.
    local function assert_moves(parts, changes)
        local bytes = 0
        for _, i in ipairs(parts) do bytes = bytes + math.min(PART, #TEXT - (i - 1) * PART) end
        local result = pull(changes)
        assert.same({}, result.failed)
        assert.equal(bytes, result.moved)
        assert.equal(bytes, (select(2, pulls.count(server, "GetObject"))))
        pulls.assert_pulled(folder, to) -- nothing half-written either
        return result.files[1]
    end

    it("is gone on with, part by part", function()
        leave()
        assert.equal("parts", assert_moves({ 3 }).verified)
    end)

    it("is gone on with where no digest of a part is known, and hashed as a whole", function()
        leave()
        assert.equal("sha256", assert_moves({ 3 }, { parts = false, sha256 = pipe.sha256(TEXT) }).verified)
    end)

    it("is not gone on with for another version", function()
        leave()
        assert_moves({ 1, 2, 3, 4 }, { version = "commit 0123 file 4568" })
    end)

    it("is not gone on with for no version at all", function()
        leave()
        assert_moves({ 1, 2, 3, 4 }, { version = false, etag = false })
    end)

    it("is not gone on with where the journal is of another size", function()
        leave { head = ("ncrun parts 1\n%d %d %s\n"):format(#TEXT + 1, PART, VERSION) }
        assert_moves { 1, 2, 3, 4 }
    end)

    it("is not gone on with where the parts were of another size", function()
        leave { head = ("ncrun parts 1\n%d %d %s\n"):format(#TEXT, 2 * PART, VERSION) }
        assert_moves { 1, 2, 3, 4 }
    end)

    it("is not gone on with where the file is of another size than its journal says", function()
        leave { data = TEXT:sub(1, 2 * PART) }
        assert_moves { 1, 2, 3, 4 }
    end)

    for name, head in pairs {
        empty = "", ["of zeros"] = ("\0"):rep(4096), ["of another format"] = "ncrun parts 2\n", ["cut"] = "ncrun par",
    } do
        it("is not gone on with where the journal is " .. name, function()
            leave { head = head, tail = "" }
            assert_moves { 1, 2, 3, 4 }
        end)
    end

    it("counts no line of the journal that was cut short", function()
        local d = files[1].parts
        for _, cut in ipairs { d[2], d[2]:sub(1, 31) .. "\n", "" } do
            leave { tail = ("0 %s\n3 %s\n1 %s"):format(d[1], d[4], cut) }
            server:reset()
            assert_moves { 2, 3 }
            helper.sh("rm " .. to .. "/big")
        end
    end)

    it("counts no line of the journal that makes no sense", function()
        local d = files[1].parts
        leave { tail = ("0 %s\n4 %s\n-1 %s\n1 %s\n99999999999999999999 %s\n\n1 1 %s\n"):format(
            d[1], d[2], d[2], d[2]:upper(), d[2], d[2]) }
        assert_moves { 2, 3, 4 }
    end)

    it("is looked at before it is believed: one flipped bit, and the part comes again", function()
        leave()
        pulls.flip(to .. "/big.0123abcd.part", 2 * PART - 1)
        assert_moves { 2, 3 }
    end)

    it("is nothing when the journal has the digests of other bytes", function()
        -- They are what was written, and not what the manifest wants.
        leave { data = ("x"):rep(#TEXT) }
        local digests = pulls.digests(to .. "/big.0123abcd.part")
        leave { data = ("x"):rep(#TEXT), tail = ("0 %s\n1 %s\n"):format(digests[1], digests[2]) }
        assert_moves { 1, 2, 3, 4 }
    end)

    it("is fetched all over when it turns out wrong in the end", function()
        leave { data = ("x"):rep(#TEXT) }
        local digests = pulls.digests(to .. "/big.0123abcd.part")
        leave { data = ("x"):rep(#TEXT), tail = ("0 %s\n1 %s\n"):format(digests[1], digests[2]) }
        local result = pull { parts = false, sha256 = pipe.sha256(TEXT) }
        assert.same({}, result.failed)
        pulls.assert_pulled(folder, to)
    end)

    it("is left alone while its writer lives", function()
        leave()
        local writer <close> = helper.start { "flock", to .. "/big.0123abcd.part", "sh", "-c", "echo locked; sleep 60" }
        helper.eventually(10, "the lock", function() return writer:stdout() == "locked\n" end)
        local result = pull()
        assert.equal(#TEXT, result.moved)
        assert.is_true(helper.read(to .. "/big") == TEXT)
        assert.same({ to .. "/big.0123abcd.part", to .. "/big.0123abcd.parts" }, pulls.half_written(to))
    end)

    it("is taken by one run only, and the others make their own", function()
        leave()
        local file = helper.env(files[1], { version = VERSION })
        local job = { from = { prefix = "from/" }, to = { root = to }, files = { file } }
        local children <close> = setmetatable({}, { __close = function(list)
            for _, child in ipairs(list) do child:__close() end
        end })
        for i = 1, 3 do children[i] = helper.start(pulls.command(job), { env = server.env }) end
        for i = 1, 3 do
            local code, _, err = children[i]:wait(60)
            assert.equal(0, code, err)
        end
        pulls.assert_pulled(folder, to)
    end)

    it("is removed with what else lies there of this file, and nothing else is", function()
        leave()
        helper.write(to .. "/big.00000000.part", "junk")
        helper.write(to .. "/big.00000001.part", "junk")
        helper.write(to .. "/big.00000001.parts", "junk")
        for _, name in ipairs { "big.part", "big.0123.part", "bigger.00000000.part", "big.0000000g.part" } do
            helper.write(to .. "/" .. name, "mine")
        end
        pull()
        for _, name in ipairs { "big.part", "big.0123.part", "bigger.00000000.part", "big.0000000g.part" } do
            assert.equal("mine", helper.read(to .. "/" .. name), name)
            os.remove(to .. "/" .. name)
        end
        pulls.assert_pulled(folder, to)
    end)

    it("stays for the next run where the service fails, and goes where the bytes are wrong", function()
        server:faults { "GET *big nth=3- status=403:AccessDenied" }
        assert.equal("AccessDenied", pipe.failure(pull, { version = VERSION }).code)
        assert.is_true(pulls.noted(to) <= 2)
        server:faults {}
        server:reset()
        local kept = pulls.noted(to)
        local result = pull()
        assert.is_true(result.moved <= #TEXT - kept * PART + 1000)
        pulls.assert_pulled(folder, to)
    end)
end)

describe("SIGKILL at 50 random points of a pull", function()
    it("never leaves part of a file under its name, and the run after them completes", function()
        local texts = {
            ["a/two"] = pipe.bytes(PART + 1), ["a/three"] = pipe.bytes(2 * PART + 17), one = pipe.bytes(3 << 20),
        }
        for i = 1, 6 do texts["small" .. i] = pipe.bytes(i * 20000) end
        local folder, files = pulls.folder(texts)
        local server <close> = pulls.server(folder, files, { rate = 80 << 20 })
        local to = helper.tmp()
        local job = { from = { prefix = "from/" }, to = { root = to }, files = files, parallel = 4 }
        local argv = pulls.command(job)
        local killed, seen = 0, 0
        local began = sys.now()
        assert.equal(0, (pulls.run(job, server.env)))
        local whole = sys.now() - began -- what a pull takes on this machine, now
        helper.sh("rm -rf " .. to .. "/*")
        math.randomseed(os.time())
        for _ = 1, 50 do
            local code, _, err = helper.run({ "timeout", "-s", "KILL", ("%.3f"):format(0.01 + math.random() * whole),
                table.unpack(argv) }, { env = server.env, timeout = 30 })
            seen = seen + pulls.assert_whole_or_absent(folder, to)
            if code == 0 then
                pulls.assert_pulled(folder, to)
                helper.sh("rm -rf " .. to .. "/*")
            else
                assert.equal(137, code, err)
                killed = killed + 1
            end
        end
        assert.is_true(killed >= 10 and seen > 0, ("%d were killed, %d files seen"):format(killed, seen))
        local code, result, err = pulls.run(job, server.env)
        assert.equal(0, code, err)
        for _, f in ipairs(result.files) do assert.equal("parts", f.verified) end
        pulls.assert_pulled(folder, to)
    end)
end)
