--- Share one volume between pods: a claim on CephFS that many pods mount at once, and a few pods that
--- show it to each other.
--
--   kubectl -n <namespace> apply -f shared-pvc.yaml
--   kubectl -n <namespace> get pvc jupyterhub-shared-volume     Bound, RWX
--   kubectl -n <namespace> logs -l app.kubernetes.io/name=shared-volume
--
--   ncrun render recipes/shared-volume.lua name=course claim=course-data size=100Gi pods=8
--
-- Each pod writes its name into the volume, waits until it can read the names of all the others, prints
-- them and ends. The claim stays, and what is in it; mount it wherever it is needed. pods=0 renders the
-- claim alone.

local cluster = require "manifests.cluster"
local errors  = require "nc.errors"
local k8s     = require "nc.k8s"
local log     = require "nc.log"
local recipe  = require "nc.recipe"
local sys     = require "nc.core.sys"
local task    = require "nc.task"
local volume  = require "nc.volume"

local function names_in(folder)
    return sys.stat(folder) and sys.readdir(folder) or {}
end

return recipe {
    summary = "A volume that many pods mount at once, and pods that share it.",
    params = {
        claim  = { "jupyterhub-shared-volume", "the claim's name" },
        size   = { "1Gi", "how much to claim" },
        class  = { cluster.nrp.storage_class, "storage class: one that gives ReadWriteMany" },
        pods   = { 2, "pods that show the volume to each other" },
        volume = { "/shared", "where the pods mount it", type = "path" },
        pod    = { "", "this pod's name; by default the host's", env = "POD_NAME" },
        round  = { "once", "pods with the same word wait for each other", env = "ROUND" },
        wait   = { "10m", "how long to wait for the others", type = "duration" },
    },

    run = function(p)
        local kind = volume.is_mounted(p.volume) and "a shared volume" or "an ordinary folder"
        local folder = ("%s/.pods/%s"):format(p.volume, p.round)
        local me = p.pod ~= "" and p.pod or sys.hostname()
        sys.mkdir(folder)
        do
            local f <close> = assert(io.open(folder .. "/" .. me, "w"))
            f:write(me, "\n")
        end
        log.info(("%s is on %s (%s)"):format(me, p.volume, kind))

        local limit = sys.now() + p.wait
        while #names_in(folder) < p.pods do
            if sys.now() > limit then
                error(errors.new { code = "Timeout",
                    message = ("only %d of %d pods came to %s"):format(#names_in(folder), p.pods, folder) }, 0)
            end
            task.sleep "0.5s"
        end
        for _, name in ipairs(names_in(folder)) do print(name) end
    end,

    manifest = function(p, this)
        local objects = p.pods == 0 and {} or k8s.job(this, {
            k8s.claim_volume { claim = p.claim, path = p.volume, name = "shared" },
            image = cluster.images.client, copies = p.pods, retries = 2,
            params = { claim = false, size = false, class = false },
            env = { ROUND = { field = "metadata.labels['batch.kubernetes.io/controller-uid']" } },
            requests = { cpu = "100m", memory = "128Mi" }, limits = { cpu = "100m", memory = "128Mi" },
        })
        local claim = k8s.claim(this, { name = p.claim, class = p.class, size = p.size }, this.namespace)
        table.insert(objects, p.pods == 0 and 1 or #objects, claim)
        return objects
    end,
}
