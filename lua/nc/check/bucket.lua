--- The bucket and all on the way to it: keys, endpoint, clock, what may be done, how fast it is.
--
-- The probes are objects named .ncrun-check-<random> below the prefix; they are gone when this returns.

local aws    = require "nc.aws"
local errors = require "nc.errors"
local http   = require "nc.http"
local s3     = require "nc.s3"
local sys    = require "nc.core.sys"
local task   = require "nc.task"
local text   = require "nc.core.text"
local units  = require "nc.units"

local bucket = {}

local SKEW_MAX_S <const> = 900  -- servers refuse what is signed with a clock that is further off
local SKEW_NOTE_S <const> = 60
local PART <const> = 5 << 20    -- the smallest that a multipart upload takes before its last
local STREAMS <const> = 8
local ATTEMPTS <const> = 3      -- who looks on wants an answer soon
local PARTS_MAX <const> = 10000

-- ---- what to do about an error ----

local function host_of(c)
    return text.url_parse(c.url).host
end

local function unresolved(c)
    if host_of(c):find "%.rook$" or host_of(c):find "%.svc" or host_of(c):find "%.cluster%.local$" then
        return "that name resolves only inside its Kubernetes cluster: outside, set AWS_ENDPOINT_URL to the"
            .. " cluster's https address"
    end
    return "check the spelling of AWS_ENDPOINT_URL, and this machine's /etc/resolv.conf"
end

local function untrusted(e)
    if e.message:find "wrong version number" or e.message:find "packet length too long" then
        return "no TLS is spoken there: write http:// in AWS_ENDPOINT_URL, or give the port that serves https"
    end
    if e.message:find "self.signed" or e.message:find "local issuer" then
        return "the certificate is signed by nobody this machine trusts: set AWS_CA_BUNDLE to a file with the"
            .. " certificate of its authority (or with itself, where it is self-signed)"
    end
    if e.message:find "expired" or e.message:find "not yet valid" then
        return "check this machine's clock; where it is right, whoever runs the endpoint has to renew the certificate"
    end
    if e.message:find "subject name" or e.message:find "no alternative" then
        return "set AWS_ENDPOINT_URL to a name that the certificate is for"
    end
    return "check host and port in AWS_ENDPOINT_URL, and write http:// where no TLS is spoken"
end

-- The hints that hold for whatever is asked; c: what is known of the bucket.
local function hints(c)
    local keys = ("the keys (%s)"):format(c.source or "none")
    return {
        ConnectFailed = "nobody listens there: check host and port in AWS_ENDPOINT_URL, that the server runs,"
            .. " and that no firewall or missing https_proxy is in between",
        DnsFailed = function() return unresolved(c) end,
        TlsFailed = untrusted,
        NetworkError = "something there broke the connection: check host and port in AWS_ENDPOINT_URL, and whether"
            .. " they want http:// or https://",
        Timeout = "no answer in time: a firewall may drop the packets, or https_proxy is needed",
        SignatureDoesNotMatch = ("the secret of %s does not belong to its access key: set AWS_SECRET_ACCESS_KEY to"
            .. " what was issued together with AWS_ACCESS_KEY_ID"):format(keys),
        InvalidAccessKeyId = ("%s does not know the access key of %s: it is another server's, or was revoked;"
            .. " copy the pair again from where it was issued"):format(c.url, keys),
        ExpiredToken = "get new keys: these have expired",
        InvalidToken = "set AWS_SESSION_TOKEN to the token that was issued with the keys, or unset it",
        AuthorizationHeaderMalformed = ('the server has another region than "%s": set AWS_REGION to the one that the'
            .. " bucket was made in"):format(c.config.region),
        PermanentRedirect = ('the bucket is not in "%s": set AWS_REGION to its region'):format(c.config.region),
        RequestTimeTooSkewed = "set this machine's clock by NTP",
        QuotaExceeded = "delete what is not needed any more, or ask for a larger quota",
    }
end

local function with(all, more)
    for code, hint in pairs(more) do all[code] = hint end
    return all
end

-- ---- the way there ----

local function elapsed_ms(started)
    return math.floor((sys.now() - started) * 1000 + 0.5)
end

