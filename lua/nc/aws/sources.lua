--- The places where credentials may be, in the order in which the AWS CLI looks.
--
-- Each source is a function of (settings, via) that returns the keys it found, or nil and a note of
-- what it looked for. One that is there and does not work raises: going on to the next would hide it.
-- No message holds a key, a token or anything that a helper program wrote.

local errors   = require "nc.errors"
local json     = require "nc.json"
local s3xml    = require "nc.core.s3xml"
local settings = require "nc.aws.settings"
local text     = require "nc.core.text"

local sources = {}

local clean = settings.clean

local function broken(format, ...)
    error(errors.new { code = "NoCredentials", message = format:format(...), op = "aws" }, 0)
end

-- A request whose failure is told as this source's; being cancelled is not a failure.
local function ask(via, what, request)
    local ok, answer = pcall(via.request, request)
    if ok then return answer end
    if not errors.is(answer) or answer.code == "Cancelled" then error(answer, 0) end
    error(errors.new {
        code = answer.code, message = what .. ": " .. answer.message, op = "aws", retryable = answer.retryable,
    }, 0)
end

local function text_field(object, name)
    local value = object[name]
    return type(value) == "string" and value or nil
end

-- Keys out of the JSON that containers, instances and credential processes answer with.
local function keys_from_json(what, body, token_name)
    local ok, found = pcall(json.decode, body)
    if not ok or type(found) ~= "table" then broken("%s did not answer with JSON", what) end
    local expiration = text_field(found, "Expiration")
    local expires = expiration and text.iso_date(expiration)
    if expiration and not expires then broken("%s gave an Expiration that is not a date", what) end
    local keys = {
        access_key = clean("AccessKeyId of " .. what, text_field(found, "AccessKeyId")),
        secret_key = clean("SecretAccessKey of " .. what, text_field(found, "SecretAccessKey")),
        session_token = clean(token_name .. " of " .. what, text_field(found, token_name)),
        expires = expires, refresh = true, source = what,
    }
    if not keys.access_key or not keys.secret_key then broken("%s gave no keys", what) end
    return keys, found
end

-- A small file that another program may write again at any time.
local function read_token(s, name, path)
    local token = s.read(path)
    if not token then broken("%s names %s, which can't be read", name, path) end
    token = clean("the file that " .. name .. " names", token)
    if not token then broken("%s names %s, which is empty", name, path) end
    return token
end

-- ---- the environment ----

local function environment(s)
    if s.explicit then return nil, "environment (not with a profile given)" end
    local access = s:env "AWS_ACCESS_KEY_ID"
    local secret = s:env "AWS_SECRET_ACCESS_KEY"
    if access and not secret then broken("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not") end
    if not access then
        return nil, secret and "environment (AWS_SECRET_ACCESS_KEY without AWS_ACCESS_KEY_ID)"
            or "environment (AWS_ACCESS_KEY_ID not set)"
    end
    local expiration = s:env "AWS_CREDENTIAL_EXPIRATION"
    return {
        access_key = access, secret_key = secret,
        session_token = s:env "AWS_SESSION_TOKEN" or s:env "AWS_SECURITY_TOKEN",
        expires = expiration and text.iso_date(expiration) or nil,
        refresh = false, source = "environment",
    }
end

-- ---- roles ----

local function sts_endpoint(s, via)
    local endpoint = via.endpoint "sts"
    if endpoint then return endpoint end
    local region = s:first({ "AWS_REGION", "AWS_DEFAULT_REGION" }, "region")
    if not region then return "https://sts.amazonaws.com" end
    if not region:find "^[%w-]+$" then settings.refuse("the region has a name that none can have") end
    return ("https://sts.%s.amazonaws.com%s"):format(region, region:find "^cn%-" and ".cn" or "")
end

