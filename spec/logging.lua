-- What the specs of supervised runs and their logs share.
local helper = require "spec.helper"
local staging = require "spec.staging"

local logging = {}

local RECIPE <const> = "recipes/nanogpt.lua"

local function words(options, script)
    local argv = { RECIPE, "pod=pod", "logs=/none", "volume=/none" }
    for _, word in ipairs(options) do argv[#argv + 1] = word end
    argv[#argv + 1] = "--"
    if type(script) == "string" then script = { "sh", "-c", script } end
    return table.move(script, 1, #script, #argv + 1, argv)
end

---Runs a command, or a script of sh, under the recipe to its end.
---@return integer code, string stdout, string stderr
function logging.run(env, options, script, timeout)
    return helper.ncrun(words(options, script), { env = env, timeout = timeout or 60 })
end

---The same in the background.
function logging.start(env, options, script)
    return helper.start({ helper.NCRUN, table.unpack(words(options, script)) }, { env = env })
end

---The log object of that name ("pod" unless said), or nil.
function logging.object(env, pod, job)
    return staging.object(env, ("logs/%s/%s.log"):format(job or "nanogpt", pod or "pod"))
end

---Runs read-logs.
---@return integer code, string stdout, string stderr
function logging.read(env, ...)
    return helper.ncrun({ "recipes/read-logs.lua", ... }, { env = env })
end

---Whether a process whose command line has this word is there.
function logging.alive(word)
    local _, out = helper.sh(("pgrep -f -- '%s' || true"):format(word:gsub("^.", "[%0]")))
    return out ~= ""
end

---Seconds now, with their fraction.
function logging.now()
    local file <close> = io.open "/proc/uptime"
    return file:read "n"
end

return logging
