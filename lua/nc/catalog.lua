--- Finding a model: by a name of manifests/models.lua, or as owner/name on the hub.

local errors = require "nc.errors"
local models = require "manifests.models"

local catalog = {}

--- The names that manifests/models.lua has, sorted.
---@return string[]
function catalog.names()
    local names = {}
    for name in pairs(models) do names[#names + 1] = name end
    table.sort(names)
    return names
end

--- What a person calls a model -> { name, repository }. The name is the folder's of its copy: a
--- catalog name as it is, else the repository's own, in lower case.
---@param model string   "inkling" or "owner/name"
---@param vendor string  "nvidia" or "amd"
function catalog.find(model, vendor)
    local entry = models[model]
    if entry then
        local variant = entry[vendor] or entry.any
        if not variant then
            error(errors.usage('the model "%s" has no variant for vendor=%s', model, vendor), 0)
        end
        return { name = model, repository = variant.repository }
    end
    local name = model:match "^[%w][%w._-]*/([%w][%w._-]*)$"
    if not name then
        local known = catalog.names()
        known[#known + 1] = "or owner/name on the hub"
        error(errors.usage("%s", errors.unknown("model", model, known)), 0)
    end
    return { name = name:lower(), repository = model }
end

return catalog
