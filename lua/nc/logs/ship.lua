--- Keeps an object of a bucket equal to a file that only grows.
--
--     local ship = ships.new { path = "/logs/a.log", key = "logs/a/pod.log", open = open_bucket }
--     ship:upload()                     -- after which the object is what the file was when it began
--
-- What an upload costs is what the file has grown: a small object is put anew, a larger one is put
-- together on the server, from what it holds already and the new bytes. The object is whole at every
-- moment. Its key is never written twice within a second.
--
-- An object that is there before and does not hold the beginning of the file (the log of an earlier
-- attempt, whose disk is gone) is first copied to `<pod>.1.log`, `<pod>.2.log`, ...

local errors = require "nc.errors"
local log    = require "nc.log"
local sys    = require "nc.core.sys"
local task   = require "nc.task"

local ships = {}

local MIB <const> = 1 << 20
local WHOLE_MAX <const> = 5 * MIB      -- the least a part may have, but for the last
local PART <const> = 8 * MIB
local PARTS_MAX <const> = 10000
local COPY_MAX <const> = 1 << 30       -- S3's limit is 5 GiB; one request should not take minutes
local COMPARED <const> = 64 * 1024
local WRITE_GAP_S <const> = 1.05
local CONTENT <const> = { content_type = "text/plain; charset=utf-8" }

---@class nc.Ship
---@field key string
---@field known { size: integer }?   what the object holds; nil: not looked yet, or in doubt
---@field sent integer               bytes that were sent in all
local Ship = {}
Ship.__index = Ship

---@param options { path: string, key: string, open: fun(): nc.Bucket }
function ships.new(options)
    local self = setmetatable({ path = options.path, key = options.key, open = options.open, sent = 0 }, Ship)
    self.inherited = self:size() > 0 -- another attempt's file, which this one goes on with
    return self
end

