--- Where scripts come from: a file on disk, else a recipe inside this binary.

local errors = require "nc.errors"
local sys    = require "nc.core.sys"

local scripts = {}

--- The embedded recipes' names: "recipes/serve.lua", ...
---@return string[]
function scripts.embedded()
    local names = {}
    for _, name in ipairs(sys.embedded_names()) do
        if name:find "^recipes/" then names[#names + 1] = name end
    end
    return names
end

local function read_file(path)
    local f <close> = assert(io.open(path, "rb"))
    return (f:read "a":gsub("^#[^\n]*", "")) -- a #! line; the line numbers stay
end

--- A script by its path or by an embedded recipe's name, which may go without folder and ending.
---@return { name: string, text: string }
function scripts.find(name)
    local st = sys.stat(name)
    if st and st.type ~= "directory" then return { name = name, text = read_file(name) } end
    for _, candidate in ipairs { name, "recipes/" .. name, "recipes/" .. name .. ".lua" } do
        local text = candidate:find "^recipes/" and sys.embedded(candidate)
        if text then return { name = candidate, text = text } end
    end
    local known = {}
    for i, path in ipairs(scripts.embedded()) do known[i] = path:match "^recipes/(.*)%.lua$" end
    known[#known + 1] = "or a path"
    error(errors.new {
        code = "NotFound",
        message = errors.unknown("script", name, known),
    }, 0)
end

--- Its chunk; what is wrong with it is an error with file and line.
function scripts.load(script)
    local chunk, message = load(script.text, "@" .. script.name, "t")
    if not chunk then error(message, 0) end
    return chunk
end

--- What it says about itself in its first comment.
---@return string[]
function scripts.comment(script)
    local lines = {}
    for line in script.text:gsub("^\n", ""):gmatch "([^\n]*)\n" do
        local text = line:match "^%-%-%-? ?(.*)$"
        if not text then break end
        lines[#lines + 1] = text
    end
    while lines[#lines] == "" do lines[#lines] = nil end
    return lines
end

return scripts
