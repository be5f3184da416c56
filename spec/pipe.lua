-- What the specs of faults share: hub -> bucket in this process, on the local server.
local assert   = require "luassert"
local errors   = require "nc.errors"
local helper   = require "spec.helper"
local hubs     = require "nc.hub"
local s3       = require "nc.s3"
local task     = require "nc.task"
local transfer = require "nc.transfer"

local pipe = {}

pipe.PART = 5 << 20 -- the least a part may have, but the last
pipe.PREFIX = "copy/"

---Bytes that differ from place to place.
---@return string
function pipe.bytes(size)
    local list = {}
    for i = 1, size // 64 + 1 do list[i] = ("%016d"):format(i * 7919):rep(4) end
    return table.concat(list):sub(1, size)
end

---@return string 64 hex digits
function pipe.sha256(text)
    local _, out = helper.run({ "sha256sum" }, { stdin = text })
    return out:match "^%x+"
end

---The local server with the repository owner/model; a file over 1000 bytes lies behind a redirect.
---@param files table<string, string>
function pipe.server(files, faults)
    local server = helper.server { lfs_over = 1000, faults = faults }
    for path, text in pairs(files) do
        helper.write(("%s/owner/model/%s"):format(server.hub, path), text)
    end
    server.files = files
    return server
end

function pipe.model(server)
    return hubs.open({ endpoint = server.env.HF_ENDPOINT, getenv = function() end }):pin "owner/model"
end

---What the main branch of a repository is at.
function pipe.commit(server, repository)
    return hubs.open({ endpoint = server.env.HF_ENDPOINT, getenv = function() end }):pin(repository).commit
end

---@param changes table|nil  environment variables over the server's own
function pipe.bucket(server, changes)
    local env = helper.env({ HOME = helper.tmp() }, server.env, changes or {})
    return s3.bucket(env.NC_BUCKET, { env = function(name) return env[name] end })
end

---Moves everything (or options.files) to PREFIX, in parts of the least size.
---@return table result  of transfer.run
function pipe.move(server, options)
    local model = pipe.model(server)
    local bucket = options and options.bucket or pipe.bucket(server)
    return transfer.run(helper.env({
        source = model:source(), sink = { kind = "s3", client = bucket.client, prefix = pipe.PREFIX },
        files = model:files(), parallel = 6, part_size = pipe.PART,
    }, options or {}, { bucket = false }))
end

---What is in the bucket below PREFIX: path -> size.
function pipe.listed(server)
    local there = {}
    for object in pipe.bucket(server):list(pipe.PREFIX) do
        there[object.key:sub(#pipe.PREFIX + 1)] = object.size
    end
    return there
end

---Asserts that every file is in the bucket byte for byte, and no upload is left.
function pipe.assert_moved(server, bucket)
    bucket = bucket or pipe.bucket(server)
    for path, text in pairs(server.files) do
        local body = bucket:get(pipe.PREFIX .. path, { max_body = "64MiB" })
        assert.is_true(body == text, path .. (body and " differs" or " is missing"))
    end
    assert.is_nil(bucket:uploads ""())
end

---Keys and prefixes that a listing gives.
function pipe.keys(iterator)
    local keys = {}
    for object in iterator do keys[#keys + 1] = object.key or object.prefix end
    return keys
end

---Calls f(1) to f(n) in a few tasks.
function pipe.together(n, f)
    local next_one, workers = 0, {}
    for i = 1, 16 do
        workers[i] = function()
            while next_one < n do
                next_one = next_one + 1
                f(next_one)
            end
        end
    end
    task.all(workers)
end

---Stores n small objects: PREFIX0001 and so on.
function pipe.fill(bucket, prefix, n)
    pipe.together(n, function(i) bucket:put(("%s%04d"):format(prefix, i), "x") end)
end

---The error object that f raises.
function pipe.failure(f, ...)
    local ok, e = pcall(f, ...)
    assert.is_false(ok, "it did not fail")
    assert.is_true(errors.is(e), tostring(e))
    return e
end

---The paths of a list of files.
function pipe.paths(files)
    local list = {}
    for i, f in ipairs(files) do list[i] = f.path end
    table.sort(list)
    return list
end

return pipe
