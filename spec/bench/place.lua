--- Weights from a copy's folder, as a shared volume has it, onto another folder, as `serve` does it. That a
--- volume is a network file system is for the recipe to insist on; here it may be a disk or memory.
--
--   ncrun spec/bench/place.lua from=volume to=nvme

local copies = require "nc.copy"
local place  = require "nc.place"
local recipe = require "nc.recipe"

return recipe {
    summary = "Place the weights of bench/checkpoint.",
    params = {
        from = { nil, "the folder above models/checkpoint/", required = true },
        to   = { nil, "the same of the NVMe", required = true },
    },
    run = function(p)
        local done = place.run {
            model = { repository = "bench/checkpoint", revision = "main" },
            volume = copies.on_volume(p.from, "checkpoint"), nvme = copies.in_folder(p.to, "checkpoint"),
        }
        assert(done.from == "volume")
    end,
}
