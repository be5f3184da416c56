-- Which certificates the static build trusts, in images with a bundle and without.
local helper = require "spec.helper"

local GET <const> = [[
local ok, answer = pcall(require "nc.http".request, { url = ... })
print(ok and answer.status or answer.code .. ": " .. tostring(answer))
]]

-- A certificate for localhost that no authority vouches for but itself.
local function self_signed(dir)
    local code, _, err = helper.run {
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", dir .. "/key.pem", "-out", dir .. "/cert.pem",
    }
    assert(code == 0, err)
end

describe("a server's certificate, in an image that somebody else has made,", function()
    local dir, server

    setup(function()
        dir = helper.tmp()
        self_signed(dir)
        helper.write(dir .. "/get.lua", GET)
        server = helper.server { tls_cert = dir .. "/cert.pem", tls_key = dir .. "/key.pem" }
    end)
    teardown(function() local _ <close> = server end)

    local function get(image, env)
        local code, out, err = helper.run({ "spec/static/" .. image, dir .. "/get.lua", server.env.HF_ENDPOINT },
            { env = env })
        assert.equal(0, code, err)
        return out
    end

    for _, image in ipairs { "in-empty", "in-hostile" } do
        it("is refused by the embedded bundle where the authority is a stranger, " .. image, function()
            for _, env in ipairs { {}, { SSL_CERT_FILE = "/no/such/bundle.pem", SSL_CERT_DIR = "/no/such/folder" } } do
                assert.truthy(get(image, env):find "^TlsFailed: .*self%-signed certificate")
            end
        end)

        it("is trusted by way of SSL_CERT_FILE and CURL_CA_BUNDLE, " .. image, function()
            for _, name in ipairs { "SSL_CERT_FILE", "CURL_CA_BUNDLE" } do
                assert.equal("403\n", get(image, { [name] = dir .. "/cert.pem" }))
            end
        end)

        it("is trusted by the image's own bundle, wherever the distribution has it, " .. image, function()
            for _, path in ipairs { "ssl/certs/ca-certificates.crt", "pki/tls/certs/ca-bundle.crt", "ssl/cert.pem" } do
                local etc = helper.tmp()
                helper.write(etc .. "/" .. path, helper.read(dir .. "/cert.pem"))
                assert.equal("403\n", get(image, { ETC = etc }))
            end
        end)
    end

    it("is refused, naming the file, where SSL_CERT_FILE holds no certificate", function()
        local out = get("in-empty", { SSL_CERT_FILE = dir .. "/key.pem" })
        assert.truthy(out:find("^TlsFailed: .*key%.pem holds no CA certificate"), out)
    end)

    it("is looked for in the folder of SSL_CERT_DIR", function()
        local folder = helper.tmp()
        helper.sh(("cp %s/cert.pem %s/ && openssl rehash %s"):format(dir, folder, folder))
        assert.equal("403\n", get("in-empty", { SSL_CERT_DIR = folder }))
    end)
end)

describe("the embedded bundle", function()
    it("is all of Mozilla's roots as Debian has them, and none of this machine's own", function()
        local script = helper.tmp() .. "/bundle.lua"
        helper.write(script, [[io.write(require "nc.core.sys".embedded "ca-certificates")]])
        local code, bundle, err = helper.run { "spec/static/in-empty", script }
        assert.equal(0, code, err)
        local _, roots = helper.sh "ls /usr/share/ca-certificates/mozilla/*.crt | wc -l"
        local _, certificates = bundle:gsub("%-%-%-%-%-BEGIN CERTIFICATE%-%-%-%-%-", "")
        assert.equal(tonumber(roots), certificates)
        assert.is_true(certificates > 100)
    end)
end)
