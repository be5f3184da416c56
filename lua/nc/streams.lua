--- Bytes that are no file: an object to a function that takes them in order, and what a function gives
--- into an object of a length that nobody knows yet. Several ranges or parts are in flight, in bounded
--- memory.
--
--     streams.download(bucket, "logs/a.log", streams.to_fd(1))
--     streams.upload(streams.from_fd(0), bucket, "data/in.tar")

local errors = require "nc.errors"
local loop   = require "nc.core.loop"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

local streams = {}

local MIB <const> = 1 << 20
local RANGE <const> = 8 * MIB
local AT_ONCE <const> = 6
local PART <const> = 8 * MIB
local PARTS_MAX <const> = 10000
local GROW_EVERY <const> = 2000       -- parts, after which they double: 10,000 of them hold 480 GiB
local BUDGET <const> = 128 * MIB      -- of parts in flight
local CHUNK <const> = 1 * MIB         -- read from a descriptor at a time
local EPERM <const> = "EPERM"         -- what the loop says of a descriptor that never waits: a file

-- Waits until the descriptor can be read from or written to.
local function await(fd, mode)
    local ok, token = pcall(loop.watch, fd, mode)
    if ok then
        task.wait(token)
    elseif not errors.is(token, EPERM) then
        error(token, 0)
    end
end

--- A function that gives the next bytes of a descriptor, and "" at the end.
---@return fun(): string
function streams.from_fd(fd)
    return function()
        await(fd, "r")
        return sys.read(fd, CHUNK)
    end
end

--- A function that writes all of a text to a descriptor, however long that takes.
---@return fun(text: string)
function streams.to_fd(fd)
    return function(text)
        local from = 1
        while true do
            from = sys.write(fd, text, from)
            if from > #text then return end
            await(fd, "w")
        end
    end
end

local function changed(bucket, key)
    return errors.new {
        code = "Changed",
        message = ("%s was replaced while it was read: what came before is of the old one; read it again"):format(
            bucket:url(key)),
    }
end

local function fetch(bucket, key, object, first)
    local last = math.min(first + RANGE, object.size) - 1
    local ok, body = pcall(bucket.get, bucket, key, {
        range = { first, last }, if_match = object.etag, max_body = RANGE,
    })
    if not ok then error(errors.is(body) and body.status == 412 and changed(bucket, key) or body, 0) end
    if not body or #body ~= last - first + 1 then error(changed(bucket, key), 0) end
    return body
end

--- Calls write(text) with an object's bytes in order; each range must still be of the same object.
---@param bucket nc.Bucket
---@param write fun(text: string)
---@return integer? bytes  nil where there is no such object
function streams.download(bucket, key, write)
    local object = bucket:head(key)
    if not object then return nil end
    if object.size == 0 then return 0 end
    local queue, next_first = {}, 0
    local _ <close> = setmetatable({}, {
        __close = function()
            for _, t in ipairs(queue) do t:__close() end
        end,
    })
    while next_first < object.size or #queue > 0 do
        while next_first < object.size and #queue < AT_ONCE do
            queue[#queue + 1] = task.spawn(fetch, bucket, key, object, next_first)
            next_first = next_first + RANGE
        end
        local body = queue[1]:wait()
        table.remove(queue, 1)
        write(body)
    end
    return object.size
end

-- Collects exactly `size` bytes, or what there is before the end.
local function fill(read, rest, size)
    local pieces, length = { rest }, #rest
    while length < size do
        local piece = read()
        if piece == "" then break end
        pieces[#pieces + 1] = piece
        length = length + #piece
    end
    local all = table.concat(pieces)
    return all:sub(1, size), all:sub(size + 1)
end

-- Puts the parts together. That the upload is gone may mean that it was done and the answer was lost.
local function complete(bucket, key, id, parts, bytes)
    local ok, e = pcall(bucket.complete_upload, bucket, key, id, parts)
    if ok then return end
    local object = errors.is(e, "NoSuchUpload") and bucket:head(key)
    if not object or object.size ~= bytes then error(e, 0) end
end

local function upload_parts(bucket, key, id, read, first, rest, part_size)
    local parts, queue, bytes = {}, {}, 0
    local _ <close> = setmetatable({}, {
        __close = function()
            for _, t in ipairs(queue) do t:__close() end
        end,
    })
    local function settle()
        local number = #parts + 1
        parts[number] = { number = number, etag = queue[1]:wait() }
        table.remove(queue, 1)
    end
    local body, number, size = first, 0, part_size
    while #body > 0 do
        number = number + 1
        if number > PARTS_MAX then
            error(errors.new {
                code = "TooLarge",
                message = ("%s: the stream is longer than %d parts of this size: set a larger part_size="):format(
                    bucket:url(key), PARTS_MAX),
            }, 0)
        end
        bytes = bytes + #body
        while #queue >= math.max(1, BUDGET // size) do settle() end
        queue[#queue + 1] = task.spawn(bucket.upload_part, bucket, key, id, number, body)
        if number % GROW_EVERY == 0 then size = size * 2 end
        body, rest = fill(read, rest, size)
    end
    while #queue > 0 do settle() end
    complete(bucket, key, id, parts, bytes)
    return bytes
end

--- Stores all that read() gives, until it gives "", as one object. Nothing is left of an upload that
--- does not come to its end.
---@param read fun(): string
---@param bucket nc.Bucket
---@param part_size integer?  of the first 2000 parts; 8 MiB
---@return integer bytes
function streams.upload(read, bucket, key, part_size)
    local size = part_size or PART
    local first, rest = fill(read, "", size)
    if #first < size then
        bucket:put(key, first)
        return #first
    end
    local id = bucket:create_upload(key)
    local whole = false
    local _ <close> = setmetatable({}, {
        __close = function()
            if not whole then pcall(bucket.abort_upload, bucket, key, id) end
        end,
    })
    local bytes = upload_parts(bucket, key, id, read, first, rest, size)
    whole = true
    return bytes
end

return streams
