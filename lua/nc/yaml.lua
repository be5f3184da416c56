--- YAML text and Lua values.
--
--     yaml.encode({ kind = "Job", args = yaml.list {} }, { order = { "kind" } })
--     yaml.decode(text).spec.replicas
--
-- What is written means the same to every reader of YAML 1.1 and 1.2: strings that one of them could
-- take for something else (on, y, 0123, 1e3, 12:30, "") are quoted, keys too; text of several lines is a
-- literal block where that keeps each byte, else quoted. Keys are sorted: the same value is the same
-- text each time. Null is yaml.null; whole numbers stay whole (8/1 is 8).
--
-- What is read differently by 1.1 and 1.2 (yes, 0123, 12:30, 1e3) is read as a string. Keys are strings
-- as they are written. Anchors are followed; merge keys (<<), keys that come twice and tags that are not
-- YAML's own are refused.

local core   = require "nc.core.yaml"
local errors = require "nc.errors"
local json   = require "nc.json"

local yaml = {}

local MAX_DEPTH <const> = 64
local MAX_VALUES <const> = 1000000

local LIST <const> = getmetatable(json.array {})
local MAP <const> = { __name = "nc.yaml.map" }

--- A value of its own, as json.null: nil can't stand in a table.
yaml.null = json.null

--- Marks a table as a list, as json.array does: an empty one is written as [].
---@generic T : table
---@param t T?
---@return T
function yaml.list(t)
    if t ~= nil and type(t) ~= "table" then error("yaml.list needs a table", 2) end
    return json.array(t or {})
end

--- Marks a table as a map: an empty one is written as {}.
---@generic T : table
---@param t T?
---@return T
function yaml.map(t)
    if t ~= nil and type(t) ~= "table" then error("yaml.map needs a table", 2) end
    return setmetatable(t or {}, MAP)
end

-- ---- write ----

-- "list", "map", or nil for a table that is neither or both.
local function kind_of(t)
    local n, words = 0, 0
    for k in pairs(t) do
        n = n + 1
        if type(k) == "string" then words = words + 1 end
    end
    local mt = getmetatable(t)
    if n == 0 then return mt == LIST and "list" or mt == MAP and "map" or nil end
    if words == n and mt ~= LIST then return "map" end
    return words == 0 and n == #t and mt ~= MAP and "list" or nil
end

-- Digits that read back as the same number, with a point, as every reader wants it.
local function number_text(x)
    local whole = math.tointeger(x)
    if whole then return ("%d"):format(whole) end
    if x ~= x then return ".nan" end
    if x == math.huge or x == -math.huge then return x > 0 and ".inf" or "-.inf" end
    for precision = 15, 17 do
        local text = ("%." .. precision .. "g"):format(x)
        if tonumber(text) == x then
            return text:find ".%." and text or (text:gsub("^-?%d+", "%0.0"))
        end
    end
end

