--- Files in the manner of ~/.aws/config and ~/.aws/credentials, as the AWS CLI reads them.
--
--     [profile work]
--     region = eu-west-1
--     # a comment has a line of its own
--     s3 =
--         addressing_style = path
--
-- A section's name keeps its case and loses its quotes; a setting's name is lower-case; `=` or `:`
-- divides. An indented line goes on with the setting above it: where that one has no value of its
-- own the lines below are settings within it. A section that comes twice is one; the last value wins.

local errors = require "nc.errors"

local ini = {}

-- The text of the line is never shown: it may hold a secret.
local function refuse(name, number, why)
    error(errors.new {
        code = "BadConfig",
        message = ("%s, line %d: %s"):format(name, number, why),
        op = "config",
    }, 0)
end

local function trim(s)
    return s:match "^%s*(.-)%s*$"
end

-- `profile  "my work"` and `profile my work` are the same section.
local function section_name(header)
    return (trim(header):gsub('"', ""):gsub("'", ""):gsub("%s+", " "))
end

local function split(line)
    local key, value = line:match "^([^=:]-)%s*[=:]%s*(.-)%s*$"
    if key and key ~= "" then return key:lower(), value end
end

-- Adds an indented line to the value it continues.
local function continue(section, key, line, name, number)
    local value = section[key]
    if value == "" then
        value = {}
        section[key] = value
    end
    if type(value) == "string" then
        section[key] = value .. "\n" .. line
        return
    end
    local inner, inner_value = split(line)
    if not inner then refuse(name, number, ("%s wants lines of name = value"):format(key)) end
    value[inner] = inner_value
end

--- Sections by name, each a table of settings: strings, or tables for nested ones.
---@param text string
---@param name string  the file's, for messages
---@return table<string, table<string, string|table<string, string>>>
function ini.parse(text, name)
    local sections = {}
    local section, key
    local number = 0
    for line in (text:gsub("^\xEF\xBB\xBF", "") .. "\n"):gmatch "(.-)\r?\n" do
        number = number + 1
        local content = trim(line)
        local header = line:match "^%[(.*)%]%s*$"
        if content == "" or content:find "^[#;]" then -- luacheck: ignore 542
            -- Nothing, not even the end of the value above.
        elseif header then
            local title = section_name(header)
            if title == "" then refuse(name, number, "a section without a name") end
            sections[title] = sections[title] or {}
            section, key = sections[title], nil
        elseif not section then
            refuse(name, number, "a setting before the first [section]")
        elseif line:find "^%s" and key then
            continue(section, key, content, name, number)
        else
            local value
            key, value = split(content)
            if not key then refuse(name, number, "neither [section] nor name = value") end
            section[key] = value
        end
    end
    return sections
end

return ini
