--- Unfinished uploads of a copy: which are ours, and going on from them.
--
-- An upload can't be asked whose it is. What was there before the first run of this stage is
-- somebody else's, and the heartbeat's journal keeps that list from run to run; what has come since,
-- for a file of the stage, is ours.

local uploads = {}

local PART_LEAST <const> = 5 << 20

--- The ids of all that are there now: the strangers of a stage that begins.
---@return table<string, true>
function uploads.strangers(copy)
    local ids = {}
    for _, upload in ipairs(copy:uploads()) do ids[upload.upload_id] = true end
    return ids
end

--- Those of a stage of these files, but for the strangers.
---@param wanted table<string, table>  files by path
---@return table[]
function uploads.ours(copy, wanted, strangers)
    local list = {}
    for _, upload in ipairs(copy:uploads()) do
        if wanted[upload.path] and not strangers[upload.upload_id] then list[#list + 1] = upload end
    end
    return list
end

--- The ETags of an upload's parts by number, the part size and their count; nil where they are not
--- the parts of such a file, cut into equal ones. Pure.
---@param parts { number: integer, size: integer, etag: string }[]?
---@param size integer  the file's
function uploads.usable_parts(parts, size)
    local part_size = 0
    for _, p in ipairs(parts or {}) do part_size = math.max(part_size, p.size) end
    if part_size < PART_LEAST then return nil end
    local count = (size + part_size - 1) // part_size
    local etags = {}
    for _, p in ipairs(parts) do
        local want = p.number == count and size - (count - 1) * part_size or part_size
        if p.number < 1 or p.number > count or p.size ~= want then return nil end
        etags[p.number] = p.etag
    end
    if count < 2 then return nil end
    return etags, part_size, #parts
end

--- Gives each file that is to be moved the upload that has most of its parts, and aborts the others.
---@param moving table<string, table>  files by path; they get upload_id, etags and part_size
function uploads.continue(copy, moving, list)
    local counts = {}
    for _, upload in ipairs(list) do
        local file = moving[upload.path]
        local etags, part_size, count
        if file then etags, part_size, count = uploads.usable_parts(copy:parts(upload), file.size) end
        if etags and count > (counts[file.path] or 0) then
            if file.upload_id then copy:abort { path = file.path, upload_id = file.upload_id } end
            file.upload_id, file.etags, file.part_size = upload.upload_id, etags, part_size
            counts[file.path] = count
        else
            copy:abort(upload)
        end
    end
end

return uploads
