--- ncrun rm, on the local server and on a Ceph gateway.
local helper = require "spec.helper"
local places = require "spec.places"

for _, server in ipairs(helper.servers()) do
    describe("rm on " .. server.name, function()
        setup(function()
            places.ncrun(server, "cp", "-r", places.tree {
                ["one"] = "1", ["d/x"] = "2", ["d/a b+c~%&=@é<>"] = "3", ["d/keep.json"] = "4", ["dd"] = "5",
            }, places.url(server, "t"))
        end)
        teardown(function() if server.stop then server:stop() end end)

        it("deletes one object, and all that is below a prefix when it is told to", function()
            assert.are.equal(("delete: %s\n"):format(places.url(server, "t/one")),
                (places.ncrun(server, "rm", places.url(server, "t/one"))))
            local code, _, err = places.try(server, "rm", places.url(server, "t/d"))
            assert.are.equal(2, code)
            assert.truthy(err:find("has more below it: add -r", 1, true), err)
            places.ncrun(server, "rm", "-r", places.url(server, "t/d"), "--dryrun")
            assert.are.equal(4, #places.keys(server, "t/"))
            places.ncrun(server, "rm", "-r", places.url(server, "t/d"), "--exclude", "*.json")
            assert.are.same({ "t/d/keep.json", "t/dd" }, places.keys(server, "t/"))
            places.ncrun(server, "rm", "--recursive", places.url(server))
            assert.are.same({}, places.keys(server, "t/"))
        end)

        it("ends with 3 where there is nothing to delete", function()
            local code, _, err = places.try(server, "rm", places.url(server, "none"))
            assert.are.equal(3, code)
            assert.truthy(err:find("none: there is no such object", 1, true), err)
            assert.are.equal(3, (places.try(server, "rm", "-r", places.url(server, "none"))))
        end)
    end)
end

describe("rm", function()
    it("deletes a thousand in a request", function()
        local server <close> = helper.server { memory = "yes", keys = 2001 }
        places.ncrun(server, "rm", "-r", places.url(server, "many/"), "--quiet")
        local ops = server:counters().s3.ops
        assert.are.equal(3, ops.DeleteObjects.requests)
        assert.is_nil(ops.DeleteObject)
        assert.are.same({}, places.keys(server))
    end)

    it("deletes one by one where the server knows nothing else", function()
        local server <close> = helper.server { memory = "yes", keys = 40 }
        server:faults { "POST * op=DeleteObjects status=501:NotImplemented" }
        places.ncrun(server, "rm", "-r", places.url(server, "many/"), "--quiet")
        assert.are.equal(40, server:counters().s3.ops.DeleteObject.requests)
        assert.are.same({}, places.keys(server))
    end)

    it("deletes a key that XML can't hold", function()
        local server <close> = helper.server { faults = { "GET * op=ListObjectsV2 add-key=x%01y" } }
        places.ncrun(server, "rm", "-r", places.url(server))
        assert.are.equal(1, server:counters().s3.ops.DeleteObject.requests)
    end)

    it("ends with what the server says when it may not", function()
        local server <close> = helper.server { memory = "yes", keys = 3 }
        server:faults { "POST * op=DeleteObjects status=403:AccessDenied" }
        assert.are.equal(4, (places.try(server, "rm", "-r", places.url(server))))
        assert.are.equal(3, #places.keys(server))
    end)

    it("is for buckets, not for this machine", function()
        local server <close> = helper.server()
        local dir = places.tree { f = "1" }
        local code, _, err = places.try(server, "rm", "-r", dir)
        assert.are.equal(2, code)
        assert.truthy(err:find("rm(1) removes that", 1, true), err)
        assert.are.same({ "f" }, places.files(dir))
    end)
end)