-- One request that needs no keys: whether anybody answers, and by which certificate. Returns the answer,
-- or nil where nothing further can be asked.
local function check_way(report, c)
    local started = sys.now()
    local ok, got = pcall(http.request, {
        url = c.url, timeout = "10s", attempts = 2, ca_file = c.config.ca_bundle, max_body = "8MiB",
    })
    local ms = elapsed_ms(started)
    if not ok and (not errors.is(got) or got.code == "Cancelled") then error(got, 0) end
    local untrusted_there = not ok and got.code == "TlsFailed"
    if not ok and not untrusted_there then
        report:fail("endpoint", got, hints(c))
        report:skip({ "TLS", "clock" }, "the endpoint does not answer")
        return nil
    end
    report:ok("endpoint", ("%s answers in %d ms"):format(c.url, ms), { url = c.url, ms = ms })
    if untrusted_there then
        report:fail("TLS", got, hints(c))
        report:skip({ "clock" }, "no connection can be trusted")
        return nil
    end
    if c.url:find "^http:" then
        report:absent("TLS", "the endpoint is plain http, and what is moved can be read on the way")
    else
        report:ok("TLS", ("the certificate of %s is trusted"):format(host_of(c)))
    end
    return got
end

local function check_clock(report, answer)
    local date = answer.headers.date and text.http_date(answer.headers.date)
    if not date then return report:skip({ "clock" }, "the server does not say what time it has") end
    local off = os.time() - date
    local values = { seconds = off }
    local said = ("this machine's is %s %s the server's"):format(
        units.format_duration(math.abs(off)), off > 0 and "ahead of" or "behind")
    if math.abs(off) >= SKEW_MAX_S then
        report:add {
            name = "clock", status = "failed", code = "RequestTimeTooSkewed", detail = said, values = values,
            hint = "set it by NTP: servers refuse requests that are signed more than 15 minutes off (ncrun reckons"
                .. " with their clock, other clients don't)",
        }
    elseif math.abs(off) >= SKEW_NOTE_S then
        report:ok("clock", said .. "; requests are refused from 15 minutes on", values)
    else
        report:ok("clock", "agrees with the server's", values)
    end
end

-- ---- what may be done ----

local function random(bytes)
    local file <close> = assert(io.open("/dev/urandom", "rb"))
    return file:read(bytes)
end

local function probe_key(c)
    local hex = random(8):gsub(".", function(b) return ("%02x"):format(b:byte()) end)
    return c.prefix .. ".ncrun-check-" .. hex
end

-- The key, which is deleted at the end of its scope, whatever happened meanwhile.
local function probe(c)
    return setmetatable({ key = probe_key(c) }, {
        __close = function(self)
            if not self.is_gone then pcall(c.bucket.delete, c.bucket, self.key) end
        end,
    })
end

local function differs(what)
    error(errors.new { code = "BadAnswer", message = what .. " gave back other bytes than were stored" }, 0)
end

