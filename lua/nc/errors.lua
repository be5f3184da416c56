--- Work that failed, as a value.
--
-- Misuse of an API is a plain string error that names the caller's line. Ordinary absence is nil.
-- Work that failed raises an object of this module; C raises the same ones.
--
--     local ok, e = pcall(bucket.get, bucket, key)
--     if not ok and errors.is(e, "NoSuchKey") then ... end

local sys = require "nc.core.sys"

local errors = {}

local mt = sys.error_metatable()

---@class nc.Error
---@field code string      short machine name: "NoSuchKey", "Timeout", "ENOSPC"
---@field message string   one sentence: what was tried, on what, what came back, what to do
---@field op string?       the operation
---@field status integer?  HTTP status
---@field retryable boolean

mt.__index = { retryable = false }
mt.__name = "nc.error"
mt.__tostring = function(e) return e.message end

-- Everything that is not here ends with 1.
local EXIT <const> = {
    [2] = { "Usage", "BadConfig", "BadSetting", "BadUrl" },
    [3] = {
        "NotFound", "NoSuchKey", "NoSuchBucket", "NoSuchUpload", "RepoNotFound", "RevisionNotFound",
        "EntryNotFound", "ENOENT",
    },
    [4] = {
        "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
        "RequestTimeTooSkewed", "NoCredentials", "GatedRepo", "NotOurs", "Unauthorized", "EACCES", "EPERM",
    },
    [5] = { "ENOSPC", "EDQUOT", "EFBIG", "QuotaExceeded", "InsufficientStorage" },
    [6] = { "SomeFailed" },
    [126] = { "CommandNotExecutable" },
    [127] = { "CommandNotFound" },
}

local exit_codes = {}
for exit, codes in pairs(EXIT) do
    for _, code in ipairs(codes) do exit_codes[code] = exit end
end

---@param e nc.Error  a table with at least code and message; becomes the error object
---@return nc.Error
function errors.new(e)
    if type(e) ~= "table" or type(e.code) ~= "string" or type(e.message) ~= "string" then
        error("errors.new needs a table with code and message", 2)
    end
    return setmetatable(e, mt)
end

--- Whether e is an error object, and of this code where one is given.
---@return boolean
function errors.is(e, code)
    return getmetatable(e) == mt and (code == nil or e.code == code)
end

--- What the program ends with after e.
---@return integer
function errors.exit_code(e)
    if not errors.is(e) then return 1 end
    if e.code == "Cancelled" and e.signal then return 128 + e.signal end
    return exit_codes[e.code] or 1
end

--- A mistake on the command line.
---@return nc.Error
function errors.usage(format, ...)
    return errors.new { code = "Usage", message = format:format(...) }
end

-- Edits between two words, for "did you mean".
local function distance(a, b)
    local row = {}
    for j = 0, #b do row[j] = j end
    for i = 1, #a do
        local diagonal
        diagonal, row[0] = row[0], i
        for j = 1, #b do
            local cost = a:byte(i) == b:byte(j) and 0 or 1
            diagonal, row[j] = row[j], math.min(row[j] + 1, row[j - 1] + 1, diagonal + cost)
        end
    end
    return row[#b]
end

--- The sentence that refuses a word: `unknown <what> "x" (did you mean "y"?); valid: y, z`.
---@param what string
---@param word any
---@param valid string[]
---@return string
function errors.unknown(what, word, valid)
    word = tostring(word)
    local nearest, least = nil, #word // 2 + 1
    for _, candidate in ipairs(valid) do
        local d = distance(word, candidate)
        if d < least then nearest, least = candidate, d end
    end
    local hint = nearest and (' (did you mean "%s"?)'):format(nearest) or ""
    local list = #valid > 0 and table.concat(valid, ", ") or "none"
    return ('unknown %s "%s"%s; valid: %s'):format(what, word, hint, list)
end

--- Refuses an options table with a name that is not in the sorted list `valid`, at the line of the
--- caller of the function that asks. Returns the table, or an empty one for nil.
---@generic T
---@param options T?
---@param valid string[]
---@return T
function errors.check_options(options, valid)
    if options == nil then return {} end
    if type(options) ~= "table" then error("options must be a table", 3) end
    for name in pairs(options) do
        local known = false
        for _, v in ipairs(valid) do known = known or v == name end
        if not known then error(errors.unknown("option", name, valid), 3) end
    end
    return options
end

return errors
