--- Where AWS tools are told things: environment variables and the two files with profiles.
--
-- Values lose the blanks and newlines around them (a Secret made with `echo` ends in one), and an
-- empty one is as good as none. A control character inside is refused by the setting's name; values
-- are never shown.

local errors = require "nc.errors"
local ini    = require "nc.ini"

local settings = {}

local Settings = {}
Settings.__index = Settings

local function bad_setting(format, ...)
    error(errors.new { code = "BadSetting", message = format:format(...), op = "aws" }, 0)
end

--- Refuses a setting, in a sentence.
settings.refuse = bad_setting

--- The value without blanks around it; nil when nothing is left.
---@param name string  for the refusal
---@param value string?
---@return string?
function settings.clean(name, value)
    value = value and value:match "^%s*(.-)%s*$"
    if not value or value == "" then return nil end
    if value:find "%c" then bad_setting("%s holds a control character", name) end
    return value
end

--- An environment variable, cleaned.
---@return string?
function Settings:env(name)
    return settings.clean(name, self.getenv(name))
end

--- What the profile says, from either file; the credentials file wins.
---@return string|table|nil
function Settings:get(key)
    for _, section in ipairs { self.credentials or {}, self.config or {} } do
        local value = section[key]
        if type(value) == "table" then return value end
        value = settings.clean(("%s in profile %s"):format(key, self.profile), value)
        if value then return value end
    end
end

--- As get, where only text makes sense.
---@return string?
function Settings:text(key)
    local value = self:get(key)
    return type(value) == "string" and value or nil
end

--- The first environment variable of the list that is set, else the profile's setting.
---@return string? value, string? name  what it was called
function Settings:first(variables, key)
    for _, name in ipairs(variables) do
        local value = self:env(name)
        if value then return value, name end
    end
    local value = key and self:text(key)
    if value then return value, ("%s in profile %s"):format(key, self.profile) end
end

--- A section of the config file that is no profile, such as `services mine`.
function Settings:section(title)
    return self.sections[title]
end

local function path_of(self, variable, default)
    local path = self:env(variable)
    local home = self:env "HOME"
    path = path or (home and "~/" .. default)
    if path and path:find "^~/" then path = home and home .. path:sub(2) end
    return path
end

local function load(self, path)
    local text = path and self.read(path)
    return text and ini.parse(text, path) or {}, text ~= nil
end

--- Reads both files.
---@param getenv fun(name: string): string?
---@param read fun(path: string): string?  a file's content, nil when it can't be read
---@param profile string?  else AWS_PROFILE, AWS_DEFAULT_PROFILE, "default"
function settings.open(getenv, read, profile)
    local self = setmetatable({ getenv = getenv, read = read }, Settings)
    local named = profile or self:env "AWS_PROFILE" or self:env "AWS_DEFAULT_PROFILE"
    self.profile = named or "default"
    self.explicit = profile ~= nil

    local config_exists, credentials_exist
    self.config_path = path_of(self, "AWS_CONFIG_FILE", ".aws/config")
    self.credentials_path = path_of(self, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")
    self.sections, config_exists = load(self, self.config_path)
    local by_profile
    by_profile, credentials_exist = load(self, self.credentials_path)

    self.config = self.sections["profile " .. self.profile]
        or (self.profile == "default" and self.sections.default or nil)
    self.credentials = by_profile[self.profile]
    self.notes = {
        config = self.config and "no keys in profile " .. self.profile
            or config_exists and "no profile " .. self.profile or "no such file",
        credentials = self.credentials and "no keys in profile " .. self.profile
            or credentials_exist and "no profile " .. self.profile or "no such file",
    }
    if named and named ~= "default" and not self.config and not self.credentials then
        error(errors.new {
            code = "NoCredentials", op = "aws",
            message = ("profile %s is in neither %s nor %s"):format(named,
                self.config_path or "~/.aws/config", self.credentials_path or "~/.aws/credentials"),
        }, 0)
    end
    return self
end

return settings
