--- One bucket of an S3 server.
--
--     local bucket <close> = s3.bucket "name"            -- keys and endpoint as the AWS CLI finds them
--     bucket:put("a/b", "text")
--     local body, object = bucket:get "a/b"              -- nil where there is none
--     for object in bucket:list "a/" do print(object.key, object.size) end
--
-- What is absent is nil; what failed raises an error object with the server's own code.

local aws    = require "nc.aws"
local core   = require "nc.core.s3"
local errors = require "nc.errors"
local http   = require "nc.http"
local log    = require "nc.log"
local task   = require "nc.task"
local text   = require "nc.core.text"
local units  = require "nc.units"
local xml    = require "nc.core.s3xml"

local s3 = {}

local RENEW_BEFORE_S <const> = 300 -- temporary keys are read again this long before they expire
local PAGE_MAX <const> = 8 * 1024 * 1024

---@class nc.Bucket
---@field name string
---@field client userdata   for nc.core.transfer
---@field location string   endpoint and bucket, for messages
local Bucket = {}
Bucket.__index = Bucket
Bucket.__name = "nc.bucket"

-- Amazon's own endpoints want the bucket in the host name, others understand the path; a name with a
-- dot fits no certificate. The profile's `s3 = addressing_style` decides before that.
local function wants_host(config, name)
    if config.addressing then return config.addressing == "virtual" end
    if config.endpoint and not config.endpoint:find("amazonaws%.com") then return false end
    return not name:find(".", 1, true)
end

-- Without this libcurl would say so at the first request, and not by which name it was told.
local function check_bundle(config)
    local path = config.ca_bundle
    if not path or (config.endpoint and config.endpoint:find "^http:") then return end
    local file <close> = io.open(path, "rb")
    if not file then
        error(errors.new {
            code = "BadSetting",
            message = ("the CA bundle %s can't be read: check AWS_CA_BUNDLE, or ca_bundle in the profile"):format(
                path),
        }, 0)
    end
end

-- Temporary keys: a task that reads them again before they expire, or when a server says that they
-- have.
local function keep_fresh(client, config)
    return task.every("5s", function()
        local due = config.expires and config.expires - os.time() < RENEW_BEFORE_S
        if not due and not client:keys_expired() then return end
        local ok, keys = pcall(aws.credentials, config)
        if ok then
            config.expires = keys.expires
            client:set_keys(keys.access_key, keys.secret_key, keys.session_token)
        elseif errors.is(keys, "Cancelled") then
            error(keys, 0)
        else
            log.warn("reading the credentials again failed: " .. tostring(keys))
            task.sleep "15s"
        end
    end)
end

local OPTIONS <const> = { "attempts", "endpoint", "env", "profile", "region" }

-- A bucket, or, without a name, the service, of which little more can be asked than its buckets.
local function open(name, o)
    local config = aws.resolve { endpoint = o.endpoint, env = o.env, profile = o.profile, region = o.region }
    check_bundle(config)
    log.secret(config.secret_key)
    log.secret(config.session_token)
    local client = core.client {
        endpoint = config.endpoint,
        region = config.region,
        bucket = name,
        virtual_host = name and wants_host(config, name),
        access_key = config.access_key,
        secret_key = config.secret_key,
        session_token = config.session_token,
        ca_file = config.ca_bundle,
        renewable = config.refresh,
        attempts = o.attempts or config.max_attempts,
        content_md5 = config.checksum == "when_supported", -- which every server knows, unlike its successors
    }
    return setmetatable({
        name = name,
        client = client,
        location = (config.endpoint or "https://s3." .. config.region .. ".amazonaws.com") .. "/" .. (name or ""),
        refresher = config.refresh and keep_fresh(client, config),
    }, Bucket)
end