local function bucket_names(c)
    local ok, found = pcall(s3.buckets, c.reach)
    if not ok then
        if not errors.is(found) or found.code == "Cancelled" then error(found, 0) end
        return ""
    end
    local names = {}
    for i = 1, math.min(5, #found) do names[i] = found[i].name end
    if #names == 0 then return "; these keys have no bucket yet" end
    return "; these keys have: " .. table.concat(names, ", ") .. (#found > 5 and ", ..." or "")
end

local function check_listing(report, c)
    return report:try("bucket", function()
        local first = c.bucket:list(c.prefix)()
        return ("%s can be listed%s"):format(c.bucket:url(c.prefix), first and "" or "; nothing is there yet")
    end, with(hints(c), {
        NoSuchBucket = function()
            return ("%s has no bucket of that name: check NC_BUCKET and AWS_ENDPOINT_URL%s"):format(
                c.url, bucket_names(c))
        end,
        AccessDenied = "the keys are good but may not list it: ask its owner for s3:ListBucket, or check that the"
            .. " name in NC_BUCKET is yours",
    }))
end

-- A request in the wrong region is sent again in the right one, once. Other clients don't do that.
local function check_region(report, c)
    local region = c.config.region
    local ok, res = pcall(c.bucket.ask, c.bucket, "HEAD", "")
    if not ok and (not errors.is(res) or res.code == "Cancelled") then error(res, 0) end
    local actual = ok and res.headers["x-amz-bucket-region"] or region
    if actual == region then return report:ok("region", region, { region = region }) end
    report:add {
        name = "region", status = "failed", code = "BadSetting", values = { region = actual },
        detail = ('the bucket is in "%s", and the environment says "%s"'):format(actual, region),
        hint = ("set AWS_REGION=%s: servers refuse what is signed for another region"):format(actual),
    }
end

local READ_ONLY <const> = "the keys may read and not write: serving and reading logs will work, staging, logs and"
    .. " results won't; ask for a pair with s3:PutObject and s3:DeleteObject, or set prefix= to where you may write"

local INSIDE <const> = { "bucket", "region", "put", "get", "delete", "multipart", "conditional put", "throughput" }

-- Whether an object could be put, and deleted again.
local function check_object(report, c)
    local object <close> = probe(c)
    local body = random(1024)
    local ok = report:try("put", function()
        local started = sys.now()
        c.bucket:put(object.key, body)
        return ("1 KiB in %d ms"):format(elapsed_ms(started)), { ms = elapsed_ms(started) }
    end, with(hints(c), { AccessDenied = READ_ONLY }))
    if not ok then return false end
    report:try("get", function()
        local started = sys.now()
        if c.bucket:get(object.key) ~= body then differs("GET " .. c.bucket:url(object.key)) end
        return ("the same bytes in %d ms"):format(elapsed_ms(started)), { ms = elapsed_ms(started) }
    end, with(hints(c), { AccessDenied = "the keys may write and not read: ask for s3:GetObject" }))
    return true, report:try("delete", function()
        c.bucket:delete(object.key)
        object.is_gone = true
        return "the probe is gone again"
    end, with(hints(c), {
        AccessDenied = ("the keys may not delete: pruning old checkpoints won't work, and %s has to be deleted by"
            .. " somebody else; ask for s3:DeleteObject"):format(object.key),
    }))
end

-- An upload that is aborted at the end of its scope, unless it was completed.
local function begin_upload(c, key)
    return setmetatable({ id = c.bucket:create_upload(key), parts = {} }, {
        __close = function(self)
            if not self.completed then pcall(c.bucket.abort_upload, c.bucket, key, self.id) end
        end,
    })
end

local function upload_part(c, key, upload, number, body)
    upload.parts[number] = { number = number, etag = c.bucket:upload_part(key, upload.id, number, body) }
end

local function complete(c, key, upload)
    c.bucket:complete_upload(key, upload.id, upload.parts)
    upload.completed = true
end

local function check_multipart(report, c)
    return report:try("multipart", function()
        local object <close> = probe(c)
        local upload <close> = begin_upload(c, object.key)
        local last = random(1024)
        upload_part(c, object.key, upload, 1, random(PART))
        upload_part(c, object.key, upload, 2, last)
        complete(c, object.key, upload)
        local tail = c.bucket:get(object.key, { range = { PART } })
        if tail ~= last then differs("the second part of " .. c.bucket:url(object.key)) end
        return "two parts became one object"
    end, with(hints(c), {
        AccessDenied = "files over 5 GiB can't be stored: ask for s3:PutObject on multipart uploads",
    }))
end

-- What publishing relies on where several write: only one of two may make an object.
local function check_conditions(report, c)
    return report:try("conditional put", function()
        local object <close> = probe(c)
        c.bucket:put(object.key, "first", { if_none_match = "*" })
        task.sleep "1s" -- a key takes one write a second
        local ok, e = pcall(c.bucket.put, c.bucket, object.key, "second", { if_none_match = "*" })
        if ok then
            error(errors.new {
                code = "ConditionIgnored",
                message = "PUT with If-None-Match: * went over an object that was there (ConditionIgnored)",
            }, 0)
        end
        if not errors.is(e, "PreconditionFailed") then error(e, 0) end
        return "an object that is there is not overwritten"
    end, with(hints(c), {
        ConditionIgnored = "this server knows no conditional writes: publish each job's results below a prefix of"
            .. " its own, since two that write one key at once would not be told",
    }))
end

-- ---- how fast ----

-- Calls move(n) for n = 1, 2, ... once alone, then in STREAMS at a time, until the time is over: bytes a
-- second of the one and of the many, and how many calls there were.
local function measure(seconds, most, move)
    local began = sys.now()
    move(1)
    local alone = sys.now() - began
    local count, started = 1, sys.now()
    local function work()
        while count < most and sys.now() - began < seconds do
            count = count + 1
            move(count)
        end
    end
    local workers = {}
    for i = 1, STREAMS do workers[i] = work end
    task.all(workers)
    local together = (count - 1) * PART / math.max(sys.now() - started, 1e-6)
    return PART / alone, count > 1 and together or PART / alone, count
end

local function check_throughput(report, c)
    if c.seconds == 0 then return end
    report:try("throughput", function()
        local object <close> = probe(c)
        local upload <close> = begin_upload(c, object.key)
        local body = random(PART)
        local up_one, up, parts = measure(c.seconds, PARTS_MAX, function(n)
            upload_part(c, object.key, upload, n, body)
        end)
        complete(c, object.key, upload)
        local down_one, down = measure(c.seconds, math.huge, function(n)
            local from = (n - 1) % parts * PART
            local got = c.bucket:get(object.key, { range = { from, from + PART - 1 } })
            if got ~= body then differs("a range of " .. c.bucket:url(object.key)) end
        end)
        local rate = units.format_rate
        return ("up %s (%s in one stream), down %s (%s)"):format(rate(up), rate(up_one), rate(down), rate(down_one)),
            { up = up, up_one_stream = up_one, down = down, down_one_stream = down_one, streams = STREAMS }
    end, hints(c))
end

-- ---- all of it ----

local function check_keys(report, c)
    return report:try("credentials", function()
        local keys = aws.credentials(c.config)
        c.source = keys.source
        local left = keys.expires and keys.expires - os.time()
        return ("found: %s%s"):format(keys.source,
            left and ", for another " .. units.format_duration(math.max(0, left)) or "")
    end)
end

local function check_inside(report, c)
    local opened <close> = s3.bucket(c.name, c.reach)
    c.bucket = opened
    local ok, e = check_listing(report, c)
    if not ok and e.code ~= "AccessDenied" then
        return report:skip({ table.unpack(INSIDE, 2) }, "the bucket can't be reached")
    end
    check_region(report, c)
    local put, deleted = check_object(report, c)
    if not put then return report:skip({ table.unpack(INSIDE, 4) }, "nothing can be put") end
    if not deleted then return report:skip({ table.unpack(INSIDE, 6) }, "the probes would stay behind") end
    check_multipart(report, c)
    check_conditions(report, c)
    check_throughput(report, c)
end

--- Looks at a bucket.
---@param report nc.Report
---@param o { bucket: string?, prefix: string?, endpoint: string?, profile: string?, region: string?,
---  seconds: number }  seconds: how long each direction's throughput is measured; 0: not at all
function bucket.check(report, o)
    local reach = { endpoint = o.endpoint, profile = o.profile, region = o.region }
    local read, config = pcall(aws.configure, reach)
    if not read then
        if not errors.is(config) then error(config, 0) end
        report:fail("credentials", config)
        report:skip({ "endpoint", "TLS", "clock" }, "the settings can't be read")
        return report:skip(INSIDE, "the settings can't be read")
    end
    local c = {
        name = o.bucket, prefix = (o.prefix or ""):gsub("([^/])$", "%1/"), seconds = o.seconds,
        config = config, url = config.endpoint or ("https://s3.%s.amazonaws.com"):format(config.region),
        reach = with({ attempts = ATTEMPTS }, reach),
    }
    if not o.bucket and not config.endpoint then
        return report:absent("bucket", "neither NC_BUCKET nor AWS_ENDPOINT_URL is set, and no bucket=")
    end

    local keys = check_keys(report, c)
    local answer = check_way(report, c)
    if answer then check_clock(report, answer) end
    local why = not keys and "there are no keys" or not answer and "the endpoint can't be used"
    if not o.bucket then
        report:absent("bucket", "NC_BUCKET is not set" .. (why and "" or bucket_names(c)))
    elseif why then
        report:skip(INSIDE, why)
    else
        check_inside(report, c)
    end
end

return bucket
