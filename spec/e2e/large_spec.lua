-- What is large: what is resumed is counted in bytes, memory in what the kernel says.
local helper = require "spec.helper"
local staging = require "spec.staging"

describe("a large stage", function()
    it("moves nothing twice after kill -9 in the middle of 2 GiB, and leaves no upload behind", function()
        local hub = staging.hub("2GiB", 4)
        local server <close> = helper.server { hub = hub, memory = "yes", root = false, etag = "fast" }
        assert.equal(0, (helper.run({ "curl", "-sSf", server.env.HF_ENDPOINT
            .. "/api/models/acme/tiny/tree/main?recursive=true" }, { timeout = 60 })))
        local first <close> = staging.start(server.env)
        helper.eventually(60, "parts in the bucket", function()
            local op = server:counters().s3.ops.UploadPart
            return op and op.requests > 60
        end)
        first:kill "KILL"
        first:wait()
        assert.is_nil(staging.marker(server.env))
        local before = server:counters()
        local kept = 0
        for _, upload in ipairs(staging.uploads(server)) do kept = kept + upload.bytes end
        assert.is_true(kept > 0, "nothing was under way")

        local code, _, err = staging.run(server.env)
        assert.equal(0, code, err)
        local after = server:counters()
        -- What was stored is neither fetched nor stored again: the second run moves the rest.
        local total = 2 << 30
        local slack = 64 << 10 -- headers of the shards and the small files
        local second_in = after.cdn.ops.Get.out - before.cdn.ops.Get.out
        local second_out = after.s3.ops.UploadPart["in"] - before.s3.ops.UploadPart["in"]
        assert.is_true(second_in <= total - kept + slack, ("fetched %d, kept %d"):format(second_in, kept))
        assert.is_true(second_out <= total - kept + slack, ("stored %d, kept %d"):format(second_out, kept))
        assert.equal(0, #staging.uploads(server))
        local manifest = staging.marker(server.env)
        assert.equal(9, manifest.total_files)
        for _, f in ipairs(manifest.files) do
            assert.equal(staging.sha256(hub .. "/acme/tiny/" .. f.path), f.sha256)
            assert.equal(math.max(1, math.ceil(f.size / f.part_size)), #f.parts)
        end
    end)

    it("stays under 300 MiB for 4 GiB in 16 shards", function()
        local hub = helper.tmp()
        helper.checkpoint(hub .. "/acme/tiny", { size = "4GiB", shards = 16 })
        local server <close> = helper.server { hub = hub, memory = "yes", root = false, etag = "fast" }
        local code, _, err = helper.run({ "/usr/bin/time", "-v", helper.NCRUN, "recipes/stage-weights.lua",
            "model=acme/tiny" }, { env = server.env, timeout = 280 })
        assert.equal(0, code, err)
        local peak = tonumber(err:match "Maximum resident set size %(kbytes%): (%d+)")
        assert.is_true(peak < 300 * 1024, ("peak memory was %d KiB"):format(peak))
    end)
end)

describe("a large listing", function()
    it("of a million keys stays under 200 MiB, looked at and planned", function()
        local server <close> = helper.server { memory = "yes", keys = 1000000 }
        local folder = helper.tmp()
        local function peak(line)
            local code, out, err = helper.run({ "/usr/bin/time", "-f", "peak %M", "sh", "-c", line, helper.NCRUN,
                "s3://" .. server.env.NC_BUCKET, folder }, { env = server.env, timeout = 240 })
            assert.equal(0, code, err)
            assert.is_true(tonumber(err:match "peak (%d+)") < 200 * 1024, err)
            return out
        end
        assert.equal("Total Objects: 1000000\n   Total Size: 0\n", peak '"$0" ls -r "$1" summarize=yes | tail -2')
        assert.equal("100000\n", peak '"$0" sync "$1/many" "$2" --dryrun --exclude "0[1-9]*" | wc -l')
    end)
end)
