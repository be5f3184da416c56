--- The command that serves a model, from manifests/engines.lua, and the variables it runs with.
--
--     local engine = engines.find("inkling", "amd")
--     engine:command "/mnt/nvme/models/inkling"     --> { "vllm", "serve", ... }

local engines = require "manifests.engines"
local errors  = require "nc.errors"

local engine = {}

---@class nc.Engine
---@field image string
---@field port integer
---@field env table<string, string>
local Engine = {}
Engine.__index = Engine

--- The engine of a model for a vendor's GPUs.
---@param model string   a name of manifests/models.lua
---@param vendor string  "nvidia" or "amd"
---@return nc.Engine
function engine.find(model, vendor)
    local rows = engines[model]
    local row = rows and rows[vendor]
    if not row then
        error(errors.usage("no engine is known for %s on GPUs of %s: give its command after --", model, vendor), 0)
    end
    return setmetatable({ row = row, image = row.image, port = row.port, env = row.env }, Engine)
end

--- A command of the user's own in its place.
---@param argv string[]
---@return nc.Engine
function engine.custom(argv)
    return setmetatable({ row = { command = argv }, image = "custom", env = {} }, Engine)
end

--- Its words, for weights in this folder.
---@return string[]
function Engine:command(dir)
    local argv = {}
    for i, word in ipairs(self.row.command) do argv[i] = word == "{dir}" and dir or word end
    return argv
end

--- A folder's name for what this engine compiles: what one image has compiled fits no other.
---@return string
function Engine:cache_name()
    return (self.image:gsub("[^%w._-]+", "_"))
end

return engine
