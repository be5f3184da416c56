--- ncrun version: what this is, and the libraries it runs with.

local sys = require "nc.core.sys"

local version = {}

function version.run()
    for _, line in ipairs(sys.versions()) do print(line) end
    return 0
end

return version
