--- A recipe: a job that describes itself.
--
--     return recipe {
--         summary = "Copy a checkpoint into the bucket.",
--         params = {
--             model = { nil, "what to stage", required = true, env = "MODEL" },
--             to    = { "bucket", "where to", choices = { "bucket", "volume" } },
--             every = { "60s", "how often to look", type = "duration" },
--         },
--         command = { "echo", "done" },            -- what follows `--`, when nothing does
--         run = function(p, command) ... end,      -- may return an exit code
--         manifest = function(p, this) ... end,    -- the Kubernetes objects that run it: nc.k8s
--     }
--
-- A parameter is { default, help, type=, choices=, env=, required= }. Types: string, choice (has
-- choices), count (a default that is an integer), bool (a default that is true or false), duration
-- (seconds in p), size (bytes in p), path. A value comes from the command line, else from the
-- environment variable, else it is the default.

local errors = require "nc.errors"
local log    = require "nc.log"
local units  = require "nc.units"

local recipe = {}

---@class nc.Recipe
local Recipe = {}
Recipe.__index = Recipe

local FIELDS <const> = { "command", "manifest", "params", "run", "summary" }
local PARAM_FIELDS <const> = { "choices", "env", "required", "type" }

-- Every recipe has it.
local LOG <const> = { "text", "lines for people or for machines", choices = { "text", "json" }, env = "NCRUN_LOG" }

-- type -> { what a value looks like, its reader: text, param -> value | nil }
local function read_units(read)
    return function(text)
        local ok, value = pcall(read, text)
        return ok and value or nil
    end
end

local YES <const> = { yes = true, ["true"] = true, on = true, ["1"] = true }
local NO <const> = { no = true, ["false"] = true, off = true, ["0"] = true }

local TYPES <const> = {
    string = { "text", function(text) return text end },
    choice = { "", function(text, param)
        for _, choice in ipairs(param.choices) do
            if tostring(choice) == text then return choice end
        end
    end },
    count = { "a whole number, 0 or more", function(text)
        return text:match "^%d+$" and math.tointeger(tonumber(text))
    end },
    duration = { 'a time such as "90s", "5m" or "1.5h"', read_units(units.duration) },
    size = { 'a size such as "64MiB", "10MB" or "2TiB"', read_units(units.size) },
    path = { "a path", function(text)
        local home = os.getenv "HOME"
        if text == "" then return nil end
        return home and text:gsub("^~/", home .. "/") or text
    end },
    bool = { "yes or no", function(text)
        if YES[text] then return true end
        if NO[text] then return false end
    end },
}