--- The pieces that make up `size` bytes of which the object holds the first `held`: each is
--- { first, last, copy = true? }, offsets from 0, both included. Pure.
---@return table[]
function ships.plan(held, size)
    local pieces, at = {}, 0
    if held >= WHOLE_MAX then
        local copies = (held + COPY_MAX - 1) // COPY_MAX -- all about as large: none is too small
        for i = 1, copies do
            local last = held * i // copies
            pieces[i] = { at, last - 1, copy = true }
            at = last
        end
    end
    local part = math.max(PART, (size - at) // (PARTS_MAX - #pieces) + 1)
    while at < size do
        local last = math.min(at + part, size)
        pieces[#pieces + 1] = { at, last - 1 }
        at = last
    end
    return pieces
end

local function read_file(path, first, last)
    local file <close>, why = io.open(path, "rb")
    local data = file and file:seek("set", first) and file:read(last - first + 1)
    if not data or #data ~= last - first + 1 then
        error(errors.new { code = "ReadFailed", message = ("read %s: %s"):format(path, why or "it is shorter") }, 0)
    end
    return data
end

--- The file's size now.
---@return integer
function Ship:size()
    local st = sys.stat(self.path)
    return st and st.size or 0
end

-- One write of a key a second.
local function pause_before_write(self)
    if not self.written then return end
    task.sleep(math.max(0, self.written + WRITE_GAP_S - sys.now()))
end

-- fn() writes the key. Whether it has is unknown when it fails.
local function write(self, fn)
    pause_before_write(self)
    self.known = nil
    local _ <close> = setmetatable({}, { __close = function() self.written = sys.now() end })
    return fn()
end

-- Whether the object is the beginning of the file: it is not longer, and ends with the same bytes.
local function holds_beginning(self, object)
    if object.size > self:size() then return false end
    if object.size == 0 then return true end
    local first = math.max(0, object.size - COMPARED)
    local tail = self.bucket:get(self.key, { range = { first, object.size - 1 } })
    return tail == read_file(self.path, first, object.size - 1)
end

-- The server can't, or won't; not: it is in trouble, or the keys are no good.
local function is_refusal(e)
    return errors.is(e) and (e.status == 400 or e.status == 405 or e.status == 416 or e.status == 501)
end

-- Keeps what another attempt has left under our key.
local function set_aside(self)
    local base = self.key:gsub("%.log$", "")
    local taken, n = {}, 1
    for object in self.bucket:list(base .. ".") do taken[object.key] = true end
    while taken[("%s.%d.log"):format(base, n)] do n = n + 1 end
    local to = ("%s.%d.log"):format(base, n)
    local ok, e = pcall(self.bucket.copy, self.bucket, self.key, to)
    if ok then
        log.info(("the log of the attempt before this one is now %s"):format(self.bucket:url(to)))
    elseif is_refusal(e) then
        self.key = to
        log.info(("this attempt's log goes to %s: the server copies no object"):format(self.bucket:url(to)))
    else
        error(e, 0)
    end
end

-- Uploads that a run which was killed left behind; they are ours, by the key.
local function abort_old(self)
    for upload in self.bucket:uploads(self.key) do
        if upload.key == self.key then self.bucket:abort_upload(self.key, upload.upload_id) end
    end
end

-- What is there? Once, and again after a write whose outcome is unknown.
local function look(self)
    local ok, object = pcall(self.bucket.head, self.bucket, self.key)
    if not ok and not (errors.is(object) and object.status == 403) then error(object, 0) end
    self.blind = not ok -- without the right to list, an absent object can't be told from a forbidden one
    local size = -1     -- any size is news
    if ok and object then
        if (self.looked or self.inherited) and holds_beginning(self, object) then
            size = object.size
        elseif not self.looked then
            set_aside(self)
        end
    end
    if not self.looked and not self.blind then pcall(abort_old, self) end
    self.looked = self.looked or not self.blind
    self.known = { size = size }
end

local function put_whole(self, size)
    local body = size > 0 and read_file(self.path, 0, size - 1) or ""
    local options = { content_type = CONTENT.content_type, if_none_match = self.blind and "*" or nil }
    local ok, e = pcall(write, self, function() return self.bucket:put(self.key, body, options) end)
    if not ok and self.blind and errors.is(e, "PreconditionFailed") then
        self.key = self.key:gsub("%.log$", (".%d.log"):format(os.time())) -- someone's, and not ours to read
        error(e, 0)
    end
    if not ok then error(e, 0) end
    self.blind, self.looked = false, true
    self.sent = self.sent + size
end

local function send_piece(self, upload_id, number, piece)
    if piece.copy then return self.bucket:copy_part(self.key, upload_id, number, self.key, piece) end
    local etag = self.bucket:upload_part(self.key, upload_id, number, read_file(self.path, piece[1], piece[2]))
    self.sent = self.sent + piece[2] - piece[1] + 1
    collectgarbage() -- parts are large: not two of them at a time
    return etag
end

-- An upload that goes when it is not completed.
local function open_upload(self)
    local upload = { id = self.bucket:create_upload(self.key, CONTENT) }
    return setmetatable(upload, { __close = function()
        if upload.done then return end
        pcall(task.deadline, "2s", self.bucket.abort_upload, self.bucket, self.key, upload.id)
    end })
end

local function put_together(self, held, size)
    local upload <close> = open_upload(self)
    local parts = {}
    for number, piece in ipairs(ships.plan(held, size)) do
        parts[number] = { number = number, etag = send_piece(self, upload.id, number, piece) }
    end
    write(self, function()
        -- In doubt it may have been done, and then there is nothing to abort.
        self.bucket:complete_upload(self.key, upload.id, parts)
        upload.done = true
    end)
end

local function put_parts(self, size)
    local held = self.no_copy and 0 or self.known.size
    local ok, e = pcall(put_together, self, held, size)
    if not ok and held >= WHOLE_MAX and is_refusal(e) then
        -- Equal parts only, say, or no copy at all: from now on all of it is sent each time.
        self.no_copy = true
        log.info(("the server does not put logs together (%s): they are sent whole"):format(e.code))
        put_together(self, 0, size)
    elseif not ok then
        error(e, 0)
    end
end

--- Makes the object what the file is now. Raises the reason where it can't.
---@return boolean  whether anything had to be sent
function Ship:upload()
    self.bucket = self.bucket or self.open()
    if not self.known then look(self) end
    local size = self:size()
    if size == self.known.size then return false end
    if size < self.known.size then self.known = { size = -1 } end -- not by us; what is there now counts
    if size <= WHOLE_MAX then
        put_whole(self, size)
    else
        put_parts(self, size)
    end
    self.known = { size = size }
    return true
end

--- After a failure: the next upload resolves credentials and looks at the object again, and does not
--- wait for whatever the server asked the last one to wait for.
function Ship:forget()
    if self.bucket then
        local _ <close> = self.bucket
    end
    self.bucket, self.known = nil, nil
end

--- Bytes of the file that the object is not known to hold.
---@return integer
function Ship:behind()
    return self:size() - math.max(0, self.known and self.known.size or 0)
end

Ship.__close = Ship.forget

return ships
