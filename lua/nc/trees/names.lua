--- Names that a copy must not write, found before anything is written.
--
-- The names come in the order of their bytes, so a fixed amount of memory finds what collides among any
-- number of them: all that lies between "a" and "a/b" begins with "a". Pure.

local errors = require "nc.errors"

local names = {}

local KEY_MAX <const> = 1024  -- bytes, of every S3 server
local PATH_MAX <const> = 4095
local PART_MAX <const> = 255

-- Why a key is no path below a folder, or nil. "x/" stands for a folder. Looks at the parts one by one
-- only where it must: there may be millions of paths.
local function why_no_path(path)
    local framed = "/" .. path .. (path:sub(-1) == "/" and "" or "/")
    if framed:find("/%.?%.?/") then
        if path:sub(1, 1) == "/" then return "is absolute" end
        if framed:find("/../", 1, true) then return "would leave the folder" end
        return "is no path: a part of it is empty or a dot"
    end
    if #path <= PART_MAX then return nil end
    if #path > PATH_MAX then return "is longer than a path may be" end
    for part in path:gmatch "[^/]+" do
        if #part > PART_MAX then return ("has a part longer than %d bytes"):format(PART_MAX) end
    end
end

local function refuse(path, why)
    error(errors.new {
        code = "BadPath",
        message = ('the name "%s" %s; no file of this list was copied: exclude= leaves it out')
            :format(path:gsub("%c", "?"):sub(1, 300), why),
    }, 0)
end

--- A function that is given the files of a list one after the other, in order, and raises the code
--- "BadPath" for a name that can't be written, that is there twice, or that is the folder of another.
---@param kind "bucket"|"folder"   where they go
---@param prefix_length integer    bytes that a bucket's key has before each name
---@return fun(file: { path: string, size: integer })
function names.checker(kind, prefix_length)
    local above = {} -- the names that the last one begins with, itself included
    return function(file)
        local path = file.path
        if path:find "%c" then refuse(path, "holds a control character") end
        if kind == "bucket" then
            if prefix_length + #path > KEY_MAX then refuse(path, ("is a key longer than %d bytes"):format(KEY_MAX)) end
        else
            local why = why_no_path(path)
            if why then refuse(path, why) end
            if path:sub(-1) == "/" and file.size > 0 then refuse(path, "is that of a folder, and has content") end
        end
        local last = above[#above]
        if last == path then refuse(path, "is there twice") end
        if last and last > path then refuse(path, "is not in its place: the server's listing is out of order") end
        while #above > 0 and path:sub(1, #above[#above]) ~= above[#above] do above[#above] = nil end
        if kind == "folder" then
            for _, name in ipairs(above) do
                if name:sub(-1) ~= "/" and path:sub(#name + 1, #name + 1) == "/" then
                    refuse(name, ('is also the folder of "%s"'):format(path:gsub("%c", "?")))
                end
            end
        end
        above[#above + 1] = path
    end
end

return names
