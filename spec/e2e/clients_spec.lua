--- The clients that people already use, unchanged, against the local server: what they put comes
-- back byte for byte, they agree on what is there, and their parts are of the size they were told.

local helper = require "spec.helper"

local PART <const> = 5 << 20
local ODD <const> = "a b+c~%&=@é.txt"
local SIZES <const> = { ["empty"] = 0, ["small.bin"] = 1024, ["deep/er/large.bin"] = 30 << 20, [ODD] = 3 }

-- Each command finds its file names in $1 and $2, so that no name is ever quoted for sh twice.
local CLIENTS <const> = {
    aws = {
        put = [[aws --endpoint-url "$AWS_ENDPOINT_URL" s3 cp --quiet "$1" "s3://$NC_BUCKET/$2"]],
        get = [[aws --endpoint-url "$AWS_ENDPOINT_URL" s3 cp --quiet "s3://$NC_BUCKET/$1" "$2"]],
        list = [[aws --endpoint-url "$AWS_ENDPOINT_URL" s3 ls --recursive "s3://$NC_BUCKET/$1" |
            sed -E 's/^[^ ]+ [^ ]+ +([0-9]+) /\1 /']],
        remove = [[aws --endpoint-url "$AWS_ENDPOINT_URL" s3 rm --quiet "s3://$NC_BUCKET/$1"]],
        setup = [[aws configure set default.s3.multipart_chunksize 5MB
            aws configure set default.s3.multipart_threshold 5MB]],
    },
    rclone = {
        put = [[rclone copyto --s3-upload-cutoff 5M --s3-chunk-size 5M "$1" ":s3:$NC_BUCKET/$2"]],
        get = [[rclone copyto ":s3:$NC_BUCKET/$1" "$2"]],
        list = [[rclone lsf -R --files-only --format sp --separator " " ":s3:$NC_BUCKET/$1" |
            sed "s| | $1|"]],
        remove = [[rclone deletefile ":s3:$NC_BUCKET/$1"]],
    },
    s3cmd = {
        put = [[s3cmd $S3CMD --multipart-chunk-size-mb=5 put "$1" "s3://$NC_BUCKET/$2"]],
        get = [[s3cmd $S3CMD get --force "s3://$NC_BUCKET/$1" "$2"]],
        list = [[s3cmd $S3CMD ls --recursive "s3://$NC_BUCKET/$1" |
            sed -E "s|^[^ ]+ [^ ]+ +([0-9]+) +s3://$NC_BUCKET/|\1 |"]],
        remove = [[s3cmd $S3CMD del "s3://$NC_BUCKET/$1"]],
    },
}

-- What each client reads besides the variables that the server prints.
local function environment(server, home)
    local host = server.env.AWS_ENDPOINT_URL:match "//(.*)"
    return helper.env(server.env, {
        HOME = home,
        RCLONE_S3_PROVIDER = "Other", RCLONE_S3_ENV_AUTH = "true", RCLONE_CONFIG = home .. "/rclone.conf",
        RCLONE_S3_ENDPOINT = server.env.AWS_ENDPOINT_URL, RCLONE_S3_REGION = server.env.AWS_REGION,
        S3CMD = ("--no-ssl --no-progress --host=%s --host-bucket=%s"):format(host, host),
    })
end

for name, client in pairs(CLIENTS) do
    describe(name .. " on the local server", function()
        local server, env, files, home

        local function run(command, ...)
            local code, out, err = helper.run({ "sh", "-c", command, name, ... }, { env = env, timeout = 120 })
            assert.are.equal(0, code, err)
            return out
        end

        local function listed(prefix)
            local sizes = {}
            for size, key in run(client.list, prefix):gmatch "(%d+) ([^\n]+)" do
                sizes[key] = tonumber(size)
            end
            return sizes
        end

        setup(function()
            home, files = helper.tmp(), helper.tmp()
            helper.write(home .. "/rclone.conf", "")
            server = helper.server {}
            env = environment(server, home)
            for file, size in pairs(SIZES) do
                helper.write(files .. "/" .. file, "")
                run([[head -c "$1" /dev/urandom >"$2"]], size, files .. "/" .. file)
            end
            if client.setup then run(client.setup) end
            for file in pairs(SIZES) do
                run(client.put, files .. "/" .. file, "put/" .. file)
            end
        end)

        teardown(function()
            server:stop()
        end)

        it("gets back byte for byte what it put", function()
            for file in pairs(SIZES) do
                local back = home .. "/back"
                os.remove(back)
                run(client.get, "put/" .. file, back)
                run([[cmp "$1" "$2"]], files .. "/" .. file, back)
            end
        end)

        it("lists what is there, with its size", function()
            local want = {}
            for file, size in pairs(SIZES) do
                want["put/" .. file] = size
            end
            assert.are.same(want, listed "put/")
        end)

        it("agrees with the others on it", function()
            local mine = listed "put/"
            for other, theirs in pairs(CLIENTS) do
                local sizes = {}
                for size, key in run(theirs.list, "put/"):gmatch "(%d+) ([^\n]+)" do
                    sizes[key] = tonumber(size)
                end
                assert.are.same(mine, sizes, other)
            end
        end)

        it("sends a large file in parts of the size it was told", function()
            local parts = {}
            for _, request in ipairs(server:log()) do
                if request.op == "UploadPart" then parts[request.part] = request["in"] end
            end
            assert.are.same({ PART, PART, PART, PART, PART, PART }, parts)
            assert.are.equal(1, server:counters().s3.ops.CompleteMultipartUpload.requests)
        end)

        it("leaves no signature refused", function()
            assert.are.equal(0, server:counters().rejected_signatures)
        end)

        it("finds nothing after it has removed everything", function()
            for file in pairs(SIZES) do
                run(client.remove, "put/" .. file)
            end
            assert.are.same({}, listed "put/")
        end)
    end)
end
