--- HTTP requests: one call, one answer, whatever its status.
--
--     local res = http.request { url = "https://example.org/x", timeout = "10s" }
--     res.status, res.headers["content-type"], res.body
--
-- Redirects are not followed. A network failure raises an error object: DnsFailed, ConnectFailed,
-- TlsFailed, Timeout, NetworkError, ShortBody, LongBody. Proxies (https_proxy, NO_PROXY) and CA
-- files (SSL_CERT_FILE, CURL_CA_BUNDLE) of the environment are honoured.

local core   = require "nc.core.http"
local errors = require "nc.errors"
local task   = require "nc.task"
local text   = require "nc.core.text"
local units  = require "nc.units"

local http = {}

local OPTIONS <const> = {
    "attempts", "body", "ca_file", "headers", "max_body", "method", "stall", "timeout", "url",
}

--- Waits for a call of nc.core.http, nc.core.s3 or nc.core.hub; returns its result or raises its
--- error.
---@return { status: integer, headers: table<string, string>, body: string, attempts: integer }
function http.await(call)
    local running <close> = call
    task.wait(running:token())
    local result, e = running:result()
    if e then error(e, 0) end
    return result
end

-- { Name = value } as a sorted list of pairs, refusing what would start another header.
local function pairs_of(headers)
    local list = {}
    for name, value in pairs(headers or {}) do
        value = tostring(value)
        if (name .. value):find "%c" then
            error("header " .. name:gsub("%c", "?") .. " holds a control character", 3)
        end
        list[#list + 1] = { name, value }
    end
    table.sort(list, function(a, b) return a[1] < b[1] end)
    return list
end

---@param options { url: string, method: string?, headers: table<string, string>?, body: string?,
---  timeout: string|number?, stall: string|number?, max_body: string|integer?, attempts: integer?,
---  ca_file: string? }  attempts: 1 unless said; max_body: 1 MiB, a longer answer is an error
function http.request(options)
    local o = errors.check_options(options, OPTIONS)
    if type(o.url) ~= "string" then error("http.request needs a url", 2) end
    local url, bad = text.url_parse(o.url)
    if not url then error(bad, 0) end
    local method = o.method or "GET"
    return http.await(core.start {
        method = method,
        url = o.url,
        what = ("%s %s://%s%s"):format(method, url.scheme, url.authority, url.path),
        headers = pairs_of(o.headers),
        body = o.body,
        max_body = o.max_body and units.size(o.max_body, 2),
        timeout = o.timeout and units.duration(o.timeout, 2),
        stall = o.stall and units.duration(o.stall, 2),
        attempts = o.attempts or 1,
        ca_file = o.ca_file,
    })
end

return http
