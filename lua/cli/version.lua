--- ncrun version: what this is, and the libraries it runs with.

local sys = require "nc.core.sys"

local version = {}

function version.run()
    local lines = sys.versions()
    table.insert(lines, 2, "build " .. sys.build_id())
    print(table.concat(lines, "\n"))
    -- The static build knows what it was made from.
    local linked = sys.embedded "linked"
    if linked then io.stdout:write(linked) end
    return 0
end

return version
