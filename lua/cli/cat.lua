--- ncrun cat OBJECT...

local command = require "cli.command"
local errors  = require "nc.errors"
local output  = require "cli.output"
local s3      = require "nc.s3"
local shared  = require "cli.stores"
local stores  = require "nc.stores"
local streams = require "nc.streams"

local params, flags = shared.options { "endpoint", "profile", "region" }

local function cat_object(p, a)
    local bucket <close> = s3.bucket(a.bucket, shared.reach(p))
    if streams.download(bucket, a.key, output.write) then return end
    error(errors.new {
        code = "NotFound",
        message = ("%s: there is no such object; `ncrun ls %s` shows what is there"):format(
            bucket:url(a.key), bucket:url(a.key:match "^(.-)[^/]*$")),
    }, 0)
end

local function cat_file(path)
    local file <close>, why, code = io.open(path, "rb")
    if not file then
        error(errors.new { code = code == 2 and "NotFound" or "EACCES", message = "read " .. why }, 0)
    end
    while true do
        local text, bad = file:read(1 << 20)
        if bad then error(errors.new { code = "EIO", message = ("read %s: %s"):format(path, bad) }, 0) end
        if not text then return end
        output.write(text)
    end
end

local cat
cat = command {
    name = "cat",
    operands = "s3://bucket/key ...",
    summary = "Print objects.",
    text = [[
Writes objects (or files) to stdout, one after the other, byte for byte. Several ranges of an object are
read at a time; one that is replaced meanwhile is an error.

  ncrun cat s3://bucket/logs/nanogpt/pod-1.log]],
    params = params,
    flags = flags,
    run = function(p, operands)
        if #operands == 0 then cat:misuse "wants an object" end
        for _, address in ipairs(operands) do
            local a = stores.parse(address)
            if a.path then
                cat_file(a.path)
            elseif a.key == "" then
                cat:misuse(address .. " names no object")
            else
                cat_object(p, a)
            end
        end
        return 0
    end,
}

return cat
