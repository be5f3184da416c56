local batch  = require "nc.batch"
local places = require "nc.places"

local function failure(fn, ...)
    local ok, e = pcall(fn, ...)
    assert.is_false(ok)
    return e
end

describe("a place", function()
    it("is a key of the bucket, an address, or a path", function()
        assert.same({ "s3://mine/dataset.tar.gz", "s3://other/data/", "/mnt/x", "./y", "../z" },
            places.list("dataset.tar.gz, s3://other/data/ /mnt/x,./y,../z", "mine"))
        assert.same({}, places.list("", nil))
        assert.equal("Usage", failure(places.address, "key", nil).code)
    end)

    it("of a folder ends with a slash", function()
        assert.equal("s3://b/a/", places.folder("a", "b"))
        assert.equal("/mnt/a/", places.folder("/mnt/a/", nil))
        assert.equal("/scratch/x", places.below("/scratch", "x"))
        assert.equal("/x", places.below("/scratch", "/x"))
        assert.equal("/scratch/3", places.task("/scratch", "3"))
        assert.equal("/scratch", places.task("/scratch", nil))
    end)

    it("outside the cluster is an https endpoint that resolves there", function()
        assert.equal("https://s3-west.nrp-nautilus.io", places.outside "https://s3-west.nrp-nautilus.io")
        assert.equal("https://localhost:8443", places.outside "https://localhost:8443")
        for _, url in ipairs {
            "https://rook-ceph-rgw-x.rook", "https://ROOK-CEPH-RGW-X.ROOK.", "http://a.svc", "https://rgw",
            "http://s3-west.nrp-nautilus.io", "s3-west.nrp-nautilus.io",
        } do
            assert.equal("Usage", failure(places.outside, url).code, url)
        end
    end)
end)

describe("batch.here", function()
    local function here(env, given)
        given = given or {}
        given.env = function(name) return env[name] end
        return batch.here(given)
    end

    it("is Slurm's job, and the task of its array", function()
        local env = { SLURM_JOB_ID = "812", SLURM_JOB_NAME = "train", SLURM_JOB_USER = "alice" }
        assert.same({ job = "train", user = "alice", run = "812" }, here(env))
        env.SLURM_ARRAY_JOB_ID, env.SLURM_ARRAY_TASK_ID, env.SLURM_JOB_ID = "810", "3", "814"
        assert.same({ job = "train", user = "alice", task = "3", run = "810_3" }, here(env))
    end)

    it("is the pod, and the index of an indexed Job", function()
        assert.same({ job = "run-job", task = "0", run = "p-0-x" },
            here { POD_NAME = "p-0-x", JOB_COMPLETION_INDEX = "0" })
    end)

    it("is what it is told before that, and refuses what is no part of a path", function()
        local me = here({ USER = "root", NRP_USER = "", JOB_NAME = "a", POD_NAME = "p" }, { job = "b", user = "bob" })
        assert.same({ job = "b", user = "bob", run = "p" }, me)
        for _, word in ipairs { "a/b", "..", "a\nb" } do
            assert.equal("Usage", failure(here, {}, { job = word }).code)
        end
    end)
end)
