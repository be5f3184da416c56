--- A command that takes operands and name=value options, and the flags that people type for them.
--
--     return command {
--         name = "cat", operands = "s3://... [...]", summary = "...", text = "...",
--         params = { ... }, flags = { ["-q"] = "quiet=yes", ["--region"] = "region" },
--         run = function(p, operands) ... end,
--     }
--
-- Parameters are declared, read and explained as those of a recipe. A flag stands for "name=value", or
-- for a name whose value follows it ("--region X", "--region=X"). The parameters that `many` names may
-- come several times: p.many is the list of { name, value }, in the order of the command line.

local errors = require "nc.errors"
local log    = require "nc.log"
local recipe = require "nc.recipe"

local command = {}

local NAMES <const> = { "cat", "check", "cp", "ls", "rm", "sync" }

---@class nc.Command
local Command = {}
Command.__index = Command

local function sorted_keys(t)
    local keys = {}
    for k in pairs(t) do keys[#keys + 1] = k end
    table.sort(keys)
    return keys
end

local function new(_, c)
    local self = setmetatable(c, Command)
    self.work, self.run = c.run, nil
    self.declared = recipe { summary = c.summary, params = c.params, run = self.work }
    function self.run(words) return self:main(words) end
    return self
end

--- The commands that are declared so, by name: modules cli.<name>.
---@return table<string, nc.Command>
function command.all()
    local all = {}
    for _, name in ipairs(NAMES) do all[name] = require("cli." .. name) end
    return all
end

-- The flag that a word is and what is behind its "=", or nil.
local function flag_of(self, word)
    if self.flags[word] then return self.flags[word] end
    local name, value = word:match "^(%-%-[^=]+)=(.*)$"
    if name and self.flags[name] then return self.flags[name], value end
    error(errors.usage("%s: %s", self.name, errors.unknown("option", word, sorted_keys(self.flags))), 0)
end

-- A flag as a "name=value" word; whether it took the next word for that.
local function translate(self, word, following)
    local stands_for, value = flag_of(self, word)
    if stands_for:find "=" then
        if value then error(errors.usage("%s: %s takes no value", self.name, word), 0) end
        return stands_for, false
    end
    if value then return stands_for .. "=" .. value, false end
    if not following then error(errors.usage("%s: %s wants a value", self.name, word), 0) end
    return stands_for .. "=" .. following, true
end

-- Sorts words into options, operands, and the options that may come several times.
local function sort_words(self, words)
    local options, operands, many = {}, {}, {}
    local function add(word)
        local name, value = word:match "^([%a_][%w_]*)=(.*)$"
        if not self.params[name] and name ~= "log" then
            error(errors.usage("%s: %s; a file of that name is written ./%s", self.name,
                errors.unknown("option", name, sorted_keys(self.params)), word), 0)
        end
        local is_many = false
        for _, m in ipairs(self.many or {}) do is_many = is_many or m == name end
        if is_many then many[#many + 1] = { name = name, value = value } else options[#options + 1] = word end
    end
    local i, only_operands = 1, false
    while i <= #words do
        local word = words[i]
        if only_operands or word == "-" then
            operands[#operands + 1] = word
        elseif word == "--" then
            only_operands = true
        elseif word:sub(1, 1) == "-" then
            local option, took = translate(self, word, words[i + 1])
            add(option)
            if took then i = i + 1 end
        elseif word:match "^[%a_][%w_]*=" then
            add(word)
        else
            operands[#operands + 1] = word
        end
        i = i + 1
    end
    return options, operands, many
end

--- Parses the words and runs it; returns the exit code.
---@param words string[]
---@return integer
function Command:main(words)
    if words[1] == "--help" then
        print(self:describe())
        return 0
    end
    local options, operands, many = sort_words(self, words)
    local p = self.declared:parse(options, os.getenv)
    log.format(p.log)
    p.many = many
    return self.work(p, operands) or 0
end

--- What `ncrun help NAME` prints.
---@return string
function Command:describe()
    local lines = { ("ncrun %s %s"):format(self.name, self.operands), "", self.text:gsub("%s+$", ""), "", "Options:" }
    for _, line in ipairs(self.declared:describe()) do lines[#lines + 1] = line end
    lines[#lines + 1] = ""
    lines[#lines + 1] = "Also:"
    for _, flag in ipairs(sorted_keys(self.flags)) do
        local meaning = self.flags[flag]
        if not meaning:find "=" then flag, meaning = flag .. " X", meaning .. "=X" end
        lines[#lines + 1] = ("  %-20s %s"):format(flag, meaning)
    end
    return table.concat(lines, "\n")
end

--- A mistake of the one who typed it: the message, and how it is written right.
function Command:misuse(why)
    error(errors.usage("%s: %s; write: ncrun %s %s", self.name, why, self.name, self.operands), 0)
end

return setmetatable(command, { __call = new })
