-- What a real Ceph gateway does otherwise than S3's documents say, and that we can live with it.
local helper   = require "spec.helper"
local pipe     = require "spec.pipe"
local pulls    = require "spec.pulls"
local transfer = require "nc.transfer"

local PART <const> = pulls.PART
local BIG <const> = pipe.bytes(2 * PART + 1234)

describe("on the Ceph gateway", function()
    local gateway = helper.rgw()
    local bucket = pipe.bucket(gateway)
    -- Its InternalError is retried; where that is what is to be seen, not for long.
    local hasty = pipe.bucket(gateway, { AWS_MAX_ATTEMPTS = "1" })

    local function upload(key, metadata)
        local id, parts = bucket:create_upload(key, { metadata = metadata }), {}
        for i = 1, 3 do
            parts[i] = { number = i, etag = bucket:upload_part(key, id, i, BIG:sub((i - 1) * PART + 1, i * PART)) }
        end
        return id, parts
    end

    it("completing an upload that is gone is an InternalError, which alone says nothing", function()
        local id, parts = upload "gone"
        bucket:abort_upload("gone", id)
        local e = pipe.failure(hasty.complete_upload, hasty, "gone", id, parts)
        assert.equal("InternalError", e.code)
        assert.is_true(e.retryable)
        assert.is_nil(bucket:head "gone")
    end)

    it("such an upload is begun again by the engine, which looks at the object first", function()
        local hub <close> = pipe.server { big = BIG }
        local id, parts = upload "copy/big"
        bucket:abort_upload("copy/big", id)
        local files = pipe.model(hub):files()
        files[1].upload_id, files[1].etags = id, {}
        for i, part in ipairs(parts) do files[1].etags[i] = part.etag end
        local result = pipe.move(hub, { bucket = hasty, files = files })
        assert.same({}, result.failed)
        assert.is_true(bucket:get("copy/big", { max_body = "64MiB" }) == BIG)
    end)

    it("every other request to an upload that is gone says so", function()
        local id = upload "gone"
        bucket:abort_upload("gone", id)
        assert.equal("NoSuchUpload", pipe.failure(hasty.upload_part, hasty, "gone", id, 1, "x").code)
        assert.equal("NoSuchUpload", pipe.failure(hasty.abort_upload, hasty, "gone", id).code)
        assert.is_nil(bucket:parts("gone", id)) -- 404 NoSuchKey there
    end)

    it("of those that create an object at once one wins", function()
        local won, lost = 0, 0
        pipe.together(6, function()
            local ok, e = pcall(bucket.put, bucket, "race", "x", { if_none_match = "*" })
            if ok then won = won + 1 elseif e.code == "PreconditionFailed" then lost = lost + 1 end
        end)
        assert.same({ 1, 5 }, { won, lost })
    end)

    it("an object is replaced only by who has seen it", function()
        local etag = bucket:put("seen", "1")
        local other = bucket:put("seen", "2")
        local ok = pcall(bucket.put, bucket, "seen", "3", { if_match = etag })
        assert.is_false(ok)
        assert.equal("2", (bucket:get "seen"))
        -- It knows the ETag without quotes alone; ours are as it gave them.
        ok = pcall(bucket.put, bucket, "seen", "4", { if_match = other:gsub('"', "") })
        assert.is_true(ok)
        assert.equal("4", (bucket:get "seen"))
    end)

    it("a body that was changed on its way is refused", function()
        local e = pipe.failure(hasty.ask, hasty, "PUT", "md5", {
            body = "text", headers = { { "Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA==" } },
        })
        assert.truthy(e.code == "BadDigest" or e.code == "InvalidDigest", e.code)
        assert.is_nil(bucket:head "md5")
    end)

    it("a HEAD that fails has a length and no body", function()
        for _ = 1, 3 do assert.is_nil(bucket:head "no/such/thing") end
    end)

    it("keys with control characters don't break a listing", function()
        for _, key in ipairs { "ctl/a\1b", "ctl/tab\tx", "ctl/z" } do bucket:put(key, "x") end
        assert.same({ "ctl/a\1b", "ctl/tab\tx", "ctl/z" }, pipe.keys(bucket:list "ctl/"))
    end)

    describe("a pull", function()
        local folder, files

        setup(function()
            folder, files = pulls.folder { big = BIG, ["a +~%&=@ü"] = "odd", empty = "" }
            for _, f in ipairs(files) do
                pulls.upload(bucket, "from/" .. f.path, helper.read(folder .. "/" .. f.path))
                f.etag = bucket:head("from/" .. f.path).etag
            end
        end)

        local function pull(to, list)
            return transfer.run {
                source = { kind = "s3", client = bucket.client, prefix = "from/" },
                sink = { kind = "dir", root = to }, files = list, part_size = PART,
            }
        end

        it("compares every part", function()
            local to = helper.tmp()
            local result = pull(to, files)
            for _, f in ipairs(result.files) do assert.equal("parts", f.verified) end
            pulls.assert_pulled(folder, to)
        end)

        it("notices a replaced object from the first range on", function()
            local to = helper.tmp()
            for _, f in ipairs(files) do
                local other = '"0123456789abcdef0123456789abcdef-3"'
                local result = pull(to, { { path = f.path, size = f.size, etag = other } })
                assert.equal("Changed", result.failed[1].error.code, f.path)
            end
            assert.equal("", select(2, helper.run { "ls", "-A", to }))
        end)

        it("that was killed with -9 goes on where it was", function()
            local from, list = pulls.random(24 * PART)
            pulls.upload(bucket, "from/big.bin", helper.read(from .. "/big.bin"))
            list[1].version = "1"
            local to = helper.tmp()
            local job = { from = { prefix = "from/" }, to = { root = to }, files = list, parallel = 2 }
            local kept = pulls.kill_half_way(job, gateway.env, 2)
            local code, result, err = pulls.run(job, gateway.env)
            assert.equal(0, code, err)
            assert.equal((24 - kept) * PART, result.moved)
            pulls.assert_pulled(from, to)
        end)
    end)
end)