-- https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
-- The call needs no signature: the token is the proof. It goes in the body, so that no log has it.
local function web_identity(s, via)
    local path, path_name = s:env "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"
    local role = s:env "AWS_ROLE_ARN"
    if not path then
        path, path_name = s:text "web_identity_token_file", "web_identity_token_file"
        role = s:text "role_arn"
    end
    if not path then return nil, "web identity (AWS_WEB_IDENTITY_TOKEN_FILE not set)" end
    if not role then broken("%s is set and no role is (AWS_ROLE_ARN)", path_name) end
    local form = {
        { "Action", "AssumeRoleWithWebIdentity" }, { "Version", "2011-06-15" }, { "RoleArn", role },
        { "RoleSessionName", s:first({ "AWS_ROLE_SESSION_NAME" }, "role_session_name")
            or ("ncrun-%d"):format(via.now()) },
        { "WebIdentityToken", read_token(s, path_name, path) },
    }
    for i, field in ipairs(form) do form[i] = field[1] .. "=" .. text.url_encode(field[2]) end
    local answer = ask(via, "web identity", {
        url = sts_endpoint(s, via), method = "POST", body = table.concat(form, "&"),
        headers = { ["Content-Type"] = "application/x-www-form-urlencoded" },
        timeout = "10s", max_body = "64KiB", attempts = 3,
    })
    local keys, e = s3xml.sts(answer.body)
    if not keys then
        broken("web identity: the role was not given (HTTP %d): %s", answer.status, e.message)
    elseif answer.status ~= 200 then
        broken("web identity: HTTP %d", answer.status)
    end
    keys.refresh, keys.source = true, "web identity"
    return keys
end

-- What the AWS CLI does and this program does not; better said than passed over.
local function unsupported(s)
    local what = (s:get "sso_session" or s:get "sso_start_url") and "signs in by SSO"
        or (s:get "role_arn" and (s:get "source_profile" or s:get "credential_source"))
        and "assumes a role by way of other credentials (source_profile)"
    if not what then return nil end
    local profile = s.profile:find "^[%w._-]+$" and s.profile or "NAME"
    broken("profile %s %s, which is not done here; run this first: "
        .. 'eval "$(aws configure export-credentials --profile %s --format env)"; unset AWS_PROFILE',
        s.profile, what, profile)
end

-- ---- the profile's files ----

local function keys_in(section, s, path)
    local function field(name)
        local value = section[name]
        return clean(("%s in %s"):format(name, path), type(value) == "string" and value or nil)
    end
    local access, secret = field "aws_access_key_id", field "aws_secret_access_key"
    if not access then return nil end
    if not secret then broken("profile %s in %s has no aws_secret_access_key", s.profile, path) end
    return {
        access_key = access, secret_key = secret,
        session_token = field "aws_session_token" or field "aws_security_token",
        refresh = true, source = ("%s [%s]"):format(path, s.profile),
    }
end

local function credentials_file(s)
    local keys = s.credentials and keys_in(s.credentials, s, s.credentials_path)
    if keys then return keys end
    return nil, ("%s (%s)"):format(s.credentials_path or "~/.aws/credentials", s.notes.credentials)
end

local function config_file(s)
    local keys = s.config and keys_in(s.config, s, s.config_path)
    if keys then return keys end
    return nil, ("%s (%s)"):format(s.config_path or "~/.aws/config", s.notes.config)
end

