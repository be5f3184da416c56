--- A model hub that speaks Hugging Face's protocol.
--
--     local hub = hubs.open()                          -- HF_ENDPOINT, HF_TOKEN
--     local model = hub:pin("owner/name", "main")      -- one commit for all of it
--     for _, file in ipairs(model:files()) do print(file.path, file.size) end

local core   = require "nc.core.hub"
local errors = require "nc.errors"
local http   = require "nc.http"
local json   = require "nc.json"
local log    = require "nc.log"
local text   = require "nc.core.text"

local hub = {}

local DEFAULT <const> = "https://huggingface.co"
local PAGE_MAX <const> = 32 * 1024 * 1024
local PAGES_MAX <const> = 10000

---@class nc.Hub
local Hub = {}
Hub.__index = Hub

---@class nc.Model
---@field repository string
---@field commit string   40 hex digits
local Model = {}
Model.__index = Model

-- Blanks around a value are what a shell or a Secret left there; a control character inside is
-- refused without showing the value.
local function trimmed(value, name)
    if not value then return nil end
    value = value:match "^%s*(.-)%s*$"
    if value:find "%c" then
        error(errors.usage("%s holds a control character: set it again", name), 0)
    end
    return value ~= "" and value or nil
end

local function read_file(path)
    local file <close> = io.open(path, "r")
    return file and file:read "a"
end

-- HF_TOKEN, HUGGING_FACE_HUB_TOKEN, then the file that a login left; and which of them it was.
local function find_token(getenv)
    for _, name in ipairs { "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN" } do
        local token = trimmed(getenv(name), name)
        if token then return token, name end
    end
    local home = getenv "HF_HOME" or (getenv "HOME" and getenv "HOME" .. "/.cache/huggingface")
    local path = getenv "HF_TOKEN_PATH" or (home and home .. "/token")
    local token = path and trimmed(read_file(path), path)
    return token, token and path
end

--- Where the hub is and what it is shown.
---@param options { endpoint: string?, token: string?, getenv: (fun(name: string): string?)? }?
---@return { endpoint: string, token: string?, source: string? }  source: where the token was found
function hub.settings(options)
    local o = errors.check_options(options, { "endpoint", "getenv", "token" })
    local getenv = o.getenv or os.getenv
    local token, source = trimmed(o.token, "token"), "token="
    if not token then token, source = find_token(getenv) end
    local endpoint = trimmed(o.endpoint, "endpoint") or trimmed(getenv "HF_ENDPOINT", "HF_ENDPOINT") or DEFAULT
    log.secret(token)
    return { endpoint = endpoint:gsub("/+$", ""), token = token, source = source }
end

---@param options table?  as of hub.settings
---@return nc.Hub
function hub.open(options)
    local s = hub.settings(errors.check_options(options, { "endpoint", "getenv", "token" }))
    return setmetatable({ client = core.open(s.endpoint, s.token), endpoint = s.endpoint }, Hub)
end

function Hub:ask(path, what)
    local res = http.await(core.start(self.client, { path = path, what = what, max_body = PAGE_MAX }))
    local ok, value = pcall(json.decode, res.body)
    if not ok or type(value) ~= "table" then
        error(errors.new {
            code = "HubError", status = res.status,
            message = ("%s: %s answered with something that is no JSON: check HF_ENDPOINT"):format(what, self.endpoint),
        }, 0)
    end
    return value, res
end

--- Finds the commit that a revision (a branch, a tag or a commit; "main") stands for now.
---@return nc.Model
function Hub:pin(repository, revision)
    if type(repository) ~= "string" or not repository:match "^[%w][%w._-]*/[%w][%w._-]*$" then
        error(errors.usage('"%s" is no repository; write owner/name', tostring(repository)), 0)
    end
    revision = revision or "main"
    local what = ("look up %s at %s"):format(repository, revision)
    local info = self:ask(("/api/models/%s/revision/%s"):format(
        text.url_encode(repository, true), text.url_encode(revision)), what)
    if type(info.sha) ~= "string" or not info.sha:match "^%x+$" or #info.sha ~= 40 then
        error(errors.new { code = "HubError", message = what .. ": the hub named no commit" }, 0)
    end
    return setmetatable({ hub = self, repository = repository, commit = info.sha }, Model)
