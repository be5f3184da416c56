--- One object down to disk, of twice SIZE and of a sixty-fourth of it: does memory grow with it? With four
--- parts in flight, which is what the small one has: more take more, whatever the size. And no faster than
--- what keeps the small one going for longer than its memory takes to come into use.

local peers = require "peers"
local proc  = require "nc.proc"

local LIMIT <const> = "limit_rate=256MiB"

local function folder(site) return site.disk .. "/out" end

local function pull(prefix)
    return function(site) return peers.ncrun(site:url(prefix), folder(site), "parallel=4", LIMIT) end
end

return { {
    name = "memory",
    describe = function() return "one object down to disk, large and small" end,

    setup = function(site)
        site:serve()
        for prefix, size in pairs { ["large/"] = 2 * site.size, ["small/"] = site.size // 64 } do
            site:make_files(1, size, site.dir .. "/" .. prefix)
            peers.fill(site, prefix)
            proc.capture { "rm", "-rf", site.input } -- the server has it, and memory is not endless
        end
    end,

    clear = function(site) site:empty_folder(folder(site)) end,
    check = function() end, -- of either size; a file that did not come is a failure of the command

    contestants = {
        { name = "large", command = pull "large/" },
        { name = "small", command = pull "small/" },
    },
    gates = { { "memory", "large", "small", 1.1 } },
} }
