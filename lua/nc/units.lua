--- Times and sizes with their units, both ways.
--
--     units.duration "1.5h"   --> 5400.0
--     units.size "64MiB"      --> 67108864

local units = {}

local SECONDS <const> = { ms = 0.001, s = 1, m = 60, h = 3600, d = 86400 }

local BYTES <const> = { b = 1 }
for i, letter in ipairs { "k", "m", "g", "t", "p" } do
    BYTES[letter] = 1024 ^ i -- as dd, split and Kubernetes' users mean it in "64M"
    BYTES[letter .. "ib"] = 1024 ^ i
    BYTES[letter .. "b"] = 1000 ^ i
end

local function refuse(what, x, example, level)
    local shown = type(x) == "string" and ('"%s"'):format(x) or tostring(x)
    error(("%s is not a %s; write %s"):format(shown, what, example), level + 2)
end

local function split(x)
    local number, unit = x:match "^%s*(%d+%.?%d*)%s*(%a*)%s*$"
    return tonumber(number), unit
end

--- Seconds in a text such as "250ms", "30s", "5m", "1.5h", "2d", or a number of seconds.
---@param x string|number
---@param level integer?  whose line an error names; 1, the default: the caller's
---@return number
function units.duration(x, level)
    local seconds
    if type(x) == "number" then
        seconds = x
    elseif type(x) == "string" then
        local number, unit = split(x)
        local factor = number and SECONDS[unit == "" and "s" or unit]
        seconds = factor and number * factor
    end
    if not seconds or not (seconds >= 0 and seconds < math.huge) then
        refuse("duration", x, '"250ms", "30s", "5m", "1.5h", "2d" or a number of seconds', level or 1)
    end
    return seconds + 0.0
end

--- Bytes in a text such as "64MiB", "10MB" (millions), "2TiB", "8M" (as MiB), or a number of bytes.
---@param x string|number
---@param level integer?
---@return integer
function units.size(x, level)
    local bytes
    if type(x) == "number" then
        bytes = x
    elseif type(x) == "string" then
        local number, unit = split(x)
        local factor = number and BYTES[unit == "" and "b" or unit:lower()]
        bytes = factor and number * factor
    end
    if not bytes or not (bytes >= 0 and bytes < 2 ^ 63) then
        refuse("size", x, '"64MiB", "10MB", "2TiB" or a number of bytes', level or 1)
    end
    return math.tointeger(bytes) or math.floor(bytes)
end

--- 566142738432 -> "527.3 GiB"
---@return string
function units.format_size(n)
    local names = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" }
    local i = 1
    -- 1023.95 would be shown as 1024.0
    while i < #names and n >= (i == 1 and 1024 or 1023.95) do n, i = n / 1024, i + 1 end
    return (i == 1 and "%.0f %s" or "%.1f %s"):format(n, names[i])
end

--- Bytes a second -> "1.5 GiB/s"
---@return string
function units.format_rate(n)
    return units.format_size(n) .. "/s"
end

--- Seconds -> "0.4s", "12s", "14m 03s", "2h 05m", "3d 04h"
---@return string
function units.format_duration(s)
    if s < 9.95 then return ("%.1fs"):format(s) end
    s = math.floor(s + 0.5)
    if s < 60 then return ("%ds"):format(s) end
    if s < 3600 then return ("%dm %02ds"):format(s // 60, s % 60) end
    if s < 86400 then return ("%dh %02dm"):format(s // 3600, s % 3600 // 60) end
    return ("%dd %02dh"):format(s // 86400, s % 86400 // 3600)
end

return units
