--- The model hub: whether it answers, and whether it takes the token.

local errors = require "nc.errors"
local http   = require "nc.http"
local hubs   = require "nc.hub"
local json   = require "nc.json"
local sys    = require "nc.core.sys"

local hub = {}

local HINTS <const> = {
    DnsFailed = "the hub is needed to stage models, not to serve staged ones: give the pod a way out (https_proxy),"
        .. " or set HF_ENDPOINT to a mirror",
    ConnectFailed = "check HF_ENDPOINT, and that the pod has a way out (https_proxy)",
    Timeout = "a firewall may be in between: set https_proxy, or HF_ENDPOINT to a mirror",
    TlsFailed = "set SSL_CERT_FILE to a file with the certificate of its authority",
}

-- Asks who the token is; without one the answer is 401, which is an answer all the same.
-- https://huggingface.co/docs/hub/api#get-apiwhoami-v2
local function ask(settings)
    return http.request {
        url = settings.endpoint .. "/api/whoami-v2", timeout = "10s", attempts = 2,
        headers = settings.token and { Authorization = "Bearer " .. settings.token } or nil,
    }
end

local function check_token(report, settings, status, body)
    if not settings.token then
        return report:absent("hub token", "no HF_TOKEN: public repositories alone")
    end
    local known, account = pcall(json.decode, body)
    if status == 200 and known and type(account) == "table" and account.name then
        return report:ok("hub token", "found in " .. settings.source .. ", and the hub takes it")
    end
    if status ~= 401 and status ~= 403 then
        return report:ok("hub token", ("found in %s; this hub does not say whether it is good (%d)"):format(
            settings.source, status))
    end
    report:fail("hub token", errors.new {
        code = "Unauthorized", status = status,
        message = ("the token in %s is refused (%d)"):format(settings.source, status),
    }, "make a new one in the hub's settings and set HF_TOKEN to it, or unset it: public repositories need none")
end

--- Looks at the hub that HF_ENDPOINT and HF_TOKEN name.
---@param report nc.Report
function hub.check(report)
    local offline = os.getenv "HF_HUB_OFFLINE"
    if offline and offline:match "^%s*1%s*$" then return report:absent("hub", "HF_HUB_OFFLINE is set") end
    local read, settings = pcall(hubs.settings)
    if not read then return report:fail("hub token", settings) end
    local answer
    local ok, e = report:try("hub", function()
        local started = sys.now()
        answer = ask(settings)
        local ms = math.floor((sys.now() - started) * 1000 + 0.5)
        return ("%s answers in %d ms"):format(settings.endpoint, ms), { url = settings.endpoint, ms = ms }
    end, HINTS)
    if not ok then return report:skip({ "hub token" }, "no answer: " .. e.code) end
    check_token(report, settings, answer.status, answer.body)
end

return hub
