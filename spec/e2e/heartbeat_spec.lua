-- The `.staging` heartbeat: written by C on its own thread, whatever the script does.
local copies = require "nc.copy"
local beats = require "nc.core.heartbeat"
local core = require "nc.core.transfer"
local helper = require "spec.helper"
local json = require "nc.json"
local marker = require "nc.marker"
local s3 = require "nc.s3"
local sys = require "nc.core.sys"
local task = require "nc.task"

local KEY <const> = "models/tiny/.staging"

local function open(server)
    return s3.bucket(server.env.NC_BUCKET, { env = function(name) return server.env[name] end })
end

local function text(job)
    return marker.encode_staging {
        owner = { job = job or "spec", pod = "here", pid = 1 }, repository = "a/b", commit = ("0"):rep(40),
        started = "2026-11-29T00:00:00Z", journal = { done = {}, unverified = {} },
    }
end

local function puts(server)
    local times = {}
    for _, entry in ipairs(server:log()) do
        if entry.op == "PutObject" and entry.path:find(KEY, 1, true) then times[#times + 1] = entry.start_ms end
    end
    return times
end

describe("a heartbeat", function()
    it("goes on while the script is busy", function()
        local server <close> = helper.server()
        local bucket <close> = open(server)
        local beat <close> = copies.in_bucket(bucket, "tiny"):heartbeat(text(), 1.2)
        local till = sys.now() + 4.2
        while sys.now() < till do end -- luacheck: ignore 542
        beat:stop(false)
        local n = #puts(server)
        assert.is_true(n >= 3 and n <= 5, n .. " beats in 4.2 s")
    end)

    it("never writes its key twice within a second, however often it is asked", function()
        local server <close> = helper.server()
        local bucket <close> = open(server)
        local beat <close> = copies.in_bucket(bucket, "tiny"):heartbeat(text(), 60)
        for i = 1, 30 do
            beat:set(text("job " .. i), true)
            task.sleep "0.1s"
        end
        beat:stop(true)
        local times = puts(server)
        assert.is_true(#times >= 3)
        for i = 2, #times do assert.is_true(times[i] - times[i - 1] >= 1000, "two writes within a second") end
        assert.equal("job 30", marker.decode_staging((bucket:get(KEY))).owner.job)
    end)

    it("tells of bytes that moved, and stops when none does", function()
        local hub = helper.tmp()
        helper.checkpoint(hub .. "/acme/tiny", { size = "16MiB", shards = 2 })
        local server <close> = helper.server { hub = hub, faults = { "GET * side=cdn stall=1000000" } }
        local bucket <close> = open(server)
        local copy = copies.in_bucket(bucket, "tiny")
        local model = require "nc.hub".open({ getenv = function(name) return server.env[name] end }):pin "acme/tiny"
        local beat <close>, token = beats.start(
            { client = bucket.client, key = KEY, interval = 1, stall = 2 }, text())
        task.wait(token)
        local times, body
        do
            local t <close> = core.new { source = model:source(), sink = copy:sink() }
            for _, f in ipairs(model:files { allow = { "*.safetensors" } }) do t:add(f) end
            beat:watch(t)
            t:start()
            task.sleep "6s"
            times, body = puts(server), json.decode((bucket:get(KEY)))
            beat:watch(nil)
        end
        assert.is_true(#times >= 2 and #times <= 4, #times .. " beats in 6 s of which 4 were silent")
        assert.equal(2, body.files_total)
        assert.equal(16 << 20, body.bytes_total // (1 << 20) << 20)
        assert.is_truthy(body.moved:match "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$")
    end)

    it("says why when it can't be written at all, and goes on after a refusal", function()
        local server <close> = helper.server { faults = { "PUT *.staging nth=1 status=403:AccessDenied" } }
        local bucket <close> = open(server)
        local copy = copies.in_bucket(bucket, "tiny")
        local ok, e = pcall(copy.claim, copy, text() .. "}")
        assert.is_false(ok)
        assert.equal("AccessDenied", e.code)
        server:faults { "PUT *.staging nth=2 status=403:AccessDenied" }
        local beat <close> = copy:heartbeat(text(), 1)
        task.sleep "3.5s"
        assert.is_nil(beat:failure())
        assert.is_true(#puts(server) >= 4)
    end)
end)
