-- interlink-job against a real Ceph gateway over https, as a Slurm node reaches it.
local helper = require "spec.helper"
local jobs = require "spec.jobs"
local staging = require "spec.staging"

local RECIPE <const> = "recipes/interlink-job.lua"

describe("a job behind InterLink", function()
    local gateway = helper.rgw()
    -- Only what the Secret gives, and the rig's certificate authority.
    local env = helper.env({
        NC_BUCKET = gateway.env.NC_BUCKET, AWS_ACCESS_KEY_ID = gateway.env.AWS_ACCESS_KEY_ID,
        AWS_SECRET_ACCESS_KEY = gateway.env.AWS_SECRET_ACCESS_KEY, S3_ENDPOINT = gateway.env.NC_TLS_ENDPOINT_URL,
        AWS_CA_BUNDLE = gateway.env.NC_TLS_CA, SSL_CERT_FILE = gateway.env.NC_TLS_CA,
        TMPDIR = helper.tmp(), HOSTNAME = "node-7",
    })

    local function run(script, options, more)
        local words = { RECIPE, table.unpack(options or {}) }
        for _, word in ipairs { "--", "sh", "-c", script } do words[#words + 1] = word end
        return helper.ncrun(words, { env = helper.env(env, more or {}) })
    end

    local function result(host)
        return staging.object(gateway.env, ("output/%s/result.dat"):format(host or "node-7"))
    end

    setup(function()
        local path = helper.tmp() .. "/input.dat"
        helper.write(path, "the input\n")
        jobs.put(gateway.env, path, "input/input.dat")
    end)

    it("has its input under TMPDIR, its result below its host's name, and leaves nothing on the node", function()
        local code, out, err = run 'echo "$NC_INPUT"; tr a-z A-Z <"$NC_INPUT/input.dat" >"$NC_OUTPUT/result.dat"'
        assert.equal(0, code, err)
        assert.equal(env.TMPDIR .. "/interlink-job.", out:sub(1, #env.TMPDIR + 15))
        assert.equal("THE INPUT\n", result())
        assert.equal("", jobs.left(env))
    end)

    it("runs ./run-application where it is given none", function()
        local folder = helper.tmp()
        helper.write(folder .. "/run-application", '#!/bin/sh\necho application "$(cat "$1")"\n')
        helper.sh("chmod +x " .. folder .. "/run-application")
        local code, _, err = helper.ncrun({ RECIPE }, {
            env = helper.env(env, { HOSTNAME = "node-8" }), cwd = folder,
        })
        assert.equal(0, code, err)
        assert.equal("application the input\n", result "node-8")
    end)

    it("that fails keeps its code, and what it has written is up", function()
        local code, _, err = run('echo half >"$NC_OUTPUT/result.dat"; exit 9', {}, { HOSTNAME = "node-9" })
        assert.equal(9, code, err)
        assert.equal("half\n", result "node-9")
    end)

    it("has its result up while it runs, before anybody deletes the pod", function()
        local words = { helper.NCRUN, RECIPE, "publish=500ms", "settle=300ms", "job=long", "--", "sh", "-c", [[
            echo so far >"$NC_OUTPUT/result.dat"; echo 1 >"$NC_CHECKPOINTS/step-1.pt"; sleep 600
        ]] }
        local job <close> = helper.start(words, { env = helper.env(env, { HOSTNAME = "node-10" }) })
        helper.eventually(60, "the result", function() return result "node-10" == "so far\n" end)
        helper.eventually(60, "the checkpoint", function()
            local kept = jobs.checkpoints(gateway.env, "checkpoints/long/")[1]
            return kept and kept.files["step-1.pt"] == "1\n"
        end)
        job:kill "KILL" -- as when the pod goes
        local code, out, err = run('cat "$NC_RESUME"', { "job=long", "resume=latest" }, { HOSTNAME = "node-11" })
        assert.equal(0, code, err)
        assert.equal("1\n", out)
    end)

    it("started with TERM ignored, as the site's script does, still stops in order", function()
        local line = ([[trap '' TERM; exec %s %s settle=300ms -- sh -c 'trap "exit 0" TERM
            echo up >"$NC_OUTPUT/result.dat"; touch "$NC_WORK/ready"; while :; do sleep 0.1; done']]):format(
            helper.NCRUN, RECIPE)
        local job <close> = helper.start({ "sh", "-c", line }, { env = helper.env(env, { HOSTNAME = "node-12" }) })
        helper.eventually(30, "its start", function()
            local _, out = helper.sh(("ls %s/*/ready 2>/dev/null"):format(env.TMPDIR))
            return out ~= ""
        end)
        job:kill "TERM"
        assert.equal(0, (job:wait(40)))
        assert.equal("up\n", result "node-12")
    end)

    for _, case in ipairs {
        { "https://rook-ceph-rgw-nautiluss3.rook", "resolves only inside the cluster" },
        { "http://rook-ceph-rgw-nautiluss3.rook:80", "resolves only inside the cluster" },
        { "https://s3.rook-ceph.svc.cluster.local/", "resolves only inside the cluster" },
        { "https://rgw", "resolves only inside the cluster" },
        { "http://s3-west.nrp-nautilus.io", "only https is safe" },
        { "", "which the Secret has as `endpoint`" },
    } do
        it(("is refused with the endpoint %q, and does not begin"):format(case[1]), function()
            local code, out, err = run("echo ran", {}, { S3_ENDPOINT = case[1] })
            assert.equal(2, code)
            assert.equal("", out)
            assert.truthy(err:find(case[2], 1, true), err)
            assert.is_nil(err:find(env.AWS_SECRET_ACCESS_KEY, 1, true))
        end)
    end
end)