local function sorted_keys(t, rank)
    local keys = {}
    for k in pairs(t) do keys[#keys + 1] = k end
    table.sort(keys, function(a, b)
        local x, y = rank[a] or math.huge, rank[b] or math.huge
        if x ~= y then return x < y end
        return a < b
    end)
    return keys
end

---@class nc.yaml.Writer
---@field items any[]
---@field plain table<integer, string>
---@field rank table<string, integer>

local add

local function add_table(w, value, path, depth)
    local kind = kind_of(value)
    if depth > MAX_DEPTH then error(path .. ": nested too deep (or it holds itself)", 0) end
    if not kind then
        error(path .. (next(value) == nil and ": an empty table is neither list nor map; write yaml.list {} or "
            .. "yaml.map {}" or ": a table that is neither a list nor a map of strings"), 0)
    end
    w.items[#w.items + 1] = kind == "list" and core.LIST or core.MAP
    if kind == "list" then
        for i, v in ipairs(value) do add(w, v, ("%s[%d]"):format(path, i - 1), depth + 1) end
    else
        for _, k in ipairs(sorted_keys(value, w.rank)) do
            w.items[#w.items + 1] = k
            add(w, value[k], path == "" and k or path .. "." .. k, depth + 1)
        end
    end
    w.items[#w.items + 1] = core.END
end

function add(w, value, path, depth)
    local at = #w.items + 1
    if at > MAX_VALUES then error("more than a million values", 0) end
    if type(value) == "table" then return add_table(w, value, path, depth) end
    if type(value) == "number" then
        w.plain[at] = number_text(value)
    elseif type(value) ~= "string" and type(value) ~= "boolean" and value ~= yaml.null then
        error(("%s: a %s"):format(path, type(value)), 0)
    end
    w.items[at] = value
end

--- One document without its `---`, with a line break at its end. Keys that `order` lists come first, in
--- its order, at every level; the others follow by their bytes. Raises at the caller's line for what is
--- no YAML: a table that is neither list nor map, an empty one without a mark, a string that is not
--- UTF-8; with the path to it.
---@param value any
---@param options { order: string[]? }?
---@return string
function yaml.encode(value, options)
    options = errors.check_options(options, { "order" })
    local w = { items = {}, plain = {}, rank = {} }
    for i, key in ipairs(options.order or {}) do w.rank[key] = i end
    local ok, why = pcall(add, w, value, "", 1)
    if not ok then error("can't write YAML: " .. why, 2) end
    local text, e = core.emit(w.items, w.plain)
    if not text then error("can't write YAML: " .. tostring(e), 2) end
    return text
end

--- Documents with `---` between them.
---@param values any[]
---@param options { order: string[]? }?
---@return string
function yaml.encode_all(values, options)
    local texts = {}
    for i, value in ipairs(values) do
        local ok, text = pcall(yaml.encode, value, options)
        if not ok then error(text, 2) end
        texts[i] = text
    end
    return table.concat(texts, "---\n")
end

-- ---- read ----

local function refuse(r, at, format, ...)
    error(errors.new {
        code = "BadYaml", op = "yaml",
        message = ("line %d: "):format(r.lines[at] or 0) .. format:format(...),
    }, 0)
end

local read

local function read_map(r, depth)
    local map = yaml.map()
    while r.items[r.at] ~= core.END do
        local at = r.at
        if r.items[at] == core.ANCHOR then refuse(r, at, "an anchor at a key") end
        local key = r.texts[at]
        if not key then refuse(r, at, "a key that is no string") end
        if key == core.MERGE then refuse(r, at, "merge keys (<<) are not read; write the keys out") end
        if map[key] ~= nil then refuse(r, at, 'the key "%s" comes twice', key) end
        r.at = at + 1
        map[key] = read(r, depth)
    end
    r.at = r.at + 1
    return map
end

local function read_list(r, depth)
    local list = yaml.list()
    while r.items[r.at] ~= core.END do list[#list + 1] = read(r, depth) end
    r.at = r.at + 1
    return list
end

-- The value at r.at, which moves behind it. An anchor counts once its value is whole, so that nothing
-- holds itself.
function read(r, depth)
    local at = r.at
    local item = r.items[at]
    r.at = at + 1
    if r.texts[at] then return item end
    if item == core.ANCHOR then
        local name = r.items[at + 1]
        r.at = at + 2
        local value = read(r, depth)
        r.anchors[name] = value
        return value
    end
    if item == core.ALIAS then
        local name = r.items[at + 1]
        r.at = at + 2
        if r.anchors[name] == nil then refuse(r, at, "no anchor &%s before *%s", name, name) end
        return r.anchors[name]
    end
    if depth == 0 then refuse(r, at, "nested too deep") end
    return (item == core.MAP and read_map or read_list)(r, depth - 1)
end

--- The documents of a text, in their order. Lists and maps are marked (an empty one stays what it is).
--- Raises an error object (code "BadYaml") with the line.
---@param text string
---@return any[]
function yaml.decode_all(text)
    if type(text) ~= "string" then error("yaml.decode_all needs a string", 2) end
    local items, lines, texts = core.parse(text)
    if not items then error(lines, 0) end
    local r = { items = items, lines = lines, texts = texts, at = 1 }
    local values = {}
    while r.at <= #items do
        r.at, r.anchors = r.at + 1, {}
        values[#values + 1] = read(r, MAX_DEPTH)
    end
    return values
end

--- The one document of a text; none at all is yaml.null.
---@param text string
---@return any
function yaml.decode(text)
    if type(text) ~= "string" then error("yaml.decode needs a string", 2) end
    local values = yaml.decode_all(text)
    if #values > 1 then
        error(errors.new { code = "BadYaml", op = "yaml",
            message = ("%d documents where one is wanted"):format(#values) }, 0)
    end
    if #values == 0 then return yaml.null end
    return values[1]
end

return yaml