end

--- What a Link header (RFC 8288) names as the page that follows: a path with its query, or nil. Pure.
---@param header string?
---@param endpoint string
---@return string?
function hub.next_page(header, endpoint)
    local link = header and header:match '<([^>]+)>%s*;%s*rel="next"'
    if not link then return nil end
    local url = not link:find "%c" and text.url_resolve(endpoint, link)
    if not url or not text.same_origin(url, endpoint) then
        error(errors.new { code = "HubError", message = "the hub's next page is on another host: not followed" }, 0)
    end
    return (url:gsub("^https?://[^/]+", ""))
end

local function hex(value, digits)
    return type(value) == "string" and #value == digits and value:match "^%x+$" and value:lower() or nil
end

-- One entry of the tree as a file, or nil for a folder.
local function file_of(entry, what)
    if type(entry) ~= "table" then entry = { type = "file" } end -- refused for what it lacks
    if entry.type ~= "file" then return nil end
    local lfs = type(entry.lfs) == "table" and entry.lfs or nil
    local size = lfs and lfs.size or entry.size
    local sha256, blob = lfs and hex(lfs.oid, 64), not lfs and hex(entry.oid, 40)
    if type(entry.path) ~= "string" or math.type(size) ~= "integer" or size < 0 or not (sha256 or blob) then
        error(errors.new { code = "HubError", message = what .. ": an entry without path, size or digest" }, 0)
    end
    return { path = entry.path, size = size, sha256 = sha256 or nil, blob = blob or nil }
end

--- The files of one page of a tree: { path, size, sha256 | blob }. Pure.
---@param entries any   the decoded answer
---@param what string   for messages
---@return table[]
function hub.files_of(entries, what)
    if type(entries) ~= "table" or (#entries == 0 and next(entries) ~= nil) then
        error(errors.new { code = "HubError", message = what .. ": the hub's answer is no list of files" }, 0)
    end
    local files = {}
    for _, entry in ipairs(entries) do files[#files + 1] = file_of(entry, what) end
    return files
end

-- fnmatch where * crosses /; what is allowed first, then what is ignored.
local function matches(path, patterns)
    for _, pattern in ipairs(patterns) do
        if text.glob(pattern, path) then return true end
    end
    return false
end

--- The commit's files sorted by path: { path, size, sha256 | blob }; blob is git's name of the
--- content (SHA-1), which the hub gives for small files.
---@param options { allow: string[]?, ignore: string[]? }?
---@return table[]
function Model:files(options)
    local o = errors.check_options(options, { "allow", "ignore" })
    local what = ("list %s at %s"):format(self.repository, self.commit:sub(1, 8))
    local path = ("/api/models/%s/tree/%s?recursive=true"):format(text.url_encode(self.repository, true), self.commit)
    local files, pages, seen = {}, 0, {}
    while path do
        pages = pages + 1
        if seen[path] or pages > PAGES_MAX then
            error(errors.new { code = "HubError", message = what .. ": the hub gives the same page again" }, 0)
        end
        seen[path] = true
        local entries, res = self.hub:ask(path, what)
        for _, file in ipairs(hub.files_of(entries, what)) do
            local wanted = not o.allow or matches(file.path, o.allow)
            if wanted and not (o.ignore and matches(file.path, o.ignore)) then files[#files + 1] = file end
        end
        path = hub.next_page(res.headers.link, self.hub.endpoint)
    end
    table.sort(files, function(a, b) return a.path < b.path end)
    return files
end

--- For nc.transfer.
function Model:source()
    return { kind = "hub", client = self.hub.client, repository = self.repository, commit = self.commit }
end

return hub
