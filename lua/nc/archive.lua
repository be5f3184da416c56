--- Unpacking tar archives (plain, gzip, zstd) while they stream from a bucket or a folder.
--
--     local store <close> = stores.open "s3://bucket/"
--     local done = archive.unpack(store, "dataset.tar.gz", "/scratch/input")
--     print(done.files, done.bytes)
--
-- Several ranges of the object are on their way while a thread unpacks those that have come; nothing is
-- kept twice. What the names may be, and what is refused: runtime/archive/unpack.h.

local core    = require "nc.core.archive"
local errors  = require "nc.errors"
local streams = require "nc.streams"
local sys     = require "nc.core.sys"
local task    = require "nc.task"

local archive = {}

local ENDINGS <const> = { "%.tar$", "%.tar%.gz$", "%.tgz$", "%.tar%.zst$", "%.tzst$" }

--- Whether a file of this name is an archive that can be unpacked.
function archive.is(path)
    path = path:lower()
    for _, ending in ipairs(ENDINGS) do
        if path:find(ending) then return true end
    end
    return false
end

-- Writes the object's bytes to the unpacker. One that has ended reads no more: its own reason counts.
local function feed(store, path, unpacker)
    local fd = unpacker:fd()
    local ok, found = pcall(streams.download, store.bucket, store.prefix .. path, streams.to_fd(fd))
    unpacker:no_more()
    if not ok and not errors.is(found, "EPIPE") then error(found, 0) end
    if ok and not found then
        error(errors.new { code = "NotFound", message = store:url(path) .. ": there is no such object" }, 0)
    end
end

--- Unpacks the archive into a folder, which is made. The first entry that is refused ends it, with the
--- code "BadPath" (or "ENOSPC"); what was unpacked until then stays.
---@param store nc.BucketStore|nc.FolderStore
---@return { files: integer, bytes: integer }
function archive.unpack(store, path, folder)
    sys.mkdir(folder)
    local url = store:url(path)
    local unpacker <close> = core.unpack(url, folder, store.kind == "folder" and url or nil)
    if store.kind == "bucket" then feed(store, path, unpacker) end
    task.wait(unpacker:token())
    local files, bytes = unpacker:result()
    return { files = files, bytes = bytes }
end

return archive
