--- Two lists of files side by side, and whether what is there already is what would be copied. Pure.

local compare = {}

--- Pairs up two iterators of files in the order of their paths: each call gives the two entries of one
--- path, either of which may be nil, and nothing at the end.
---@param next_a fun(): table?
---@param next_b fun(): table?
---@return fun(): table?, table?
function compare.side_by_side(next_a, next_b)
    local a, b, begun
    return function()
        if not begun then a, b, begun = next_a(), next_b(), true end
        local x, y = a, b
        if x and y and x.path ~= y.path then
            if x.path < y.path then y = nil else x = nil end
        end
        if x then a = next_a() end
        if y then b = next_b() end
        return x, y
    end
end

--- Whether `there` holds what `file` would be copied to it for.
---
--- The manifests of both sides decide where both list the file. Else the sizes must be the same, and
--- besides that either the ETags (two buckets; different ones say nothing), or what is there must be no
--- older than the file.
---@param file { size: integer, modified: number, etag: string? }
---@param there { size: integer, modified: number, etag: string? }
---@param known { sha256: string? }?        the file in its tree's manifest
---@param known_there { sha256: string? }?  ... in that of the other tree
---@return boolean
function compare.is_same(file, there, known, known_there)
    if file.size ~= there.size then return false end
    if known and known_there and known.sha256 and known_there.sha256 then
        return known.sha256 == known_there.sha256
    end
    if file.etag and file.etag == there.etag then return true end
    return there.modified >= file.modified
end

return compare
