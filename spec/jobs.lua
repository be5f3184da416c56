-- What the specs of run-job and interlink-job share.
local helper = require "spec.helper"
local staging = require "spec.staging"

local jobs = {}

local json = require "dkjson"

-- No volume and no log folder of this machine, and looks that don't wait long.
local WORDS <const> = { "recipes/run-job.lua", "volume=/none", "logs=/none", "settle=500ms" }

local function words(options, script)
    local argv = table.move(WORDS, 1, #WORDS, 1, {})
    table.move(options, 1, #options, #argv + 1, argv)
    argv[#argv + 1] = "--"
    if type(script) == "string" then script = { "sh", "-c", script } end
    return table.move(script, 1, #script, #argv + 1, argv)
end

---An environment in which jobs work below a folder of their own, and nobody is their user.
function jobs.env(server)
    return helper.env(server.env, { TMPDIR = helper.tmp(), USER = false, LOGNAME = false, NRP_USER = "alice" })
end

---Runs a command, or a script of sh, as a job to its end.
---@return integer code, string stdout, string stderr
function jobs.run(env, options, script, timeout)
    return helper.ncrun(words(options, script), { env = env, timeout = timeout or 60 })
end

---The same in the background.
function jobs.start(env, options, script)
    return helper.start({ helper.NCRUN, table.unpack(words(options, script)) }, { env = env })
end

---Puts a file into the bucket.
function jobs.put(env, path, key)
    local code, _, err = helper.ncrun({ "cp", path, ("s3://%s/%s"):format(env.NC_BUCKET, key) }, { env = env })
    if code ~= 0 then error(err, 2) end
end

---All keys below a prefix, in order.
---@return string[]
function jobs.keys(env, prefix)
    local _, out = helper.ncrun({ "ls", "-r", ("s3://%s/%s"):format(env.NC_BUCKET, prefix) }, { env = env })
    local keys = {}
    for key in out:gmatch "%d%d:%d%d:%d%d +%d+ ([^\n]+)" do keys[#keys + 1] = key end
    return keys
end

---The checkpoints that are marked complete, the oldest first: { number, files = { path = bytes }, torn = path
---of a file that is not what the marker says }.
---@return table[]
function jobs.checkpoints(env, prefix)
    local list = {}
    prefix = prefix or "alice/run-job/checkpoints/"
    for _, key in ipairs(jobs.keys(env, prefix)) do
        local number = key:match "/(%d+)/%.complete$"
        local body = number and staging.object(env, key)
        if body then -- it may be gone again by now
            local kept = { number = number, files = {} }
            for _, f in ipairs(json.decode(body).files) do
                local data = staging.object(env, prefix .. number .. "/" .. f.path)
                local path = helper.tmp() .. "/data"
                helper.write(path, data or "")
                if data and staging.sha256(path) ~= f.sha256 then kept.torn = f.path end
                kept.files[f.path] = data
            end
            list[#list + 1] = kept
        end
    end
    return list
end

---What is left in the jobs' scratch folders.
function jobs.left(env)
    local _, out = helper.sh("ls " .. env.TMPDIR)
    return out
end

return jobs
