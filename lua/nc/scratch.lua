--- A job's folder on the node's own disk.
--
--     local work <close> = scratch.open { name = "train" }
--     print(work.path)                          -- /scratch/train.x7Gq2a, removed at the end
--
-- It lies in TMPDIR where that says more than /tmp, else in /scratch where there is such a folder, else
-- in /tmp. A folder that was asked for by its name is used as it is, and stays.

local disk   = require "nc.core.disk"
local errors = require "nc.errors"
local log    = require "nc.log"
local sys    = require "nc.core.sys"

local scratch = {}

---@class nc.Scratch
---@field path string   absolute, without a "/" at its end
---@field keep boolean  whether it stays; set it when something in it is nowhere else
local Scratch = {}
Scratch.__index = Scratch

local function is_folder(path)
    local ok, st = pcall(sys.stat, path)
    return ok and st and st.type == "directory"
end

--- The folder that scratch folders are made in.
---@return string
function scratch.base()
    local tmp = (os.getenv "TMPDIR" or ""):gsub("(.)/+$", "%1")
    if tmp ~= "" and tmp ~= "/tmp" and is_folder(tmp) then return tmp end
    return is_folder "/scratch" and "/scratch" or "/tmp"
end

local function own_folder(name)
    local base = scratch.base()
    local ok, path = pcall(sys.mkdtemp, base .. "/" .. name)
    if ok then return path end
    if base == "/tmp" then error(path, 0) end
    log.warn(tostring(path) .. "; working in /tmp")
    return sys.mkdtemp("/tmp/" .. name)
end

--- Makes the folder.
---@param options { name: string, path: string? }  path: the very folder to use
---@return nc.Scratch  `<close>` removes it, unless it was named or is to be kept
function scratch.open(options)
    local o = errors.check_options(options, { "name", "path" })
    local path = o.path
    if path then
        path = path:gsub("(.)/+$", "%1")
        if path:sub(1, 1) ~= "/" then path = os.getenv "PWD" .. "/" .. path end
        sys.mkdir(path)
    else
        path = own_folder(o.name)
    end
    return setmetatable({ path = path, keep = o.path ~= nil }, Scratch)
end

function Scratch:__close()
    if self.keep then return end
    local ok, e = pcall(disk.remove_tree, self.path)
    if not ok then log.warn(tostring(e)) end
end

return scratch
