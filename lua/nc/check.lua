--- What was found of the things that a job needs, one after the other: each there and working, failed
--- with a hint, not set up here, or not looked at because of another.
--
--     local report = check.report(function(finding) print(finding.name, finding.status) end)
--     if report:try("hub", function() return "it answered", { ms = 12 } end, HINTS) then ... end

local errors = require "nc.errors"

local check = {}

---@class nc.Finding
---@field name string     what was looked at
---@field status "ok"|"failed"|"absent"|"skipped"
---@field detail string   what was found
---@field hint string?    of what failed: what to do
---@field code string?    of what failed: the error's
---@field values table?   what was measured, for machines

---@class nc.Report
---@field findings nc.Finding[]
local Report = {}
Report.__index = Report

---@param on_finding fun(finding: nc.Finding)?  called with each as it is found
---@return nc.Report
function check.report(on_finding)
    return setmetatable({ findings = {}, on_finding = on_finding or function() end }, Report)
end

---@param finding nc.Finding
function Report:add(finding)
    self.findings[#self.findings + 1] = finding
    self.on_finding(finding)
end

---@param values table?
function Report:ok(name, detail, values)
    self:add { name = name, status = "ok", detail = detail, values = values }
end

--- It is not set up here, which is no fault.
function Report:absent(name, why)
    self:add { name = name, status = "absent", detail = "not set up here: " .. why }
end

--- These were not looked at, because of something that failed.
---@param names string[]
function Report:skip(names, why)
    for _, name in ipairs(names) do
        self:add { name = name, status = "skipped", detail = "not checked: " .. why }
    end
end

local NETWORK <const> = {
    ConnectFailed = true, DnsFailed = true, NetworkError = true, Timeout = true, TlsFailed = true,
}

-- The sentence without what an error advises by itself, where a hint stands for it: requests' errors end
-- with that, behind the server's code or libcurl's words.
local function what_happened(e)
    if NETWORK[e.code] then return e.message:match "^(.+): [^:]+$" or e.message end
    local _, last = e.message:find(e.code .. "%f[%W]")
    return last and e.message:find("^[:,] ", last + 1) and e.message:sub(1, last) or e.message
end

--- It failed with e.
---@param e nc.Error
---@param hints string|table<string, string|fun(e: nc.Error): string?>?  the hint, or hints by code
function Report:fail(name, e, hints)
    local hint = hints
    if type(hints) == "table" then hint = hints[e.code] end
    if type(hint) == "function" then hint = hint(e) end
    self:add {
        name = name, status = "failed", code = e.code, hint = hint,
        detail = hint and what_happened(e) or e.message,
    }
end

--- Calls look() -> detail, values?; an error object that it raises is the thing's failure.
---@param hints string|table|nil  as of fail
---@return boolean ok, nc.Error?
function Report:try(name, look, hints)
    local ok, detail, values = pcall(look)
    if ok then
        self:ok(name, detail, values)
        return true
    end
    if not errors.is(detail) or detail.code == "Cancelled" then error(detail, 0) end
    self:fail(name, detail, hints)
    return false, detail
end

--- How many there are of each status.
---@return table<string, integer>
function Report:counts()
    local counts = { ok = 0, failed = 0, absent = 0, skipped = 0 }
    for _, f in ipairs(self.findings) do counts[f.status] = counts[f.status] + 1 end
    return counts
end

--- 0, or what a command would end with that met the first failure.
---@return integer
function Report:exit_code()
    for _, f in ipairs(self.findings) do
        if f.status == "failed" then return errors.exit_code(errors.new { code = f.code, message = f.detail }) end
    end
    return 0
end

return check
