--- The static build beside the dynamic one, over https: the same sources, but another build of libcurl,
--- and glibc and OpenSSL linked in. A bucket's large objects into memory, and out of it again.

local peers = require "peers"

local PREFIX <const> = "static/"

-- Both move what `ends` says.
local function contestants(ends)
    local list = {}
    for i, name in ipairs { "static", "dynamic" } do
        list[i] = { name = name, command = function(site)
            local argv = peers.ncrun(ends(site))
            argv[1] = name == "static" and "build/static/ncrun" or "build/ncrun"
            return argv
        end }
    end
    return list
end

local GATES <const> = { { "wall", "static", "dynamic", 1.05 } }

return {
    {
        name = "static-down",
        describe = function(site) return site:describe_large() .. " down to tmpfs over https" end,
        setup = function(site)
            site:make_large()
            site:serve "https"
            peers.fill(site, PREFIX)
        end,
        clear = function(site) site:empty_folder(site.dir .. "/out") end,
        check = function(site, bytes) site:check_folder(site.dir .. "/out", bytes) end,
        contestants = contestants(function(site) return site:url(PREFIX), site.dir .. "/out" end),
        gates = GATES,
    },
    {
        name = "static-up",
        describe = function(site) return site:describe_large() .. " up over https" end,
        setup = function(site)
            site:make_large()
            site:serve "https"
        end,
        clear = function(site) site:empty_bucket() end,
        check = function(site) site:check_bucket(PREFIX) end,
        contestants = contestants(function(site) return site.input, site:url(PREFIX) end),
        gates = GATES,
    },
}
