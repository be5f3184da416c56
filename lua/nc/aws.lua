--- What an S3 client has to know, found as the AWS CLI finds it.
--
--     local aws = require "nc.aws"
--     local cfg = aws.resolve()             -- keys, endpoint, region; raises "NoCredentials"
--     ...
--     local keys = aws.credentials(cfg)     -- the keys again, where they may have been replaced
--
-- An option comes first, then environment variables, then the profile in ~/.aws.

local errors   = require "nc.errors"
local settings = require "nc.aws.settings"
local sources  = require "nc.aws.sources"
local text     = require "nc.core.text"

local aws = {}

local OPTIONS <const> = { "endpoint", "env", "profile", "region", "via" }
local CHECKSUMS <const> = { when_required = true, when_supported = true }
local MAX_FILE <const> = 1 << 20

-- How the world is reached; specs put their own in place.
local function read_file(path)
    local file <close> = io.open(path, "rb")
    return file and file:read(MAX_FILE) or nil
end

local VIA <const> = {
    capture = function(...) return require "nc.proc".capture(...) end,
    now = os.time,
    read = read_file,
    request = function(...) return require "nc.http".request(...) end,
}

local function check_endpoint(name, value)
    local parsed, e = text.url_parse(value)
    if not parsed then settings.refuse("%s: %s", name, e.message) end
    if parsed.query then settings.refuse("%s holds a query (?...)", name) end
    return value
end

-- https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html
local function configured_endpoint(s, service)
    local ignore = s:first({ "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS" }, "ignore_configured_endpoint_urls")
    if ignore and ignore:lower() == "true" then return nil end
    for _, name in ipairs { "AWS_ENDPOINT_URL_" .. service:upper(), "AWS_ENDPOINT_URL" } do
        local value = s:env(name)
        if value then return check_endpoint(name, value) end
    end
    local title = s:text "services"
    local section = title and s:section("services " .. title)
    local inner = section and section[service]
    local value = type(inner) == "table" and settings.clean("endpoint_url in services " .. title, inner.endpoint_url)
    if value then return check_endpoint(("endpoint_url of %s in services %s"):format(service, title), value) end
    value = s:text "endpoint_url"
    return value and check_endpoint("endpoint_url in profile " .. s.profile, value)
end

local function region_of(s, given)
    local value, name = settings.clean("region", given), "region"
    if not value then value, name = s:first({ "AWS_REGION", "AWS_DEFAULT_REGION" }, "region") end
    if not value then return "us-east-1" end
    if not value:find "^[%w_-]+$" then settings.refuse("%s is not the name of a region", name) end
    return value
end

local function max_attempts_of(s)
    local value, name = s:first({ "AWS_MAX_ATTEMPTS" }, "max_attempts")
    if not value then return nil end
    local count = value:find "^%d+$" and math.tointeger(tonumber(value))
    if not count or count < 1 then settings.refuse("%s is not a number from 1", name) end
    return count
end

-- The AWS CLI's default is when_supported; other servers answer 501 or 400 to what that adds.
local function checksum_of(s)
    local value, name = s:first({ "AWS_REQUEST_CHECKSUM_CALCULATION" }, "request_checksum_calculation")
    value = (value or "when_required"):lower()
    if not CHECKSUMS[value] then
        settings.refuse("%s is neither when_required nor when_supported", name)
    end
    return value
end

local function addressing_of(s)
    local inner = s:get "s3"
    local style = type(inner) == "table" and settings.clean("addressing_style", inner.addressing_style)
    return style and style ~= "auto" and style:lower() or nil
end

local function find_keys(s, via)
    local notes = {}
    for _, source in ipairs(sources.list) do
        local keys, note = source(s, via)
        if keys then return keys end
        notes[#notes + 1] = note
    end
    error(errors.new {
        code = "NoCredentials", op = "aws",
        message = ("no credentials for S3; looked for: %s; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
            :format(table.concat(notes, ", ")),
    }, 0)
end

-- What resolve was asked with, to ask again. Not in the configuration itself, which may get printed.
local asked = setmetatable({}, { __mode = "k" })

local function open(options)
    local via = {}
    for name, default in pairs(VIA) do via[name] = options.via and options.via[name] or default end
    local s = settings.open(options.env or os.getenv, via.read, options.profile)
    function via.endpoint(service) return configured_endpoint(s, service) end
    return s, via
end

---@class nc.aws.Config
---@field access_key string
---@field secret_key string
---@field session_token string?
---@field expires integer?        when the keys end, seconds since 1970
---@field refresh boolean         the source may have other keys later (aws.credentials)
---@field source string           where the keys were found
---@field endpoint string?        nil: AWS itself
---@field region string
---@field ca_bundle string?
---@field max_attempts integer?
---@field checksum "when_required"|"when_supported"
---@field addressing "path"|"virtual"|nil

--- Everything that the environment and the files say but for the keys: aws.credentials finds those.
---@param options table?  as of aws.resolve
---@return nc.aws.Config
function aws.configure(options)
    options = errors.check_options(options, OPTIONS)
    local s = open(options)
    local endpoint = settings.clean("endpoint", options.endpoint)
    local cfg = {
        endpoint = endpoint and check_endpoint("endpoint", endpoint) or configured_endpoint(s, "s3"),
        region = region_of(s, options.region),
        ca_bundle = s:first({ "AWS_CA_BUNDLE" }, "ca_bundle"),
        max_attempts = max_attempts_of(s),
        checksum = checksum_of(s),
        addressing = addressing_of(s),
    }
    asked[cfg] = options
    return cfg
end

--- Everything that the environment and the files say. Waits in the current task where the keys come
--- from a process or over the network.
---@param options table?  endpoint=, region=, profile= before everything else; env= a function like
--- os.getenv; via= { read=, request=, capture=, now= } in place of files, HTTP, processes and the clock
---@return nc.aws.Config
function aws.resolve(options)
    local cfg = aws.configure(errors.check_options(options, OPTIONS))
    for name, value in pairs(aws.credentials(cfg)) do cfg[name] = value end
    return cfg
end

--- The keys alone, read, or read again, from where they come from.
---@param cfg nc.aws.Config
---@return { access_key: string, secret_key: string, session_token: string?, expires: integer?, refresh: boolean,
---  source: string }
function aws.credentials(cfg)
    if not asked[cfg] then error("aws.credentials needs what aws.configure or aws.resolve returned", 2) end
    local s, via = open(asked[cfg])
    return find_keys(s, via)
end

return aws
