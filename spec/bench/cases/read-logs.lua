--- The first byte of a log in the bucket: how long a person waits for it, the client's start included.

local units = require "nc.units"

local KEY <const> = "logs/bench/pod.log"
local SIZE <const> = 7 << 20

local function first_byte(command)
    return { "sh", "-c", command .. " 2>/dev/null | head -c 1" }
end

return { {
    name = "read-logs",
    describe = function() return ("the first byte of a log of %s"):format(units.format_size(SIZE)) end,

    setup = function(site)
        site:serve()
        site.bucket:put(KEY, ("a line\n"):rep(SIZE // 7))
    end,

    clear = function() end,
    check = function() end,

    contestants = {
        { name = "ncrun", command = function()
            return first_byte "build/ncrun recipes/read-logs.lua job=bench"
        end },
        { name = "aws s3 cp", command = function()
            return first_byte(([[aws --endpoint-url "$AWS_ENDPOINT_URL" s3 cp "s3://$NC_BUCKET/%s" -]]):format(KEY))
        end },
    },
} }
