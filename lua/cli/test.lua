--- ncrun test [spec ...]: busted inside this runtime, so that specs can wait as recipes do.

local sys = require "nc.core.sys"

local test = {}

local DEFAULT <const> = "spec/lua"

-- The only place where modules are looked for on disk: busted and what it needs, as Debian has them.
local function search_on_disk()
    local roots = { "/usr/local/share/lua/5.4/", "/usr/share/lua/5.4/", "./" }
    local path, cpath = {}, {}
    for _, root in ipairs(roots) do
        path[#path + 1] = root .. "?.lua"
        path[#path + 1] = root .. "?/init.lua"
    end
    for _, root in ipairs { "/usr/local/lib/lua/5.4/", "/usr/lib/x86_64-linux-gnu/lua/5.4/",
                            "/usr/lib/aarch64-linux-gnu/lua/5.4/" } do
        cpath[#cpath + 1] = root .. "?.so"
    end
    package.path, package.cpath = table.concat(path, ";"), table.concat(cpath, ";")
end

---@param args string[]  busted's own
function test.run(args)
    local named = false
    for _, a in ipairs(args) do named = named or sys.stat(a) ~= nil end
    if not named then table.insert(args, DEFAULT) end

    search_on_disk()
    args[0] = "ncrun test"
    arg = args -- luacheck: ignore 121

    -- busted ends the process itself; here it ends the command, so that everything is closed.
    local exit = {}
    local os_exit = os.exit
    os.exit = function(code) -- luacheck: ignore 122
        exit.code = code == true and 0 or code or 1
        error(exit, 0)
    end
    local ok, e = pcall(function() require "busted.runner" { standalone = false } end)
    os.exit = os_exit -- luacheck: ignore 122
    if not ok and e ~= exit then error(e, 0) end
    return exit.code or 0
end

return test
