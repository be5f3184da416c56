--- ncrun ls and cat: what is there, on the local server and on a Ceph gateway.
local helper = require "spec.helper"
local places = require "spec.places"

for _, server in ipairs(helper.servers()) do
    describe("ls on " .. server.name, function()
        setup(function()
            places.ncrun(server, "cp", "-r", places.tree {
                ["top"] = "1", ["a b+é"] = 12345, ["d/x"] = "", ["d/e/y"] = "2", ["dash-f"] = "3",
            }, places.url(server, "t"))
        end)
        teardown(function() if server.stop then server:stop() end end)

        it("prints what aws prints", function()
            for _, words in ipairs {
                { "t/" }, { "t/d" }, { "t/d", "--recursive", "--summarize" },
            } do
                local rest = table.move(words, 2, #words, 1, {})
                local url = places.url(server, words[1])
                assert.are.equal(places.aws(server, "ls", url, table.unpack(rest)),
                    (places.ncrun(server, "ls", url, table.unpack(rest))))
            end
        end)

        -- Other specs make buckets on the gateway meanwhile: what aws lists before and after is the same
        -- only when none did.
        it("lists the buckets as aws does", function()
            local before, ours
            helper.eventually(60, "a moment without a new bucket", function()
                before, ours = places.aws(server, "ls"), (places.ncrun(server, "ls"))
                return places.aws(server, "ls") == before
            end)
            assert.are.equal(before, ours)
        end)

        it("may be written as for aws, with the endpoint in front", function()
            local env = helper.env(server.env, { AWS_ENDPOINT_URL = "http://127.0.0.1:9" })
            local code, out, err = helper.ncrun({ "--endpoint-url", server.env.AWS_ENDPOINT_URL, "--region=us-east-1",
                "s3", "ls", places.url(server, "t/d/e") }, { env = env })
            assert.are.equal(0, code, err)
            assert.are.equal("                           PRE e/\n", out)
        end)

        it("ends with 3 where nothing matches, and with another code where the bucket is missing", function()
            local code, out, err = places.try(server, "ls", places.url(server, "t/none"))
            assert.are.same({ 3, "" }, { code, out })
            assert.truthy(err:find("t/none: no key begins with that", 1, true), err)
            code, _, err = places.try(server, "ls", "s3://no-such-bucket/")
            assert.are.equal(3, code)
            assert.truthy(err:find("NoSuchBucket", 1, true), err)
        end)

        it("prints objects byte for byte with cat", function()
            local from = places.tree { big = (17 << 20) + 3, nul = "a\0b\r\n" }
            places.ncrun(server, "cp", "-r", from, places.url(server, "cat"))
            local code, _, err = helper.sh(('"%s" cat %s | cmp - %s/big')
                :format(helper.NCRUN, places.url(server, "cat/big"), from), server.env)
            assert.are.equal(0, code, err)
            local nul = places.url(server, "cat/nul")
            assert.are.equal("a\0b\r\na\0b\r\n", (places.ncrun(server, "cat", nul, from .. "/nul")))
            code, _, err = places.try(server, "cat", places.url(server, "cat/none"))
            assert.are.equal(3, code)
            assert.truthy(err:find("there is no such object", 1, true), err)
        end)
    end)
end

describe("ls", function()
    it("lists a folder in the same way", function()
        local server <close> = helper.server()
        local dir = places.tree { ["d/x"] = "12", f = "123" }
        local out = places.ncrun(server, "ls", dir)
        assert.truthy(out:find "^ +PRE d/\n%d+%-%d%d%-%d%d %d%d:%d%d:%d%d          3 f\n$", out)
        out = places.ncrun(server, "ls", "-r", dir, "summarize=yes", "human=yes")
        assert.truthy(out:find "2 B d/x\n.*3 B f\n\nTotal Objects: 2\n   Total Size: 5 B\n$", out)
        assert.are.equal(3, (places.try(server, "ls", dir .. "/none")))
    end)

    it("never lets a control character of a name reach the terminal", function()
        local server <close> = helper.server { faults = { "GET * op=ListObjectsV2 add-key=x%1B%5B2J" } }
        assert.truthy(places.ncrun(server, "ls", places.url(server)):find(" x?[2J\n", 1, true))
    end)

    it("ends where nobody reads it any more", function()
        local server <close> = helper.server { memory = "yes", keys = 20000 }
        local _, out, err = helper.sh(('{ "%s" ls -r %s; echo $? >&2; } | head -1'):format(helper.NCRUN,
            places.url(server)), server.env)
        assert.truthy(out:find("many/0000000", 1, true))
        assert.are.equal("141\n", err)
    end)

    it("says when its lines can't be stored", function()
        local server <close> = helper.server { memory = "yes", keys = 10 }
        local code, _, err = helper.sh(('"%s" ls -r %s >/dev/full')
            :format(helper.NCRUN, places.url(server)), server.env)
        assert.are.equal(5, code)
        assert.truthy(err:find("write to stdout", 1, true), err)
    end)
end)

describe("cat", function()
    it("fails when the object is replaced on the way", function()
        local server <close> = helper.server()
        local from = places.tree { big = 20 << 20 }
        places.ncrun(server, "cp", "-r", from, places.url(server, "cat"))
        server:faults { "GET */big nth=2 etag-change", "GET */big nth=2- status=412" }
        local code, _, err = places.try(server, "cat", places.url(server, "cat/big"))
        assert.are.equal(1, code)
        assert.truthy(err:find("was replaced while it was read", 1, true), err)
    end)

    it("asks again for a range that was cut short", function()
        local server <close> = helper.server()
        local from = places.tree { big = 20 << 20 }
        places.ncrun(server, "cp", "-r", from, places.url(server, "cat"))
        server:faults { "GET */big nth=2 cut=1000", "GET */big nth=4 reset" }
        local code, _, err = helper.sh(('"%s" cat %s | cmp - %s/big')
            :format(helper.NCRUN, places.url(server, "cat/big"), from), server.env)
        assert.are.equal(0, code, err)
    end)
end)