local function sorted_keys(t)
    local keys = {}
    for k in pairs(t) do keys[#keys + 1] = k end
    table.sort(keys)
    return keys
end

local function infer_type(default)
    if math.type(default) == "integer" then return "count" end
    return type(default) == "boolean" and "bool" or "string"
end

local function words(list)
    local out = {}
    for i, v in ipairs(list) do out[i] = tostring(v) end
    return table.concat(out, ", ")
end

local function expected(param)
    return param.type == "choice" and "one of " .. words(param.choices) or TYPES[param.type][1]
end

-- Checks one declaration and gives it its type. Errors name the line of `recipe { ... }`.
local function declare(name, d)
    local function refuse(...) error(("parameter %s: "):format(name) .. string.format(...), 4) end
    if type(name) ~= "string" or not name:match "^%a[%w_]*$" then
        refuse("a name has letters, digits and underscores")
    end
    if type(d) ~= "table" or type(d[2]) ~= "string" then refuse('write { default, "help" }') end
    for field in pairs(d) do
        if field ~= 1 and field ~= 2 then
            local known = table.concat(PARAM_FIELDS, " "):find("%f[%w]" .. tostring(field) .. "%f[%W]")
            if not known then refuse("%s", errors.unknown("field", field, PARAM_FIELDS)) end
        end
    end
    local param = {
        name = name, default = d[1], help = d[2], choices = d.choices, env = d.env, required = d.required,
        type = d.type or (d.choices and "choice") or infer_type(d[1]),
    }
    if not TYPES[param.type] then refuse("%s", errors.unknown("type", param.type, sorted_keys(TYPES))) end
    if param.type == "choice" and type(d.choices) ~= "table" then refuse("a choice needs choices") end
    if param.default ~= nil then
        param.value = TYPES[param.type][2](tostring(param.default), param)
        if param.value == nil then
            refuse('the default "%s" is not %s', param.default, expected(param))
        end
    end
    return param
end

--- recipe { ... }: checks the declaration, at the recipe's own line.
---@return nc.Recipe
local function new(_, r)
    if type(r) ~= "table" then error("recipe needs a table", 2) end
    for field in pairs(r) do
        local known = false
        for _, f in ipairs(FIELDS) do known = known or f == field end
        if not known then error(errors.unknown("field of a recipe", field, FIELDS), 2) end
    end
    if type(r.summary) ~= "string" then error("a recipe needs a summary", 2) end
    if type(r.run) ~= "function" then error("a recipe needs run = function(p, command)", 2) end
    local self = setmetatable({}, Recipe)
    for field, value in pairs(r) do self[field] = value end
    self.params = { log = declare("log", LOG) }
    for name, d in pairs(r.params or {}) do self.params[name] = declare(name, d) end
    return self
end

--- Whether a script's value is a recipe.
function recipe.is(v)
    return getmetatable(v) == Recipe
end

local function read(param, text, where)
    local value = TYPES[param.type][2](text, param)
    if value == nil then
        error(errors.usage('%s: "%s" is not %s', where, text, expected(param)), 0)
    end
    return value
end

--- The parameters' values and the command, from the words of the command line; and what these gave, as
--- text by name, with the command (nil: the recipe's own).
---@param args string[]
---@param getenv fun(name: string): string?
---@return table p, string[]? command, { params: table<string, string>, command: string[]? } given
function Recipe:parse(args, getenv)
    local names, given, command = sorted_keys(self.params), {}, self.command
    for i, word in ipairs(args) do
        if word == "--" then
            command = table.move(args, i + 1, #args, 1, {})
            if not self.command then error(errors.usage "this recipe runs no command of yours (after --)", 0) end
            if #command == 0 then error(errors.usage "-- needs a command after it", 0) end
            break
        end
        local name, text = word:match "^([^=]+)=(.*)$"
        if not name then
            error(errors.usage('"%s" is not name=value; names: %s', word, table.concat(names, ", ")), 0)
        end
        if not self.params[name] then error(errors.usage("%s", errors.unknown("parameter", name, names)), 0) end
        given[name] = text
    end

    local p = {}
    for _, name in ipairs(names) do
        local param = self.params[name]
        local from_env = param.env and getenv(param.env)
        if given[name] then
            p[name] = read(param, given[name], name)
        elseif from_env and from_env ~= "" then
            p[name] = read(param, from_env, param.env)
        elseif param.value ~= nil then
            p[name] = param.value
        elseif param.required then
            error(errors.usage("needs %s=...: %s%s", name, param.help,
                param.env and (" (or set %s)"):format(param.env) or ""), 0)
        end
    end
    return p, command, { params = given, command = command ~= self.command and command or nil }
end

local function exit_code(result)
    if result == nil or result == true then return 0 end
    if math.type(result) == "integer" and result >= 0 and result <= 255 then return result end
    if type(result) == "table" and result.signal then return 128 + result.signal end
    if type(result) == "table" and math.type(result.code) == "integer" then return result.code end
    error("run returned " .. tostring(result) .. "; an exit code is 0 to 255, or what proc's wait returns", 0)
end

--- Parses and runs it; returns the exit code.
---@return integer
function Recipe:main(args)
    local p, command = self:parse(args, os.getenv)
    log.format(p.log)
    return exit_code(self.run(p, command))
end

--- The lines about its parameters, for `ncrun help`.
---@return string[]
function Recipe:describe()
    local left, width = {}, 0
    local names = sorted_keys(self.params)
    for i, name in ipairs(names) do
        local param = self.params[name]
        left[i] = name .. "=" .. (param.choices and table.concat(param.choices, "|") or param.type:upper())
        width = math.max(width, #left[i])
    end
    local lines = {}
    for i, name in ipairs(names) do
        local param, notes = self.params[name], {}
        if param.required then notes[#notes + 1] = "required" end
        if param.default ~= nil and param.default ~= "" then
            local shown = param.default
            if param.type == "bool" then shown = shown and "yes" or "no" end
            notes[#notes + 1] = "default " .. tostring(shown)
        end
        if param.env then notes[#notes + 1] = "or " .. param.env end
        local note = #notes > 0 and (" (%s)"):format(table.concat(notes, "; ")) or ""
        lines[i] = ("  %-" .. width .. "s  %s%s"):format(left[i], param.help, note)
    end
    return lines
end

return setmetatable(recipe, { __call = new })
