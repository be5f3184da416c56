local helper = require "spec.helper"
local staging = require "spec.staging"

-- What a person gets when something is not as it should be: one sentence, in time, with its exit code.
describe("a stage that can't work", function()
    local hub, server
    setup(function()
        hub = staging.hub "8MiB"
        helper.write(hub .. "/acme/closed/config.json", "{}\n")
        helper.write(hub .. "/acme/closed/.gated", "")
        server = helper.server { hub = hub }
    end)
    teardown(function() server:stop() end)

    local SECRET <const> = "a-wrong-secret-0123456789"
    local cases = {
        { "a wrong secret", { AWS_SECRET_ACCESS_KEY = SECRET }, "acme/tiny", 4, "SignatureDoesNotMatch" },
        { "an unknown access key", { AWS_ACCESS_KEY_ID = "nobody" }, "acme/tiny", 4, "InvalidAccessKeyId" },
        { "a missing bucket", { NC_BUCKET = "no-such-bucket" }, "acme/tiny", 3, "NoSuchBucket" },
        { "no bucket's name", { NC_BUCKET = false }, "acme/tiny", 2, "NC_BUCKET" },
        { "an unknown model", {}, "acme/nothing", 3, "no such repository" },
        { "a model that is none", {}, "inklin", 2, 'did you mean "inkling"' },
        { "a gated repository", { HF_TOKEN = SECRET }, "acme/closed", 4, "gated" },
        { "no network to the hub", { HF_ENDPOINT = "http://127.0.0.1:9" }, "acme/tiny", 1, "check the address" },
        { "no network to the bucket", { AWS_ENDPOINT_URL = "http://127.0.0.1:9" }, "acme/tiny", 1,
            "check the address" },
        { "a hub that does not exist", { HF_ENDPOINT = "http://hub.invalid" }, "acme/tiny", 1, "hub.invalid" },
        { "no credentials", { AWS_ACCESS_KEY_ID = false, AWS_SECRET_ACCESS_KEY = false }, "acme/tiny", 4,
            "AWS_ACCESS_KEY_ID" },
    }
    for _, case in ipairs(cases) do
        it("says one sentence about " .. case[1], function()
            local env = helper.env(server.env, case[2])
            local began = os.time()
            local code, out, err = helper.ncrun({ "recipes/stage-weights.lua", "model=" .. case[3] },
                { env = env, timeout = 25 })
            assert.is_true(os.time() - began <= 20, "took too long")
            assert.equal(case[4], code, err)
            local sentences = {}
            for line in err:gmatch "ncrun: ([^\n]*)" do sentences[#sentences + 1] = line end
            assert.equal(1, #sentences, err)
            assert.truthy(sentences[1]:find(case[5], 1, true), sentences[1])
            local said = out .. err
            assert.is_nil(said:find(SECRET, 1, true))
            assert.is_nil(said:find(server.env.AWS_SECRET_ACCESS_KEY, 1, true))
            assert.is_nil(staging.object(server.env, "models/tiny/.complete"))
        end)
    end
end)
