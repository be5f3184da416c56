-- What `ncrun check` says of a set-up that is right, and of each way in which one can be wrong.
local helper = require "spec.helper"
local json   = require "dkjson"

-- The findings by name, the exit code, and the object as it was printed.
local function check(env, ...)
    local code, out, err = helper.ncrun({ "check", "json=yes", "seconds=0.1", ... }, { env = env })
    local said = json.decode(out)
    if not said then error("ncrun check: " .. out .. err, 2) end
    local found = {}
    for _, finding in ipairs(said.checks) do found[finding.name] = finding end
    return found, code, said
end

local function bucket(env, ...)
    return check(env, "only=bucket", ...)
end

-- It failed, and the hint has these words.
local function assert_failed(finding, ...)
    assert.equal("failed", finding.status, json.encode(finding))
    for _, words in ipairs { ... } do
        assert.truthy(finding.hint:find(words, 1, true), json.encode(finding))
    end
end

-- Nothing failed but these.
local function assert_only(said, ...)
    local names = {}
    for _, finding in ipairs(said.checks) do
        if finding.status == "failed" then names[#names + 1] = finding.name end
    end
    assert.same({ ... }, names)
end

local function objects(env)
    local code, out, err = helper.ncrun({ "ls", "-r", "s3://" .. env.NC_BUCKET .. "/" }, { env = env })
    assert.equal(0, code, err)
    return out
end

local function certificate()
    local dir = helper.tmp()
    assert.equal(0, (helper.run { "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", dir .. "/key", "-out", dir .. "/cert" }))
    return dir .. "/cert", dir .. "/key"
end

local ALL <const> = { "credentials", "endpoint", "clock", "bucket", "region", "put", "get", "delete", "multipart",
    "conditional put", "throughput" }

-- A pair that may read the gateway's buckets and not write to them.
local function read_only_pair(rgw)
    local function admin(...)
        local code, _, err = helper.run { "radosgw-admin", "-c", rgw.dir .. "/ceph.conf", "-n", "client.rgw", ... }
        assert.equal(0, code, err)
    end
    admin("subuser", "create", "--uid=rig", "--subuser=rig:reader", "--access=read")
    admin("key", "create", "--subuser=rig:reader", "--key-type=s3", "--access-key=reader", "--secret-key=reader-secret")
    return { AWS_ACCESS_KEY_ID = "reader", AWS_SECRET_ACCESS_KEY = "reader-secret" }
end

for _, server in ipairs(helper.servers()) do
    describe("ncrun check on " .. server.name, function()
        local env = server.env

        teardown(function() local _ <close> = server end)

        it("finds everything of a right set-up, and leaves nothing behind", function()
            local found, code, said = bucket(env)
            assert.equal(0, code, json.encode(said))
            for _, name in ipairs(ALL) do assert.equal("ok", found[name].status, name) end
            assert.equal("absent", found.TLS.status)
            assert.equal(said.ok, #ALL)
            assert.is_true(found.throughput.values.up > 0 and found.throughput.values.down > 0)
            assert.truthy(found.credentials.detail:find "environment")
            assert.equal("", objects(env))
        end)

        it("says where the credentials are and never what", function()
            local home = helper.tmp()
            helper.write(home .. "/.aws/credentials",
                ("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n"):format(
                    env.AWS_ACCESS_KEY_ID, env.AWS_SECRET_ACCESS_KEY))
            local code, out, err = helper.ncrun({ "check", "only=bucket", "seconds=0" }, { env = helper.env(env,
                { HOME = home, AWS_ACCESS_KEY_ID = false, AWS_SECRET_ACCESS_KEY = false }) })
            assert.equal(0, code, out .. err)
            assert.truthy(out:find("✓ credentials      found: " .. home .. "/.aws/credentials", 1, true), out)
            assert.is_nil((out .. err):find(env.AWS_SECRET_ACCESS_KEY, 1, true))
        end)

        it("names a wrong secret", function()
            local found, code, said = bucket(helper.env(env, { AWS_SECRET_ACCESS_KEY = "another-secret" }))
            assert.equal(4, code)
            assert_failed(found.bucket, "does not belong to its access key", "AWS_SECRET_ACCESS_KEY")
            assert.equal("skipped", found.put.status)
            assert_only(said, "bucket")
        end)

        it("names an access key that nobody knows", function()
            local found, code = bucket(helper.env(env, { AWS_ACCESS_KEY_ID = "nobody" }))
            assert.equal(4, code)
            assert_failed(found.bucket, "does not know the access key")
        end)

        it("names a bucket that is missing, and those that are there", function()
            local found, code, said = bucket(helper.env(env, { NC_BUCKET = "no-such-bucket" }))
            assert.equal(3, code)
            assert_failed(found.bucket, "NC_BUCKET", "these keys have: ")
            assert_only(said, "bucket")
        end)

        it("names an endpoint that is down, and checks no further", function()
            local found, code, said = bucket(helper.env(env, { AWS_ENDPOINT_URL = "http://127.0.0.1:1" }))
            assert.equal(1, code)
            assert_failed(found.endpoint, "AWS_ENDPOINT_URL", "nobody listens there")
            assert_only(said, "endpoint")
            assert.equal("ok", found.credentials.status)
            assert.equal("skipped", found.bucket.status)
        end)

        it("names credentials that are missing, and still looks at the endpoint", function()
            local found, code = bucket(helper.env(env, { AWS_ACCESS_KEY_ID = false }))
            assert.equal(4, code)
            assert.equal("failed", found.credentials.status)
            assert.truthy(found.credentials.detail:find("set AWS_ACCESS_KEY_ID", 1, true))
            assert.equal("ok", found.endpoint.status)
            assert.equal("skipped", found.bucket.status)
        end)
    end)
end

describe("ncrun check on the local server", function()
    it("names a wrong region, which it has got around", function()
        local server <close> = helper.server { region = "eu-north-1" }
        local found, code, said = bucket(helper.env(server.env, { AWS_REGION = "us-west-2" }))
        assert.equal(2, code)
        assert_failed(found.region, "AWS_REGION=eu-north-1")
        assert.equal("ok", found.put.status)
        assert_only(said, "region")
    end)

    it("names a wrong region where the server says no better one", function()
        local server <close> = helper.server { faults = { "GET ncdev* status=400:AuthorizationHeaderMalformed" } }
        local found, code = bucket(helper.env(server.env, { AWS_REGION = "us-west-2" }))
        assert.equal(1, code)
        assert_failed(found.bucket, "AWS_REGION", '"us-west-2"')
    end)

    for _, case in ipairs { { 3600, "behind" }, { -3600, "ahead of" } } do
        it("names a clock that is an hour " .. case[2] .. " the server's", function()
            local server <close> = helper.server { clock = case[1] }
            local found, code, said = bucket(server.env)
            assert.equal(4, code)
            assert_failed(found.clock, "NTP")
            assert.truthy(found.clock.detail:find("is 1h 00m " .. case[2], 1, true), found.clock.detail)
            assert_only(said, "clock")
        end)
    end

    it("minds no clock that is off by minutes, but says so", function()
        local server <close> = helper.server { clock = 300 }
        local found, code = bucket(server.env)
        assert.equal(0, code)
        assert.truthy(found.clock.detail:find("5m 0%ds behind"), found.clock.detail)
    end)

    it("names a pair that may only read", function()
        local server <close> = helper.server { faults = { "PUT * status=403:AccessDenied",
            "POST * status=403:AccessDenied", "DELETE * status=403:AccessDenied" } }
        local found, code, said = bucket(server.env)
        assert.equal(4, code)
        assert_failed(found.put, "may read and not write", "s3:PutObject")
        assert.equal("ok", found.bucket.status)
        assert_only(said, "put")
    end)

    it("names a pair that may write and neither list, read nor delete", function()
        local server <close> = helper.server { faults = { "GET * status=403:AccessDenied",
            "DELETE * status=403:AccessDenied" } }
        local found = bucket(server.env)
        assert_failed(found.bucket, "s3:ListBucket")
        assert.equal("ok", found.put.status)
        assert_failed(found.get, "s3:GetObject")
        assert_failed(found.delete, "s3:DeleteObject", ".ncrun-check-")
        assert.equal("skipped", found.throughput.status)
    end)

    it("names a server that ignores conditions", function()
        local server <close> = helper.server { faults = { "PUT * no-conditions" } }
        local found, _, said = bucket(server.env)
        assert_failed(found["conditional put"], "prefix of its own")
        assert_only(said, "conditional put")
    end)

    it("names a certificate that nobody trusts, and is content with AWS_CA_BUNDLE", function()
        local cert, key = certificate()
        local server <close> = helper.server { tls_cert = cert, tls_key = key }
        local found, code, said = bucket(server.env)
        assert.equal(1, code)
        assert.equal("ok", found.endpoint.status)
        assert_failed(found.TLS, "AWS_CA_BUNDLE")
        assert_only(said, "TLS")
        found, code = bucket(helper.env(server.env, { AWS_CA_BUNDLE = cert }))
        assert.equal(0, code)
        assert.equal("ok", found.TLS.status)
    end)

    it("names an endpoint that is told https and speaks http", function()
        local server <close> = helper.server()
        local found = bucket(helper.env(server.env,
            { AWS_ENDPOINT_URL = server.env.AWS_ENDPOINT_URL:gsub("^http:", "https:") .. "" }))
        assert_failed(found.TLS, "http://")
    end)

    it("names an address that is known only inside a cluster", function()
        local found = bucket { AWS_ENDPOINT_URL = "http://rook-ceph-rgw-nautiluss3.rook", NC_BUCKET = "b",
            AWS_ACCESS_KEY_ID = "k", AWS_SECRET_ACCESS_KEY = "secret-secret" }
        assert_failed(found.endpoint, "resolves only inside its Kubernetes cluster")
    end)

    it("writes below prefix= alone", function()
        local server <close> = helper.server()
        local _, code, said = bucket(server.env, "prefix=alice")
        assert.equal(0, code, json.encode(said))
        local writes = 0
        for _, request in ipairs(server:log()) do
            if request.side == "s3" and request.method ~= "GET" and request.method ~= "HEAD" then
                assert.truthy(request.path:find("ncdev/alice/.ncrun-check-", 1, true), request.path)
                writes = writes + 1
            end
        end
        assert.is_true(writes > 5)
    end)

    it("lists what the keys have where no bucket is named", function()
        local server <close> = helper.server()
        local found, code = bucket(helper.env(server.env, { NC_BUCKET = false }))
        assert.equal(0, code)
        assert.equal("absent", found.bucket.status)
        assert.truthy(found.bucket.detail:find("these keys have: ncdev", 1, true))
    end)

    it("says what people read in lines that end with a count", function()
        local server <close> = helper.server()
        local code, out = helper.ncrun({ "check", "only=bucket", "seconds=0" },
            { env = helper.env(server.env, { AWS_SECRET_ACCESS_KEY = "another-secret" }) })
        assert.equal(4, code)
        assert.truthy(out:find("\n✗ bucket           GET s3://ncdev: 127.0.0.1:%d+ answered 403 SignatureDoesNotMatch"
            .. "\n    the secret of the keys %(environment%) does not belong"), out)
        assert.truthy(out:find("\n- region, put, get, delete, multipart, conditional put, throughput not checked: ", 1,
            true), out)
        assert.truthy(out:find("\n3 passed, 1 failed, 1 not set up here, 7 not checked\n$"), out)
    end)

    it("refuses a part that is none", function()
        local code, _, err = helper.ncrun { "check", "only=buckt" }
        assert.equal(2, code)
        assert.truthy(err:find('did you mean "bucket"', 1, true), err)
    end)
end)

describe("ncrun check on the gateway", function()
    local rgw = helper.rgw()

    it("names a clock that is an hour ahead", function()
        local _, library = helper.sh "dpkg -L libfaketime | grep '/libfaketime.so.1$'"
        local found, code, said = bucket(helper.env(rgw.env, { LD_PRELOAD = library:gsub("\n", ""), FAKETIME = "+1h",
            FAKETIME_DONT_FAKE_MONOTONIC = "1",
            ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":verify_asan_link_order=0" }))
        assert.equal(4, code)
        assert_failed(found.clock, "NTP")
        assert.truthy(found.clock.detail:find("is 1h 00m ahead of", 1, true), found.clock.detail)
        assert_only(said, "clock")
    end)

    it("names a pair that may only read", function()
        local found, code, said = bucket(helper.env(rgw.env, read_only_pair(rgw)))
        assert.equal(4, code, json.encode(said))
        assert_failed(found.put, "may read and not write")
        assert.equal("ok", found.bucket.status)
        assert_only(said, "put")
    end)

    it("names its certificate, which nobody trusts, and is content with its authority", function()
        local env = helper.env(rgw.env, { AWS_ENDPOINT_URL = rgw.env.NC_TLS_ENDPOINT_URL })
        local found, code = bucket(env)
        assert.equal(1, code)
        assert_failed(found.TLS, "AWS_CA_BUNDLE")
        found, code = bucket(helper.env(env, { AWS_CA_BUNDLE = rgw.env.NC_TLS_CA }))
        assert.equal(0, code)
        assert.equal("ok", found.TLS.status)
    end)
end)
