local helper = require "spec.helper"
local owner  = require "nc.owner"
local sys    = require "nc.core.sys"

local function other(change)
    local o = owner.here "stage"
    for name, value in pairs(change) do o[name] = value or nil end
    return o
end

describe("owner.here", function()
    it("names the job, the pod and this very process", function()
        local me = owner.here "stage"
        assert.equal("stage", me.job)
        assert.equal(os.getenv "POD_NAME" or sys.hostname(), me.pod)
        assert.equal(sys.pid(), me.pid)
        assert.equal("integer", math.type(me.started))
    end)
end)

describe("owner.is_gone", function()
    local me = owner.here "stage"

    it("knows a living process of this pod", function()
        local child <close> = helper.start { "sleep", "60" }
        assert.is_false(owner.is_gone(other { pid = child.pid, started = false }, me))
    end)

    it("knows one that has ended", function()
        local pid
        do
            local child <close> = helper.start { "sleep", "60" }
            pid = child.pid
        end
        assert.is_true(owner.is_gone(other { pid = pid, started = false }, me))
    end)

    it("is not taken in by a process that has got the number of a dead one", function()
        local child <close> = helper.start { "sleep", "60" }
        assert.is_true(owner.is_gone(other { pid = child.pid, started = me.started - 1 }, me))
        assert.is_true(owner.is_gone(other { started = me.started - 1 }, me)) -- this one's
    end)

    it("counts an earlier stage of this process as gone", function()
        assert.is_true(owner.is_gone(owner.here "stage", me))
    end)

    it("knows nothing of another pod outside Kubernetes, nor of one that says nothing", function()
        if os.getenv "KUBERNETES_SERVICE_HOST" then return end
        assert.is_false(owner.is_gone(other { pod = "elsewhere" }, me))
        assert.is_false(owner.is_gone({}, me))
        assert.is_false(owner.is_gone(other { pid = "1" }, me))
        assert.is_false(owner.is_gone(other { pid = 1.5 }, me))
    end)

    it("takes another pod of the same Kubernetes Job as gone, and only that", function()
        local before = os.getenv "KUBERNETES_SERVICE_HOST"
        sys.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        local same = owner.is_gone(other { pod = "elsewhere" }, me)
        local stranger = owner.is_gone(other { pod = "elsewhere", job = "other" }, me)
        local nobody = owner.is_gone({ pod = "elsewhere" }, { pod = "here" })
        sys.setenv("KUBERNETES_SERVICE_HOST", before)
        assert.is_true(same)
        assert.is_false(stranger)
        assert.is_false(nobody)
    end)
end)

describe("owner.describe", function()
    it("says who it is, or that it is not known", function()
        assert.equal("job a on b", owner.describe { job = "a", pod = "b" })
        assert.equal("job ? on ?", owner.describe {})
        assert.truthy(owner.describe { job = {}, pod = 1 })
    end)
end)