--- Opens a bucket; nothing is asked of the server yet.
---@param name string
---@param options { endpoint: string?, region: string?, profile: string?, attempts: integer?,
---  env: (fun(name: string): string?)? }?  env: in place of os.getenv
---@return nc.Bucket  closable
function s3.bucket(name, options)
    local o = errors.check_options(options, OPTIONS)
    if type(name) ~= "string" then error("s3.bucket needs a bucket's name", 2) end
    if not name:match "^[%w][%w._-]*$" then
        error(errors.usage('"%s" is no bucket\'s name: check NC_BUCKET', (name:gsub("%c", "?"))), 0)
    end
    return open(name, o)
end

function Bucket:__close()
    if self.refresher then self.refresher:cancel() end
end

function Bucket:url(key)
    return ("s3://%s/%s"):format(self.name, key)
end

-- An empty key would mean the bucket itself: a DELETE of it, say.
local function check_key(key)
    if type(key) ~= "string" or key == "" then error("an object's key is a string that is not empty", 3) end
end

-- One request, to be awaited; query and headers are lists of pairs.
function Bucket:begin(method, key, options)
    local o = options or {}
    o.method, o.key = method, key
    return core.start(self.client, o)
end

function Bucket:await(call)
    local res = http.await(call)
    local date = res.headers.date and text.http_date(res.headers.date)
    if date then self.clock_offset = date - os.time() end
    return res
end

function Bucket:ask(method, key, options)
    return self:await(self:begin(method, key, options))
end

--- Seconds since 1970 by the server's clock, as of its last answer; ours before the first.
---@return integer
function Bucket:clock()
    return os.time() + (self.clock_offset or 0)
end

-- What an answer says of an object.
local function object_of(key, res)
    local h, metadata = res.headers, {}
    for name, value in pairs(h) do
        local meta = name:match "^x%-amz%-meta%-(.+)"
        if meta then metadata[meta] = value end
    end
    return {
        key = key,
        size = math.tointeger(h["content-length"]),
        total = math.tointeger((h["content-range"] or ""):match "/(%d+)$"), -- the whole object's, of a range
        etag = h.etag,
        modified = h["last-modified"] and text.http_date(h["last-modified"]),
        date = h.date and text.http_date(h.date), -- the server's clock
        metadata = metadata,
    }
end

local function absent(e)
    return errors.is(e) and e.status == 404 and (e.code == "NoSuchKey" or e.code == "NotFound")
end

-- nil where the object does not exist; a missing bucket stays an error.
local function unless_absent(ok, ...)
    if ok then return ... end
    if absent((...)) then return nil end
    error((...), 0)
end