-- The words of a command line as a POSIX shell splits them, without anything else a shell does.
local function split_words(line)
    local words, word, at = {}, nil, 1
    while at <= #line do
        local c = line:sub(at, at)
        local from, to, quoted = line:find("^'([^']*)'", at)
        if from then
            word, at = (word or "") .. quoted, to + 1
        elseif c == "'" then
            return nil
        elseif c == '"' then
            word, at = word or "", at + 1
            while line:sub(at, at) ~= '"' do
                if at > #line then return nil end
                local escaped = line:match('^\\(["\\$`])', at)
                word = word .. (escaped or line:sub(at, at))
                at = at + (escaped and 2 or 1)
            end
            at = at + 1
        elseif c:find "%s" then
            if word then words[#words + 1] = word end
            word, at = nil, at + 1
        else
            if c == "\\" then at = at + 1 end
            word, at = (word or "") .. line:sub(at, at), at + 1
        end
    end
    if word then words[#words + 1] = word end
    return #words > 0 and words or nil
end

-- https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html
local function credential_process(s, via)
    local line = s:text "credential_process"
    if not line then return nil, ("credential_process (not in profile %s)"):format(s.profile) end
    local what = ("credential_process of profile %s"):format(s.profile)
    local words = split_words(line)
    if not words then broken("%s is not a command: a quote is never closed", what) end
    local ok, done = pcall(via.capture, words, { timeout = "60s" })
    if not ok then
        if not errors.is(done) or done.code == "Cancelled" then error(done, 0) end
        broken("%s could not be run: %s", what, done.code)
    end
    if done.code ~= 0 then
        broken("%s failed (%s %d)", what, done.code and "exit code" or "signal", done.code or done.signal)
    end
    local keys, found = keys_from_json(what, done.stdout, "SessionToken")
    if found.Version ~= 1 then broken("%s does not speak Version 1", what) end
    return keys
end

-- ---- what the machine hands out ----

local function loopback(host)
    return host == "localhost" or host == "[::1]" or host:find "^127%.%d+%.%d+%.%d+$" ~= nil
end

-- Addresses that ECS and EKS agents have, beside loopback; anywhere else plain http would show the keys.
local CONTAINER_HOSTS <const> = {
    ["169.254.170.2"] = true, ["169.254.170.23"] = true, ["[fd00:ec2::23]"] = true,
}

-- https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
local function container(s, via)
    local relative = s:env "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
    local full = s:env "AWS_CONTAINER_CREDENTIALS_FULL_URI"
    if not relative and not full then
        return nil, "container (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI not set)"
    end
    local url = relative and "http://169.254.170.2" .. relative or full
    local name = relative and "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" or "AWS_CONTAINER_CREDENTIALS_FULL_URI"
    local parsed, e = text.url_parse(url)
    if not parsed then settings.refuse("%s: %s", name, e.message) end
    if parsed.scheme == "http" and not loopback(parsed.host) and not CONTAINER_HOSTS[parsed.host] then
        settings.refuse("%s is plain http to a host that is no container agent", name)
    end
    local path = s:env "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
    local token = path and read_token(s, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path)
        or s:env "AWS_CONTAINER_AUTHORIZATION_TOKEN"
    local answer = ask(via, "container credentials", {
        url = url, method = "GET", headers = { Accept = "application/json", Authorization = token },
        timeout = "2s", max_body = "64KiB", attempts = 3,
    })
    if answer.status ~= 200 then broken("container credentials: HTTP %d", answer.status) end
    return (keys_from_json("container credentials", answer.body, "Token"))
end

-- https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html, version 2.
-- On any machine that is no EC2 instance nobody answers: one try, one second.
local function instance(s, via)
    local disabled = s:env "AWS_EC2_METADATA_DISABLED"
    if disabled and disabled:lower() == "true" then
        return nil, "instance metadata (off: AWS_EC2_METADATA_DISABLED)"
    end
    local base = s:first({ "AWS_EC2_METADATA_SERVICE_ENDPOINT" }, "ec2_metadata_service_endpoint")
    if not base then
        local mode = s:first({ "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE" }, "ec2_metadata_service_endpoint_mode")
        base = mode and mode:lower() == "ipv6" and "http://[fd00:ec2::254]" or "http://169.254.169.254"
    end
    base = base:gsub("/+$", "")
    local function get(method, path, headers)
        local ok, answer = pcall(via.request, {
            url = base .. path, method = method, headers = headers, timeout = "1s", max_body = "64KiB",
            attempts = 1,
        })
        if ok then return answer.status == 200 and answer.body or nil end
        if not errors.is(answer) or answer.code == "Cancelled" then error(answer, 0) end
    end
    local token = get("PUT", "/latest/api/token", { ["X-aws-ec2-metadata-token-ttl-seconds"] = "21600" })
    token = clean("the instance's metadata token", token)
    if not token then return nil, "instance metadata (no answer)" end
    local headers = { ["X-aws-ec2-metadata-token"] = token }
    local roles <const> = "/latest/meta-data/iam/security-credentials/"
    local role = (get("GET", roles, headers) or ""):match "^%s*([%w+=,.@_-]+)"
    local body = role and get("GET", roles .. role, headers)
    if not body then return nil, "instance metadata (the instance has no role)" end
    return (keys_from_json("instance metadata", body, "Token"))
end

sources.list = {
    environment, web_identity, unsupported, credentials_file, credential_process, config_file, container,
    instance,
}

return sources
