-- What a transfer needs of memory, whatever it moves. Where the memory cgroup can be used, the kernel
-- itself keeps the limit; elsewhere the peak is compared with it.
local helper = require "spec.helper"
local pipe   = require "spec.pipe"
local pulls  = require "spec.pulls"

local LIMIT <const> = 256 << 20
local CGROUPS <const> = { -- version 1 and 2: where one is made, and what bounds it
    { "/sys/fs/cgroup/memory", "memory.limit_in_bytes" }, { "/sys/fs/cgroup", "memory.max" },
}

-- Words that run what follows them inside the limit, or nil.
local function bounded(name)
    for _, kind in ipairs(CGROUPS) do
        local folder = ("%s/%s"):format(kind[1], name)
        local line = ("mkdir %s 2>/dev/null && echo %d >%s/%s"):format(folder, LIMIT, folder, kind[2])
        if helper.sh(line) == 0 then
            return { "sh", "-c", ("echo $$ >%s/cgroup.procs && exec \"$@\""):format(folder), "bounded" },
                setmetatable({}, { __close = function()
                    helper.eventually(10, "the end of " .. folder, function()
                        return helper.sh("rmdir " .. folder) == 0
                    end)
                end })
        end
        helper.sh("rmdir " .. folder .. " 2>/dev/null")
    end
end

-- Does the job; the peak of its memory in KiB.
local function measured(job, env, wrap)
    local words = { table.unpack(wrap or {}) }
    table.move({ "/usr/bin/time", "-f", "peak %M" }, 1, 3, #words + 1, words)
    local code, result, err = pulls.run(job, env, words)
    assert.equal(0, code, err)
    return tonumber(err:match "peak (%d+)"), result
end

-- An object of `times` equal parts of 64 MiB, put together inside the server.
local function grow(bucket, key, times)
    local size, parts = 64 << 20, {}
    bucket:put("seed", pipe.bytes(1 << 20):rep(64))
    local id = bucket:create_upload(key)
    for i = 1, times do parts[i] = { number = i, etag = bucket:copy_part(key, id, i, "seed", { 0, size - 1 }) } end
    bucket:complete_upload(key, id, parts)
    return { path = key:match "[^/]+$", size = times * size }
end

local function server_with(path, times)
    local server = helper.server { memory = "yes", root = false, etag = "fast" }
    local bucket = pipe.bucket(server)
    return server, grow(bucket, "from/" .. path, times), bucket
end

describe("2 GiB", function()
    for _, way in ipairs { "from a bucket to a folder", "from a folder to a bucket" } do
        it(way .. " need no more than a memory cgroup of 256 MiB", function()
            local server <close>, file, bucket = server_with("big", 32)
            local folder = helper.tmp()
            local job = { from = { prefix = "from/" }, to = { root = folder }, files = { file }, part_size = 16 << 20 }
            if way:find "^from a folder" then
                helper.sh(("truncate -s 2G %s/big"):format(folder))
                job = { from = { root = folder }, to = { prefix = "to/" }, files = { file }, part_size = 16 << 20 }
            end
            local wrap, _ <close> = bounded("ncrun-spec-" .. folder:gsub("%W", "-"))
            local peak, result = measured(job, server.env, wrap)
            assert.is_true(peak < LIMIT >> 10, ("peak memory was %d KiB"):format(peak))
            assert.equal(2 << 30, result.bytes)
            if job.to.root then
                local _, out = helper.sh("wc -c <" .. folder .. "/big")
                assert.equal(2 << 30, tonumber(out))
            else
                assert.equal(2 << 30, bucket:head("to/big").size)
            end
            os.remove(folder .. "/big")
        end)
    end
end)

describe("memory", function()
    it("of a pull of 1 GiB is within 10% of that of 64 MiB", function()
        local server <close>, large, bucket = server_with("large", 16)
        local small = grow(bucket, "from/small", 1)
        local function peak(file, parallel)
            local folder = helper.tmp()
            local kib = measured({
                from = { prefix = "from/" }, to = { root = folder }, files = { file }, part_size = 8 << 20,
                parallel = parallel,
            }, server.env)
            helper.sh("rm -f " .. folder .. "/*")
            return kib
        end
        -- The number of parts in flight is what it depends on; without parallel= that climbs with time.
        -- A short pull does not always come to have all its blocks in use at once: the most of five does.
        local a, b = 0, peak(large, 4)
        for _ = 1, 5 do a = math.max(a, peak(small, 4)) end
        assert.is_true(b < a * 1.1, ("64 MiB: %d KiB, 1 GiB: %d KiB"):format(a, b))
        local c = peak(large)
        assert.is_true(c < 96 << 10, ("1 GiB, as many parts as make it faster: %d KiB"):format(c))
    end)

    it("of a list that comes on the way does not grow with it", function()
        local server <close> = helper.server { memory = "yes", root = false, etag = "fast" }
        pipe.bucket(server):put("from/one", "x")
        local script = helper.tmp() .. "/many.lua"
        helper.write(script, [[
            local s3, transfer = require "nc.s3", require "nc.transfer"
            local n = tonumber((...))
            local client = s3.bucket(os.getenv "NC_BUCKET").client
            local done = transfer.run {
                source = { kind = "s3", client = client, prefix = "from/" }, sink = { kind = "none" },
                files = function()
                    if n == 0 then return nil end
                    local list = {}
                    for i = 1, 1000 do list[i] = { path = "one", size = 1 } end
                    n = n - 1000
                    return list
                end,
            }
            print(done.count)
        ]])
        local peaks = {}
        for i, n in ipairs { 2000, 20000 } do
            local code, out, err = helper.run({ "/usr/bin/time", "-f", "peak %M", helper.NCRUN, script,
                ("%d"):format(n) }, { env = server.env, timeout = 100 })
            assert.equal(0, code, err)
            assert.equal(n .. "\n", out)
            peaks[i] = tonumber(err:match "peak (%d+)")
        end
        assert.is_true(peaks[2] < 200 * 1024, ("%d KiB for 2,000, %d for 20,000"):format(peaks[1], peaks[2]))
    end)
end)