local function conditions(o, headers)
    headers = headers or {}
    if o.if_match then headers[#headers + 1] = { "If-Match", o.if_match } end
    if o.if_none_match then headers[#headers + 1] = { "If-None-Match", o.if_none_match } end
    return headers
end

local function range_of(range)
    return ("bytes=%d-%s"):format(range[1], range[2] and ("%d"):format(range[2]) or "")
end

-- The answer to a Range is a part of the object that begins where it was asked for, or it is none.
local function check_range(what, range, res)
    local first = (res.headers["content-range"] or ""):match "^bytes (%d+)%-"
    local why = res.status ~= 206 and "the server ignored the range and sent the whole object"
        or math.tointeger(first) ~= range[1] and "the server sent another range than it was asked for"
    if why then
        error(errors.new { code = "BadRange", op = "get", status = res.status, message = what .. ": " .. why }, 0)
    end
end

--- The object's bytes and what is known of it, or nil. For large ones use nc.transfer.
---@param options { range: integer[]?, if_match: string?, if_none_match: string?, max_body: any }?
---  range: { first } or { first, last }, from 0; max_body: 8 MiB unless said
---@return string? body, table? object
function Bucket:get(key, options)
    check_key(key)
    local o = errors.check_options(options, { "if_match", "if_none_match", "max_body", "range" })
    local headers = conditions(o)
    if o.range then headers[#headers + 1] = { "Range", range_of(o.range) } end
    local res = unless_absent(pcall(self.ask, self, "GET", key, {
        headers = headers, max_body = units.size(o.max_body or PAGE_MAX, 2),
    }))
    if not res then return nil end
    if o.range then check_range("GET " .. self:url(key), o.range, res) end
    return res.body, object_of(key, res)
end

---@return table? object  nil where there is none
function Bucket:head(key)
    check_key(key)
    local res = unless_absent(pcall(self.ask, self, "HEAD", key))
    return res and object_of(key, res)
end

local function metadata_headers(o)
    local headers, names = { { "Content-Type", o.content_type or "application/octet-stream" } }, {}
    for name in pairs(o.metadata or {}) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do
        headers[#headers + 1] = { "x-amz-meta-" .. name, tostring(o.metadata[name]) }
    end
    return headers
end

-- A 200 without an ETag, or with an error in its body, has stored nothing.
local function stored(res, url)
    local e = res.body:find("<Error>", 1, true) and xml.error(res.body)
    if res.headers.etag and not e then return res.headers.etag end
    error(errors.new {
        code = e and e.code or "BadAnswer", op = "put", status = res.status, retryable = true,
        message = ("PUT %s: answered %d, but %s: nothing was stored, try again"):format(url, res.status,
            e and e.code or "without an ETag"),
    }, 0)
end

--- Stores an object in one request.
---@param options { if_match: string?, if_none_match: string?, metadata: table?, content_type: string? }?
---  if_none_match = "*": only where there is none yet; refused with the code "PreconditionFailed"
---@return string etag
function Bucket:put(key, body, options)
    check_key(key)
    if type(body) ~= "string" then error("put needs the object's bytes as a string", 2) end
    local o = errors.check_options(options, { "content_type", "if_match", "if_none_match", "metadata" })
    return stored(self:ask("PUT", key, { body = body, headers = conditions(o, metadata_headers(o)) }), self:url(key))
end

--- An object that is not there is deleted already.
function Bucket:delete(key)
    check_key(key)
    self:ask("DELETE", key)
end

local function parsed(what, value, e)
    if value == nil then
        error(errors.new { code = e.code, message = what .. ": " .. e.message, retryable = e.retryable }, 0)
    end
    return value
end

-- A source of copies: of this bucket, unless `from` is another one of the same server.
local function copy_source(bucket, from, key)
    return { "x-amz-copy-source", "/" .. (from or bucket).name .. "/" .. text.url_encode(key, true) }
end

--- Makes `key` a copy of another object inside the server: of up to 5 GiB.
---@param from nc.Bucket?  the other object's bucket, where it is not this one
---@return string etag
function Bucket:copy(from_key, key, from)
    local res = self:ask("PUT", key, {
        body = "", stall = 300, headers = { copy_source(self, from, from_key) },
    })
    return parsed("copy " .. (from or self):url(from_key), xml.copy(res.body))
end

-- Returns a function that gives the items of all pages one by one. begin(token) sends for a page,
-- take(call) waits for it and returns its items and the next one's token. While a page is gone through,
-- the next is on its way. A token that comes twice would go on for ever.
local function paged(what, begin, take)
    local page, at, token, over, coming = {}, 0, nil, false, nil
    return function()
        at = at + 1
        if at == 2 and token then coming = begin(token) end
        while not page[at] do
            if over then return nil end
            local items, next_token = take(coming or begin(token))
            if next_token and next_token == token then
                error(errors.new {
                    code = "BadListing",
                    message = what .. ": the server says that there is more but gives the same page again",
                }, 0)
            end
            page, at, token, over, coming = items, 1, next_token, next_token == nil, nil
        end
        return page[at]
    end
end

--- Objects below a prefix in the order of their keys: { key, size, etag, modified }. With a
--- delimiter, what lies behind it is one { prefix } each, before the page's objects.
---@param options { delimiter: string?, start_after: string? }?
---@return fun(): table?
function Bucket:list(prefix, options)
    local o = errors.check_options(options, { "delimiter", "start_after" })
    local what = "list " .. self:url(prefix or "")
    return paged(what, function(token)
        local query = { { "list-type", "2" }, { "encoding-type", "url" }, { "prefix", prefix or "" } }
        if o.delimiter then query[#query + 1] = { "delimiter", o.delimiter } end
        if token then
            query[#query + 1] = { "continuation-token", token }
        elseif o.start_after then
            query[#query + 1] = { "start-after", o.start_after }
        end
        return self:begin("GET", "", { query = query, max_body = PAGE_MAX })
    end, function(call)
        local page = parsed(what, xml.listing(self:await(call).body))
        if #page.prefixes == 0 then return page.objects, page.next_token end
        local items = {}
        for i, p in ipairs(page.prefixes) do items[i] = { prefix = p } end
        return table.move(page.objects, 1, #page.objects, #items + 1, items), page.next_token
    end)
end

-- ---- many at once ----

local BATCH <const> = 1000 -- keys in one DeleteObjects
local DELETES_AT_ONCE <const> = 16
local DELETE_TRIES <const> = 4
local NOT_KNOWN <const> = { NotImplemented = true, MethodNotAllowed = true, Http405 = true, Http501 = true }

local function delete_batch(bucket, keys)
    local body = xml.build_delete(keys)
    local res = bucket:ask("POST", "", {
        query = { { "delete", "" } }, body = body, max_body = PAGE_MAX,
        headers = { { "Content-Type", "application/xml" }, { "Content-MD5", text.md5(body) } },
    })
    return parsed("delete in " .. bucket:url "", xml.deleted(res.body))
end

-- One request a key: for keys that XML can't hold, and servers that know nothing else.
local function delete_singly(bucket, keys)
    local failures, at = {}, 0
    local function work()
        while at < #keys do
            at = at + 1
            local key = keys[at]
            local ok, e = pcall(bucket.delete, bucket, key)
            if not ok then
                if not errors.is(e) or e.code == "Cancelled" then error(e, 0) end
                failures[#failures + 1] = { key = key, code = e.code, message = tostring(e) }
            end
        end
    end
    local workers = {}
    for i = 1, math.min(DELETES_AT_ONCE, #keys) do workers[i] = work end
    task.all(workers)
    return failures
end

-- What the server was too busy to delete is worth another try.
local function delete_patiently(bucket, keys)
    local failures = {}
    for try = 1, DELETE_TRIES do
        local again = {}
        for _, f in ipairs(delete_batch(bucket, keys)) do
            local busy = f.code == "InternalError" or f.code == "SlowDown" or f.code == "ServiceUnavailable"
            if busy and try < DELETE_TRIES then again[#again + 1] = f.key else failures[#failures + 1] = f end
        end
        if #again == 0 then break end
        keys = again
        task.sleep(2 ^ try * (0.5 + math.random()) / 4)
    end
    return failures
end

--- Deletes objects, a thousand in a request where the server knows how. What is not there is deleted
--- already.
---@param keys string[]
---@return { key: string, code: string, message: string? }[]  what could not be deleted
function Bucket:delete_all(keys)
    local failures, singly = {}, {}
    local function take(list) table.move(list, 1, #list, #failures + 1, failures) end
    local batch = {}
    local function send()
        if #batch == 0 then return end
        local ok, result = pcall(delete_patiently, self, batch)
        if ok then
            take(result)
        elseif errors.is(result) and NOT_KNOWN[result.code] then
            table.move(batch, 1, #batch, #singly + 1, singly)
        else
            error(result, 0)
        end
        batch = {}
    end
    for _, key in ipairs(keys) do
        check_key(key)
        if key:find "%c" then singly[#singly + 1] = key else batch[#batch + 1] = key end
        if #batch == BATCH then send() end
    end
    send()
    take(delete_singly(self, singly))
    return failures
end

-- ---- multipart uploads ----

---@return string upload_id
function Bucket:create_upload(key, options)
    check_key(key)
    local o = errors.check_options(options, { "content_type", "metadata" })
    local res = self:ask("POST", key, { query = { { "uploads", "" } }, body = "", headers = metadata_headers(o) })
    return parsed("create an upload of " .. self:url(key), xml.upload_id(res.body))
end

---@param number integer  from 1
---@return string etag
function Bucket:upload_part(key, upload_id, number, body)
    return self:ask("PUT", key, {
        query = { { "partNumber", ("%d"):format(number) }, { "uploadId", upload_id } }, body = body,
    }).headers.etag
end

--- A part taken from another object, inside the server.
---@param range integer[]?  { first, last }
---@param from nc.Bucket?  the other object's bucket, where it is not this one
---@return string etag
function Bucket:copy_part(key, upload_id, number, from_key, range, from)
    local headers = { copy_source(self, from, from_key) }
    if range then headers[2] = { "x-amz-copy-source-range", range_of(range) } end
    local res = self:ask("PUT", key, {
        query = { { "partNumber", ("%d"):format(number) }, { "uploadId", upload_id } },
        body = "", headers = headers, stall = 300,
    })
    return parsed("copy a part of " .. (from or self):url(from_key), xml.copy(res.body))
end

--- Puts the parts together. A 200 that holds an error, or nothing, is an error.
---@param parts { number: integer, etag: string }[]
---@return string? etag  nil where the server does not say
function Bucket:complete_upload(key, upload_id, parts)
    local res = self:ask("POST", key, {
        query = { { "uploadId", upload_id } }, body = xml.build_complete(parts),
        headers = { { "Content-Type", "application/xml" } }, stall = 300,
    })
    local etag = parsed("complete the upload of " .. self:url(key), xml.complete(res.body))
    return etag ~= "" and etag or nil
end

function Bucket:abort_upload(key, upload_id)
    self:ask("DELETE", key, { query = { { "uploadId", upload_id } } })
end

--- The parts of an upload: { number, size, etag }, by number; nil where the upload is gone.
---@return table[]?
function Bucket:parts(key, upload_id)
    local what = "list the parts of " .. self:url(key)
    local next_part = paged(what, function(marker)
        local query = { { "uploadId", upload_id } }
        if marker then query[2] = { "part-number-marker", ("%d"):format(marker) } end
        return self:begin("GET", key, { query = query, max_body = PAGE_MAX })
    end, function(call)
        local page = parsed(what, xml.parts(self:await(call).body))
        return page, page.next_marker
    end)
    local list = {}
    local ok, e = pcall(function()
        for part in next_part do list[#list + 1] = part end
    end)
    if ok then return list end
    if errors.is(e, "NoSuchUpload") or absent(e) then return nil end
    error(e, 0)
end

--- Uploads under way below a prefix: { key, upload_id, initiated }.
---@return fun(): table?
function Bucket:uploads(prefix)
    local what = "list the uploads of " .. self:url(prefix or "")
    local marker
    return paged(what, function(token)
        local query = { { "uploads", "" }, { "encoding-type", "url" }, { "prefix", prefix or "" } }
        if token then
            query[#query + 1] = { "key-marker", marker[1] }
            query[#query + 1] = { "upload-id-marker", marker[2] }
        end
        return self:begin("GET", "", { query = query, max_body = PAGE_MAX })
    end, function(call)
        local page = parsed(what, xml.uploads(self:await(call).body))
        marker = page.next_key and { page.next_key, page.next_upload_id }
        return page, marker and marker[1] .. "\0" .. marker[2]
    end)
end

--- The buckets that the keys give access to: { name, created }.
---@param options table?  as of s3.bucket
---@return table[]
function s3.buckets(options)
    local service <close> = open(nil, errors.check_options(options, OPTIONS))
    local res = service:ask("GET", "", { max_body = PAGE_MAX })
    return parsed("list the buckets of " .. service.location, xml.buckets(res.body))
end

return s3
