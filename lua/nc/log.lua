--- One line to stderr for each thing worth telling.
--
--     log.info("staged", { files = 11, bytes = 37e6 })
--     12:00:01 staged bytes=37000000 files=11
--
-- `log=json` makes each line an object for machines. Known secrets are masked, whoever logs them.

local log = {}

local as_json = false
local is_quiet = false
local secrets = {}

local function to_stderr(line) io.stderr:write(line, "\n") end
local output = to_stderr

--- Never prints this text again.
function log.secret(text)
    -- A short one would mask half the words of every line.
    if text and #text >= 8 then secrets[text] = true end
end

local SECRET_ENV <const> = {
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
}

--- text with every known secret replaced, and "?" for control characters but tab and newline.
---@return string
function log.clean(text)
    for _, name in ipairs(SECRET_ENV) do log.secret(os.getenv(name)) end
    for secret in pairs(secrets) do
        local from, to = text:find(secret, 1, true)
        while from do
            text = text:sub(1, from - 1) .. "***" .. text:sub(to + 1)
            from, to = text:find(secret, from + 3, true)
        end
    end
    return (text:gsub("[^\n\t%C]", "?"))
end

local function quote(s)
    return '"' .. s:gsub('[%c"\\]', function(c)
        return (c == '"' or c == "\\") and "\\" .. c or ("\\u%04x"):format(c:byte())
    end) .. '"'
end

local function json_value(v)
    local kind = type(v)
    if kind == "boolean" or math.type(v) == "integer" then return tostring(v) end
    if kind == "number" and v == v and math.abs(v) < math.huge then return ("%.6g"):format(v) end
    return quote(log.clean(tostring(v)))
end

local function text_value(v)
    if math.type(v) == "float" then return ("%.6g"):format(v) end
    local s = tostring(v)
    return s:find "[%s\"=]" and quote(s) or s
end

local function write(level, message, fields)
    local names = {}
    for name in pairs(fields or {}) do names[#names + 1] = tostring(name) end
    table.sort(names)
    local line
    if as_json then
        local parts = {
            ('"time":"%s","level":"%s","message":%s'):format(
                os.date "!%Y-%m-%dT%H:%M:%SZ", level, json_value(message)),
        }
        for _, name in ipairs(names) do
            parts[#parts + 1] = quote(name) .. ":" .. json_value(fields[name])
        end
        line = "{" .. table.concat(parts, ",") .. "}"
    else
        local parts = { os.date "!%H:%M:%S" }
        if level ~= "info" then parts[2] = level .. ":" end
        parts[#parts + 1] = message
        for _, name in ipairs(names) do parts[#parts + 1] = name .. "=" .. text_value(fields[name]) end
        line = log.clean(table.concat(parts, " ")):gsub("\n", " | ")
    end
    output(line)
end

---@param message string
---@param fields table?  values by name, printed sorted
function log.info(message, fields)
    if not is_quiet then write("info", message, fields) end
end

function log.warn(message, fields) write("warning", message, fields) end

function log.error(message, fields) write("error", message, fields) end

--- Hands each line to fn instead of writing it to stderr; nil: to stderr again.
---@param fn fun(line: string)?
function log.to(fn)
    output = fn or to_stderr
end

--- Whether only warnings and errors are written; progress is then not shown either. Without an
--- argument: whether that is so.
---@param quiet boolean?
---@return boolean
function log.quiet(quiet)
    if quiet ~= nil then is_quiet = quiet end
    return is_quiet
end

--- "text" or "json".
function log.format(format)
    as_json = format == "json"
end

--- Whether lines are for machines: progress is then lines too, never a bar.
---@return boolean
function log.is_json()
    return as_json
end

return log
