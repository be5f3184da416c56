local aws    = require "nc.aws"
local errors = require "nc.errors"
local json   = require "nc.json"

local SECRET <const> = "s3cr3t/NOT+TO+BE+SHOWN"
local TOKEN <const> = "t0k3n-not-to-be-shown"

-- A machine made of tables: environment, files, HTTP answers by "METHOD url", commands.
local function machine(m)
    local log = {}
    local env = m.env or {}
    env.HOME = env.HOME or "/home/me"
    local function network_error()
        return errors.new { code = "ConnectFailed", message = "nobody there", retryable = true }
    end
    local via = {
        now = function() return 1795946400 end,
        read = function(path) return (m.files or {})[path] end,
        request = function(r)
            log[#log + 1] = r
            local answer = (m.http or {})[r.method .. " " .. r.url]
            if type(answer) == "function" then answer = answer(r) end
            if not answer then error(network_error(), 0) end
            if errors.is(answer) then error(answer, 0) end
            if type(answer) == "string" then answer = { status = 200, body = answer } end
            return { status = answer.status, headers = {}, body = answer.body or "" }
        end,
        capture = function(argv)
            log[#log + 1] = argv
            local result = (m.commands or {})[table.concat(argv, "|")]
            if not result then error(errors.new { code = "CommandNotFound", message = "no such command" }, 0) end
            if errors.is(result) then error(result, 0) end
            return { code = result.code or 0, signal = result.signal, stdout = result.stdout or "", stderr = SECRET }
        end,
    }
    local options = { env = function(name) return env[name] end, via = via }
    for name, value in pairs(m.options or {}) do options[name] = value end
    return options, log, env
end

local function resolve(m)
    local options, log, env = machine(m)
    return aws.resolve(options), log, env
end

-- The error, which must not show a secret.
local function refusal(m, code)
    local options, log = machine(m)
    local ok, e = pcall(aws.resolve, options)
    assert.is_false(ok)
    assert.is_true(errors.is(e), tostring(e))
    assert.is_nil(tostring(e):find(SECRET, 1, true))
    assert.is_nil(tostring(e):find(TOKEN, 1, true))
    if code then assert.equal(code, e.code) end
    return e.message, log, e
end

local ENV <const> = { AWS_ACCESS_KEY_ID = "AKENV", AWS_SECRET_ACCESS_KEY = SECRET }

local function with(...)
    local all = {}
    for _, t in ipairs { ... } do
        for k, v in pairs(t) do all[k] = v end
    end
    return all
end

local function keys_json(access, extra)
    return json.encode(with({ AccessKeyId = access, SecretAccessKey = SECRET, Expiration = "2026-11-29T12:00:00Z" },
        extra or {}))
end

local STS_ANSWER <const> = [[<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
  <AccessKeyId>AKSTS</AccessKeyId><SecretAccessKey>]] .. SECRET .. [[</SecretAccessKey>
  <SessionToken>]] .. TOKEN .. [[</SessionToken><Expiration>2026-11-29T11:00:00Z</Expiration></Credentials>
  </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>]]

-- Each source alone, and all that come after it.
local IMDS <const> = "http://169.254.169.254/latest"
local ALL <const> = {
    {
        name = "environment", access = "AKENV", source = "environment",
        env = ENV,
    },
    {
        name = "web identity", access = "AKSTS", source = "web identity", token = TOKEN, expires = 1795950000,
        env = { AWS_WEB_IDENTITY_TOKEN_FILE = "/var/run/token", AWS_ROLE_ARN = "arn:aws:iam::1:role/r" },
        files = { ["/var/run/token"] = "jwt\n" },
        http = { ["POST https://sts.amazonaws.com"] = STS_ANSWER },
    },
    {
        name = "credentials file", access = "AKFILE", source = "/home/me/.aws/credentials [default]",
        files = {
            ["/home/me/.aws/credentials"] = "[default]\naws_access_key_id = AKFILE\naws_secret_access_key = " .. SECRET,
        },
    },
    {
        name = "credential_process", access = "AKPROC", source = "credential_process of profile default",
        expires = 1795953600,
        files = {
            ["/home/me/.aws/config"] = "[default]\ncredential_process = /bin/helper 'a b' \"c\\\"d\" e\\ f",
        },
        commands = { ['/bin/helper|a b|c"d|e f'] = { stdout = keys_json("AKPROC", { Version = 1 }) } },
    },
    {
        name = "config file", access = "AKCONF", source = "/home/me/.aws/config [default]",
        files = {
            ["/home/me/.aws/config"] = "[default]\naws_access_key_id = AKCONF\naws_secret_access_key = " .. SECRET,
        },
    },
    {
        name = "container", access = "AKCONT", source = "container credentials", token = TOKEN,
        expires = 1795953600,
        env = { AWS_CONTAINER_CREDENTIALS_RELATIVE_URI = "/creds" },
        http = { ["GET http://169.254.170.2/creds"] = keys_json("AKCONT", { Token = TOKEN }) },
    },
    {
        name = "instance metadata", access = "AKIMDS", source = "instance metadata", token = TOKEN,
        expires = 1795953600,
        http = {
            ["PUT " .. IMDS .. "/api/token"] = "imds-token",
            ["GET " .. IMDS .. "/meta-data/iam/security-credentials/"] = "my-role\n",
            ["GET " .. IMDS .. "/meta-data/iam/security-credentials/my-role"] =
                keys_json("AKIMDS", { Token = TOKEN, Code = "Success" }),
        },
    },
}

describe("nc.aws", function()
    for i, case in ipairs(ALL) do
        it("finds keys in the " .. case.name, function()
            local cfg = resolve {
                env = with(case.env or {}), files = case.files, http = case.http, commands = case.commands,
            }
            assert.equal(case.access, cfg.access_key)
            assert.equal(SECRET, cfg.secret_key)
            assert.equal(case.token, cfg.session_token)
            assert.equal(case.expires, cfg.expires)
            assert.equal(case.source, cfg.source)
            assert.equal(i > 1, cfg.refresh)
        end)

        it("prefers the " .. case.name .. " to what comes after it", function()
            local m = { env = {}, files = {}, http = {}, commands = {} }
            for later = #ALL, i, -1 do
                for what, values in pairs(m) do
                    for k, v in pairs(ALL[later][what] or {}) do
                        values[k] = what == "files" and values[k] and k:find "config$"
                            and values[k] .. "\n" .. v:gsub("^%[default%]\n", "") or v
                    end
                end
            end
            assert.equal(case.access, resolve(m).access_key)
        end)
    end

    it("names everything it looked for, once, when there is nothing", function()
        local message, log = refusal({ env = { AWS_EC2_METADATA_DISABLED = "true" } }, "NoCredentials")
        for _, name in ipairs {
            "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "/home/me/.aws/credentials (no such file)",
            "credential_process", "/home/me/.aws/config", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "off: AWS_EC2_METADATA_DISABLED",
        } do
            assert.truthy(message:find(name, 1, true), name .. " in: " .. message)
        end
        assert.is_nil(message:find "\n")
        assert.equal(0, #log)
        assert.equal(4, errors.exit_code(select(3, refusal { env = { AWS_EC2_METADATA_DISABLED = "true" } })))
    end)

    it("asks the instance once, for a second, when nothing else is there", function()
        local message, log = refusal({}, "NoCredentials")
        assert.equal(1, #log)
        assert.equal("1s", log[1].timeout)
        assert.equal(1, log[1].attempts)
        assert.matches("instance metadata %(no answer%)", message)
    end)

    it("lets a cancelled task end", function()
        local cancelled = errors.new { code = "Cancelled", message = "stop", signal = 15 }
        local _, _, e = refusal({ http = { ["PUT " .. IMDS .. "/api/token"] = cancelled } }, "Cancelled")
        assert.equal(143, errors.exit_code(e))
    end)

    it("uses the instance's own endpoint", function()
        local base = "http://127.0.0.1:1338/latest"
        local http = {
            ["PUT " .. base .. "/api/token"] = "imds-token",
            ["GET " .. base .. "/meta-data/iam/security-credentials/"] = "r",
            ["GET " .. base .. "/meta-data/iam/security-credentials/r"] = keys_json "AKIMDS",
        }
        local cfg, log = resolve {
            env = { AWS_EC2_METADATA_SERVICE_ENDPOINT = "http://127.0.0.1:1338/" }, http = http,
        }
        assert.equal("AKIMDS", cfg.access_key)
        assert.equal("21600", log[1].headers["X-aws-ec2-metadata-token-ttl-seconds"])
        assert.equal("imds-token", log[3].headers["X-aws-ec2-metadata-token"])
    end)

    describe("environment", function()
        it("loses the blanks and newlines around keys, token and endpoint", function()
            local cfg = resolve { env = {
                AWS_ACCESS_KEY_ID = " AK\n", AWS_SECRET_ACCESS_KEY = "\t" .. SECRET .. "\r\n",
                AWS_SESSION_TOKEN = TOKEN .. "\n", AWS_ENDPOINT_URL = " https://s3.example.com\n",
                AWS_REGION = "eu-west-1 ",
            } }
            assert.same({ "AK", SECRET, TOKEN, "https://s3.example.com", "eu-west-1" },
                { cfg.access_key, cfg.secret_key, cfg.session_token, cfg.endpoint, cfg.region })
        end)

        it("is refused by name when it holds a control character", function()
            for _, name in ipairs {
                "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION",
            } do
                local message = refusal({ env = with(ENV, { [name] = "a\n" .. SECRET }) }, "BadSetting")
                assert.matches(name, message)
            end
        end)

        it("counts as absent when it is blank", function()
            local cfg = resolve {
                env = { AWS_ACCESS_KEY_ID = " ", AWS_SECRET_ACCESS_KEY = "" }, files = ALL[3].files,
            }
            assert.equal("AKFILE", cfg.access_key)
        end)

        it("is refused when it holds one half of a key", function()
            local message = refusal({ env = { AWS_ACCESS_KEY_ID = "AK" }, files = ALL[3].files }, "NoCredentials")
            assert.matches("AWS_SECRET_ACCESS_KEY", message)
        end)

        it("is passed over for a profile given as an option", function()
            local cfg = resolve {
                env = with(ENV), options = { profile = "work" },
                files = { ["/home/me/.aws/credentials"] = "[work]\naws_access_key_id=AKWORK\n"
                    .. "aws_secret_access_key=" .. SECRET .. "\naws_session_token=" .. TOKEN },
            }
            assert.equal("AKWORK", cfg.access_key)
            assert.equal(TOKEN, cfg.session_token)
        end)
    end)

    describe("profile", function()
        local files = {
            ["/c"] = "[default]\nregion=d\n[profile a]\nregion=ra\n[profile b]\nregion=rb\n",
            ["/k"] = "[a]\naws_access_key_id=AKA\naws_secret_access_key=" .. SECRET
                .. "\n[b]\naws_access_key_id=AKB\naws_secret_access_key=" .. SECRET
                .. "\n[default]\naws_access_key_id=AKD\naws_secret_access_key=" .. SECRET,
        }
        local paths = { AWS_CONFIG_FILE = "/c", AWS_SHARED_CREDENTIALS_FILE = "/k" }
        for _, case in ipairs {
            { want = "AKD", region = "d" },
            { env = { AWS_DEFAULT_PROFILE = "b" }, want = "AKB", region = "rb" },
            { env = { AWS_DEFAULT_PROFILE = "b", AWS_PROFILE = "a" }, want = "AKA", region = "ra" },
            { env = { AWS_PROFILE = "a" }, options = { profile = "b" }, want = "AKB", region = "rb" },
        } do
            it("is chosen in order: " .. case.want .. case.region, function()
                local cfg = resolve { env = with(paths, case.env or {}), options = case.options, files = files }
                assert.same({ case.want, case.region }, { cfg.access_key, cfg.region })
            end)
        end

        it("is refused by name when no file has it", function()
            local message = refusal({
                env = with(ENV, paths, { AWS_PROFILE = "gone" }), files = files,
            }, "NoCredentials")
            assert.matches("profile gone is in neither /c nor /k", message)
        end)

        it("expands ~ in the files' paths", function()
            local cfg = resolve {
                env = { AWS_SHARED_CREDENTIALS_FILE = "~/keys" }, files = { ["/home/me/keys"] = files["/k"] },
            }
            assert.equal("AKD", cfg.access_key)
        end)

        it("without its secret key is refused", function()
            refusal({ files = { ["/home/me/.aws/credentials"] = "[default]\naws_access_key_id=A" } }, "NoCredentials")
        end)

        it("that signs in by SSO, or by way of another, is refused with the way out", function()
            for _, text in ipairs { "sso_session = x", "sso_start_url = x", "role_arn = r\nsource_profile = y" } do
                local message = refusal({
                    files = { ["/home/me/.aws/config"] = "[default]\n" .. text },
                }, "NoCredentials")
                assert.matches("aws configure export%-credentials %-%-profile default", message)
            end
        end)

        it("may name a web identity itself", function()
            local cfg, log = resolve {
                files = {
                    ["/home/me/.aws/config"] = "[default]\nrole_arn = r\nweb_identity_token_file = /t\n"
                        .. "region = eu-west-1\nrole_session_name = me",
                    ["/t"] = "jwt",
                },
                http = { ["POST https://sts.eu-west-1.amazonaws.com"] = STS_ANSWER },
            }
            assert.equal("AKSTS", cfg.access_key)
            assert.matches("RoleSessionName=me", log[1].body)
        end)
    end)

    describe("web identity", function()
        local web = ALL[2]

        it("sends the token in the body, encoded, to the endpoint in charge", function()
            local cases = {
                ["https://sts.eu-west-3.amazonaws.com"] = { AWS_REGION = "eu-west-3" },
                ["https://sts.cn-north-1.amazonaws.com.cn"] = { AWS_REGION = "cn-north-1" },
                ["https://sts.local"] = { AWS_REGION = "x", AWS_ENDPOINT_URL_STS = "https://sts.local" },
                ["https://all.local"] = { AWS_ENDPOINT_URL = "https://all.local" },
            }
            for url, env in pairs(cases) do
                local _, log = resolve {
                    env = with(web.env, env), files = { ["/var/run/token"] = "a+b/c=\n" },
                    http = { ["POST " .. url] = STS_ANSWER },
                }
                assert.equal("Action=AssumeRoleWithWebIdentity&Version=2011-06-15"
                    .. "&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=ncrun-1795946400"
                    .. "&WebIdentityToken=a%2Bb%2Fc%3D", log[1].body)
            end
        end)

        it("tells what the service said, and does not go on to the next source", function()
            local message = refusal({
                env = with(web.env), files = with(web.files, ALL[3].files),
                http = { ["POST https://sts.amazonaws.com"] = { status = 400, body =
                    "<ErrorResponse><Error><Code>ExpiredTokenException</Code><Message>Token expired</Message></Error>"
                    .. "</ErrorResponse>" } },
            }, "NoCredentials")
            assert.matches("HTTP 400.*ExpiredTokenException: Token expired", message)
        end)

        it("is refused without its role, its file or anything in it", function()
            refusal({ env = { AWS_WEB_IDENTITY_TOKEN_FILE = "/t" }, files = { ["/t"] = TOKEN } }, "NoCredentials")
            assert.matches("can't be read", (refusal({ env = with(web.env) }, "NoCredentials")))
            assert.matches("is empty", (refusal({ env = with(web.env), files = { ["/var/run/token"] = "\n" } },
                "NoCredentials")))
            refusal({ env = with(web.env), files = { ["/var/run/token"] = TOKEN .. "\n" .. TOKEN } }, "BadSetting")
        end)

        it("passes on that the network failed, to be tried again", function()
            local message, _, e = refusal({ env = with(web.env), files = web.files }, "ConnectFailed")
            assert.matches("web identity: nobody there", message)
            assert.is_true(e.retryable)
        end)
    end)

    describe("credential_process", function()
        local function process(line, result)
            return {
                env = { AWS_EC2_METADATA_DISABLED = "true" },
                files = { ["/home/me/.aws/config"] = "[default]\ncredential_process = " .. line },
                commands = { helper = result },
            }
        end

        it("that fails, or answers with anything else, is refused without its output", function()
            assert.matches("exit code 3", (refusal(process("helper", { code = 3, stdout = SECRET }), "NoCredentials")))
            refusal(process("helper", { stdout = SECRET }), "NoCredentials")
            refusal(process("helper", { stdout = '"' .. SECRET .. '"' }), "NoCredentials")
            refusal(process("helper", { stdout = keys_json "A" }), "NoCredentials")
            refusal(process("helper", { stdout = '{"Version":1,"AccessKeyId":"A"}' }), "NoCredentials")
            refusal(process("helper", { stdout = keys_json("A", { Version = 1, Expiration = "soon" }) }),
                "NoCredentials")
            assert.matches("CommandNotFound", (refusal(process("other", {}), "NoCredentials")))
            assert.matches("quote", (refusal(process("helper 'x", {}), "NoCredentials")))
        end)
    end)

    describe("container", function()
        local url = "https://agent.local/creds"

        it("sends its token, from the file first", function()
            for _, case in ipairs {
                { env = { AWS_CONTAINER_AUTHORIZATION_TOKEN = "env\n" }, want = "env" },
                {
                    env = {
                        AWS_CONTAINER_AUTHORIZATION_TOKEN = "env", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE = "/t",
                    },
                    want = "file",
                },
                { env = {} },
            } do
                local _, log = resolve {
                    env = with(case.env, { AWS_CONTAINER_CREDENTIALS_FULL_URI = url }), files = { ["/t"] = "file\n" },
                    http = { ["GET " .. url] = keys_json "AK" },
                }
                assert.equal(case.want, log[1].headers.Authorization)
            end
        end)

        it("may be plain http on this machine only", function()
            for host, allowed in pairs {
                ["127.0.0.1:51679"] = true, ["localhost"] = true, ["169.254.170.23"] = true, ["[::1]:80"] = true,
                ["example.com"] = false, ["127.0.0.1.example.com"] = false, ["169.254.169.254"] = false,
            } do
                local plain = "http://" .. host .. "/creds"
                local m = {
                    env = { AWS_CONTAINER_CREDENTIALS_FULL_URI = plain }, http = { ["GET " .. plain] = keys_json "AK" },
                }
                if allowed then
                    assert.equal("AK", resolve(m).access_key)
                else
                    assert.matches("AWS_CONTAINER_CREDENTIALS_FULL_URI", (refusal(m, "BadSetting")))
                end
            end
        end)

        it("that refuses is an error", function()
            local message = refusal({
                env = with(ALL[6].env), http = { ["GET http://169.254.170.2/creds"] = { status = 403, body = SECRET } },
            }, "NoCredentials")
            assert.matches("HTTP 403", message)
        end)
    end)

    describe("endpoint", function()
        local config = "[default]\nservices = mine\nendpoint_url = https://profile\n[services mine]\ns3 =\n"
            .. "  endpoint_url = https://services\nsts =\n  endpoint_url = https://other\n"
        for _, case in ipairs {
            { want = nil, config = "[default]\n" },
            { want = "https://profile", config = "[default]\nendpoint_url = https://profile\n" },
            { want = "https://services" },
            { want = "https://url", env = { AWS_ENDPOINT_URL = "https://url" } },
            { want = "https://s3", env = { AWS_ENDPOINT_URL = "https://url", AWS_ENDPOINT_URL_S3 = "https://s3" } },
            { want = "https://option", env = { AWS_ENDPOINT_URL_S3 = "https://s3" }, option = "https://option" },
            { want = nil, env = { AWS_ENDPOINT_URL = "https://url", AWS_IGNORE_CONFIGURED_ENDPOINT_URLS = "true" } },
            { want = "https://o", env = { AWS_IGNORE_CONFIGURED_ENDPOINT_URLS = "True" }, option = "https://o" },
        } do
            it("comes in order: " .. tostring(case.want), function()
                local cfg = resolve {
                    env = with(ENV, case.env or {}), options = { endpoint = case.option },
                    files = { ["/home/me/.aws/config"] = case.config or config },
                }
                assert.equal(case.want, cfg.endpoint)
            end)
        end

        it("is refused by name when it is no URL, or holds a password", function()
            for value, why in pairs {
                ["minio:9000"] = "http", ["https://me:pw@host"] = "password", ["https://a b"] = "blank",
                ["https://host/?x"] = "query",
            } do
                local message = refusal({ env = with(ENV, { AWS_ENDPOINT_URL = value }) }, "BadSetting")
                assert.matches("AWS_ENDPOINT_URL", message)
                assert.matches(why, message)
            end
        end)
    end)

    it("takes region, CA bundle, attempts, checksums, addressing from variables, then the profile", function()
        local file = { ["/home/me/.aws/config"] = "[default]\nregion = r3\nca_bundle = /ca\nmax_attempts = 7\n"
            .. "request_checksum_calculation = WHEN_SUPPORTED\ns3 =\n  addressing_style = path\n" }
        local function view(cfg)
            return { cfg.region, cfg.ca_bundle or "", cfg.max_attempts or 0, cfg.checksum, cfg.addressing or "" }
        end
        assert.same({ "us-east-1", "", 0, "when_required", "" }, view(resolve { env = with(ENV) }))
        assert.same({ "r3", "/ca", 7, "when_supported", "path" }, view(resolve { env = with(ENV), files = file }))
        assert.same({ "r1", "/env", 2, "when_required", "path" }, view(resolve {
            env = with(ENV, {
                AWS_REGION = "r1", AWS_DEFAULT_REGION = "r2", AWS_CA_BUNDLE = "/env", AWS_MAX_ATTEMPTS = "2",
                AWS_REQUEST_CHECKSUM_CALCULATION = "when_required",
            }), files = file,
        }))
        assert.equal("r2", resolve { env = with(ENV, { AWS_DEFAULT_REGION = "r2" }), files = file }.region)
        assert.equal("r0", resolve { env = with(ENV, { AWS_REGION = "r1" }), options = { region = "r0" } }.region)
    end)

    it("refuses a setting that makes no sense, by name", function()
        for name, value in pairs {
            AWS_MAX_ATTEMPTS = "0", AWS_REQUEST_CHECKSUM_CALCULATION = "sometimes", AWS_REGION = "eu west",
        } do
            assert.matches(name, (refusal({ env = with(ENV, { [name] = value }) }, "BadSetting")))
        end
        assert.matches("AWS_MAX_ATTEMPTS", (refusal({ env = with(ENV, { AWS_MAX_ATTEMPTS = "many" }) }, "BadSetting")))
    end)

    it("names the file and line of a profile that can't be read", function()
        local message = refusal({ files = { ["/home/me/.aws/credentials"] = "[default]\n" .. SECRET } }, "BadConfig")
        assert.matches("/home/me/.aws/credentials, line 2", message)
    end)

    it("reads the keys again where they may have changed", function()
        local files = with(ALL[3].files)
        local options = machine { files = files }
        local cfg = aws.resolve(options)
        local path = "/home/me/.aws/credentials"
        files[path] = files[path]:gsub("AKFILE", "AKNEW")
        assert.equal("AKNEW", aws.credentials(cfg).access_key)
        assert.equal("AKFILE", cfg.access_key)
    end)

    it("reads real files and runs a real process", function()
        local path = os.tmpname()
        local file = assert(io.open(path, "w"))
        file:write("[default]\ncredential_process = /bin/sh -c 'exec cat \"$0\"' ", path, ".json\n")
        file:close()
        local answer = assert(io.open(path .. ".json", "w"))
        answer:write(keys_json("AKREAL", { Version = 1 }))
        answer:close()
        local env = { AWS_CONFIG_FILE = path, AWS_SHARED_CREDENTIALS_FILE = path .. ".none" }
        local ok, cfg = pcall(aws.resolve, { env = function(name) return env[name] end })
        os.remove(path)
        os.remove(path .. ".json")
        assert.is_true(ok, tostring(cfg))
        assert.equal("AKREAL", cfg.access_key)
    end)

    it("says what it was used wrongly for, at the caller's line", function()
        local ok, e = pcall(function() aws.resolve { profil = "x" } end)
        assert.is_false(ok)
        assert.matches("aws_spec.lua:%d+: unknown option \"profil\"", e)
        ok, e = pcall(function() aws.credentials {} end)
        assert.is_false(ok)
        assert.matches("aws_spec.lua:%d+", e)
    end)
end)
