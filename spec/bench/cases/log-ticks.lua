--- A log that grows while it is kept in a bucket: an eighth of SIZE in twenty pieces, a second apart,
--- uploaded every second and at the end.
--
-- ncrun sends what is new and has the server put the object together; the loop is the one that people
-- use without it, which sends all of the log each time. The command sets the wall time: read CPU and
-- memory, and the bytes that the server was sent, which each round logs.

local json  = require "nc.json"
local log   = require "nc.log"
local units = require "nc.units"

local TICKS <const> = 20
local KEY <const> = "logs/bench/pod.log"

local function writer(site)
    return ("for i in $(seq %d); do cat %s/piece; sleep 1; done"):format(TICKS, site.dir)
end

local LOOP <const> = [[
set -o pipefail
log=$0/train.log key=s3://$NC_BUCKET/%s
: >"$log"
put() { aws --endpoint-url "$AWS_ENDPOINT_URL" s3 cp "$log" "$key" >/dev/null 2>&1 || true; }
(while sleep 1; do put; done) &
up=$!
trap 'kill "$up" 2>/dev/null; put' EXIT
{ %s; } 2>&1 | tee -a "$log"
]]

return { {
    name = "log-ticks",
    describe = function(site)
        return ("a log of %s over %d ticks of a second"):format(units.format_size(site.size // 8), TICKS)
    end,

    setup = function(site)
        local file <close> = assert(io.open(site.dir .. "/piece", "wb"))
        local line = ("step 1000: train loss 1.2345, val loss 1.5432, 12.34 ms\n"):rep(1000)
        site.piece = site.size // 8 // TICKS // #line * #line
        for _ = 1, site.piece // #line do assert(file:write(line)) end
        site:serve()
    end,

    clear = function(site)
        site:empty_bucket()
        site:admin("POST", "/reset")
    end,

    check = function(site)
        local object = site.bucket:head(KEY)
        if not object or object.size ~= site.piece * TICKS then error(KEY .. " is not the log", 0) end
        local sent = 0
        for _, op in pairs(json.decode(site:admin("GET", "/counters")).s3.ops) do sent = sent + op["in"] end
        log.info(("%s sent for %s"):format(units.format_size(sent), units.format_size(object.size)))
    end,

    contestants = {
        { name = "ncrun", command = function(site)
            return { "build/ncrun", "recipes/nanogpt.lua", "job=bench", "pod=pod", "every=1s", "logs=/none",
                "volume=/none", "--", "sh", "-c", writer(site) }
        end },
        { name = "aws s3 cp loop", command = function(site)
            return { "bash", "-c", LOOP:format(KEY, writer(site)), site.dir }
        end },
    },
} }
