-- What the specs of pulls share: files with the digests of their parts, in a bucket or a folder, and
-- pulls of them into a folder, by a program that can be killed.
local assert = require "luassert"
local helper = require "spec.helper"
local json   = require "dkjson"
local pipe   = require "spec.pipe"

local pulls = {}

pulls.PART = pipe.PART

-- A person's own script over the library: moves what a file of JSON says, and prints what came of it.
local SCRIPT <const> = [[
local json     = require "nc.json"
local s3       = require "nc.s3"
local transfer = require "nc.transfer"
local file <close> = assert(io.open((...), "rb"))
local job = json.decode(file:read "a")
local function place(at)
    if at.root then return { kind = "dir", root = at.root } end
    return { kind = "s3", client = s3.bucket(os.getenv "NC_BUCKET").client, prefix = at.prefix }
end
local done = transfer.run {
    source = place(job.from), sink = place(job.to), files = job.files,
    part_size = job.part_size, parallel = job.parallel, memory = job.memory,
}
local out = { files = json.array {}, failed = json.array {}, bytes = done.bytes, moved = done.moved }
for i, f in ipairs(done.files) do out.files[i] = { path = f.path, moved = f.moved, verified = f.verified } end
for i, f in ipairs(done.failed) do out.failed[i] = { path = f.path, code = f.error.code } end
print(json.encode(out))
if #done.failed > 0 then error(done.failed[1].error, 0) end
]]

local script -- its path

---The words of a command that does a job: { from = { prefix= } | { root= }, to=, files=, ... }.
function pulls.command(job)
    if not script then
        script = helper.tmp() .. "/pull.lua"
        helper.write(script, SCRIPT)
    end
    local path = helper.tmp() .. "/job.json"
    helper.write(path, json.encode(helper.env({ part_size = pulls.PART }, job)))
    return { helper.NCRUN, script, path }
end

---Does a job in a program of its own; wrap: words in front of it.
---@return integer code, table|nil result, string stderr
function pulls.run(job, env, wrap)
    local argv = { table.unpack(wrap or {}) }
    table.move(pulls.command(job), 1, 3, #argv + 1, argv)
    local code, out, err = helper.run(argv, { env = env, timeout = 100 })
    return code, json.decode(out), err
end

---The XXH3-128 of each part of the file at path, by a program that is not ours.
---@return string[]
function pulls.digests(path)
    local list = {}
    local _, out = helper.sh(("split -b %d --filter=xxh128sum '%s'"):format(pulls.PART, path))
    for digest in out:gmatch "(%x+) [^\n]*\n" do list[#list + 1] = digest end
    if #list == 0 then list[1] = "99aa06d3014798d86001c324468d497f" end -- of nothing
    return list
end

---A folder with these files (path -> text), and a list of them with the digests of their parts.
---@return string folder, table[] files
function pulls.folder(texts)
    local folder, files = helper.tmp(), {}
    for path, text in pairs(texts) do
        helper.write(folder .. "/" .. path, text)
        files[#files + 1] = { path = path, size = #text, parts = pulls.digests(folder .. "/" .. path) }
    end
    table.sort(files, function(a, b) return a.path < b.path end)
    return folder, files
end

---The same with one file of noise, big.bin.
function pulls.random(size)
    local folder = helper.tmp()
    helper.sh(("head -c %d /dev/urandom >%s/big.bin"):format(size, folder))
    return folder, { { path = "big.bin", size = size, parts = pulls.digests(folder .. "/big.bin") } }
end

---The local server with all files of a folder in its bucket below from/, and the ETags in the list.
function pulls.server(folder, files, options)
    local server = helper.server(helper.env({ etag = "fast" }, options or {}))
    local bucket = pipe.bucket(server)
    for _, f in ipairs(files) do pulls.upload(bucket, "from/" .. f.path, helper.read(folder .. "/" .. f.path)) end
    for object in bucket:list "from/" do
        for _, f in ipairs(files) do
            if "from/" .. f.path == object.key then f.etag = object.etag end
        end
    end
    server:reset()
    return server
end

---Stores an object in parts, where it is large.
function pulls.upload(bucket, key, text)
    local size, parts = pulls.PART, {}
    if #text <= size then return bucket:put(key, text) end
    local id = bucket:create_upload(key)
    for i = 1, (#text + size - 1) // size do
        parts[i] = { number = i, etag = bucket:upload_part(key, id, i, text:sub((i - 1) * size + 1, i * size)) }
    end
    bucket:complete_upload(key, id, parts)
end

---Requests and bytes of one operation on the bucket.
function pulls.count(server, op)
    local counters = server:counters().s3.ops[op]
    return counters and counters.requests or 0, counters and counters.out or 0
end

---What is half-written below a folder, and its journals: a list of paths.
function pulls.half_written(folder)
    local list = {}
    local _, out = helper.run { "find", folder, "-name", "*.part", "-o", "-name", "*.parts" }
    for path in out:gmatch "[^\n]+" do list[#list + 1] = path end
    table.sort(list)
    return list
end

---Parts that the journals below a folder list.
function pulls.noted(folder)
    local n = 0
    for _, path in ipairs(pulls.half_written(folder)) do
        if path:find "%.parts$" then
            n = n + select(2, (helper.read(path) or ""):gsub("\n%d+ %x+%f[\n]", ""))
        end
    end
    return n
end

---Does a job of one file, once its journal lists `least` parts kills it, and gives how many there are.
function pulls.kill_half_way(job, env, least)
    for _ = 1, 5 do
        helper.sh("rm -rf " .. job.to.root .. "/*")
        local child <close> = helper.start(pulls.command(job), { env = env })
        helper.eventually(30, "parts in the journal", function()
            return pulls.noted(job.to.root) >= least or not child:running()
        end)
        child:kill "KILL"
        child:wait(10)
        local n = pulls.noted(job.to.root)
        if n >= least and n < job.files[1].size // pulls.PART then return n end
    end
    error "it was never half-way"
end

---Everything that has a final name below `to` is byte for byte what `from` has under it.
---@return integer count
function pulls.assert_whole_or_absent(from, to)
    local n = 0
    local _, out = helper.sh(
        ("cd '%s' && find . -type f ! -name '*.part' ! -name '*.parts' -printf '%%P\n'"):format(to))
    for path in out:gmatch "[^\n]+" do
        assert.equal(0, (helper.run { "cmp", from .. "/" .. path, to .. "/" .. path }), path)
        n = n + 1
    end
    return n
end

---Everything is there, and nothing else.
function pulls.assert_pulled(from, to)
    local code, out, err = helper.run { "diff", "-r", from, to }
    assert.equal(0, code, out .. err)
end

---Flips one bit of the file at path.
function pulls.flip(path, offset)
    local file <close> = assert(io.open(path, "r+b"))
    file:seek("set", offset)
    local byte = file:read(1):byte()
    file:seek("set", offset)
    file:write(string.char(byte ~ 1))
end

return pulls
