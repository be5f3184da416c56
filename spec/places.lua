-- What the specs of ls, cat, cp, rm and sync share: trees of files, and looks at both ends.
local assert = require "luassert"
local helper = require "spec.helper"

local places = {}

---Runs ncrun with what a server prints; anything but exit code 0 is an error of the spec.
---@return string stdout, string stderr
function places.ncrun(server, ...)
    local code, out, err = helper.ncrun({ ... }, { env = server.env, timeout = 120 })
    assert.are.equal(0, code, err)
    return out, err
end

---@return integer code, string stdout, string stderr
function places.try(server, ...)
    return helper.ncrun({ ... }, { env = server.env, timeout = 120 })
end

---s3://bucket/key
function places.url(server, key)
    return ("s3://%s/%s"):format(server.env.NC_BUCKET, key or "")
end

---A new folder that holds files: path -> text, or a number of random bytes. They are an hour old.
function places.tree(files)
    local dir = helper.tmp()
    for path, content in pairs(files) do
        helper.write(dir .. "/" .. path, type(content) == "string" and content or "")
        if type(content) == "number" then
            helper.sh(("head -c %d /dev/urandom >'%s/%s'"):format(content, dir, path))
        end
    end
    helper.sh(("find '%s' -type f -exec touch -d '1 hour ago' {} +"):format(dir))
    return dir
end

---Two folders hold the same files, and nothing else.
function places.assert_same(a, b)
    local code, out, err = helper.run { "diff", "-r", a, b }
    assert.are.equal(0, code, out .. err)
end

---The keys below a prefix, as `ncrun ls -r` has them, sorted.
function places.keys(server, prefix)
    local _, out = places.try(server, "ls", "-r", places.url(server, prefix))
    local keys = {}
    for key in out:gmatch "%d%d:%d%d:%d%d +%d+ ([^\n]+)" do keys[#keys + 1] = key end
    return keys
end

---The AWS CLI, for what it makes of the same.
---@return string stdout
function places.aws(server, ...)
    local code, out, err = helper.run({ "aws", "--endpoint-url", server.env.AWS_ENDPOINT_URL, "s3", ... },
        { env = server.env, timeout = 120 })
    assert.are.equal(0, code, err)
    return out
end

---All regular files below a folder, relative to it, sorted.
function places.files(dir)
    local _, out = helper.sh(("cd '%s' && find . -type f -printf '%%P\\n' | LC_ALL=C sort"):format(dir))
    local files = {}
    for path in out:gmatch "[^\n]+" do files[#files + 1] = path end
    return files
end

return places
