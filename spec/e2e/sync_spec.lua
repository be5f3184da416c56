--- ncrun sync, and what copies of staged models are held to, on the local server and a Ceph gateway.
local helper  = require "spec.helper"
local places  = require "spec.places"
local staging = require "spec.staging"

local function lines(text)
    local list = {}
    for line in text:gmatch "[^\n]+" do list[#list + 1] = line end
    table.sort(list)
    return list
end

for _, server in ipairs(helper.servers()) do
    describe("sync on " .. server.name, function()
        teardown(function() if server.stop then server:stop() end end)

        it("copies what is new or has changed, both ways, and aws finds nothing left to do", function()
            local from, back = places.tree { a = "1", ["a.b"] = "2", ["d/x"] = 4096, ["d.e"] = "4" }, helper.tmp()
            local url = places.url(server, "s")
            assert.are.equal(4, #lines((places.ncrun(server, "sync", from, url))))
            assert.are.equal("", (places.ncrun(server, "sync", from, url)))
            assert.are.equal("", places.aws(server, "sync", from, url))
            assert.are.equal(4, #lines((places.ncrun(server, "sync", url, back))))
            assert.are.equal("", (places.ncrun(server, "sync", url, back)))
            places.assert_same(from, back)
            -- Of the same size, but younger than the copy: noticed in either direction.
            helper.sh(("printf 9 >%s/a; touch -d '1 minute' %s/a; printf 22 >%s/a.b; printf n >%s/new"):format(
                from, from, from, from))
            assert.are.same({
                ("upload: %s/a to %s/a"):format(from, url), ("upload: %s/a.b to %s/a.b"):format(from, url),
                ("upload: %s/new to %s/new"):format(from, url),
            }, lines((places.ncrun(server, "sync", from, url))))
            helper.sh(("touch -d '1 hour ago' %s/*"):format(back))
            places.ncrun(server, "sync", url, back)
            places.assert_same(from, back)
        end)

        it("compares two prefixes by ETag", function()
            local from = places.tree { a = "1", b = "22" }
            places.ncrun(server, "cp", "-r", from, places.url(server, "p"))
            places.ncrun(server, "cp", "-r", from, places.url(server, "q"))
            places.ncrun(server, "cp", "-r", from, places.url(server, "p"))
            assert.are.equal("", (places.ncrun(server, "sync", places.url(server, "p"), places.url(server, "q"))))
        end)

        it("removes with delete what is only in the copy, last, and not what is left out", function()
            local from = places.tree { keep = "1", ["d/x"] = "2" }
            local url = places.url(server, "del")
            places.ncrun(server, "sync", from, url)
            helper.sh(("rm -r %s/d; printf 3 >%s/y.log"):format(from, from))
            places.ncrun(server, "cp", from .. "/y.log", url .. "/z.log")
            assert.are.same({
                ("(dryrun) delete: %s/d/x"):format(url), ("(dryrun) delete: %s/z.log"):format(url),
                ("(dryrun) upload: %s/y.log to %s/y.log"):format(from, url),
            }, lines((places.ncrun(server, "sync", from, url, "--delete", "--dryrun"))))
            places.ncrun(server, "sync", from, url, "--delete", "--exclude", "*.log")
            assert.are.same({ "del/keep", "del/z.log" }, places.keys(server, "del/"))
            places.ncrun(server, "sync", from, url, "delete=yes")
            assert.are.same({ "del/keep", "del/y.log" }, places.keys(server, "del/"))
            local back = places.tree { other = "x", ["e/f"] = "y" }
            places.ncrun(server, "sync", url, back, "--delete")
            assert.are.same({ "keep", "y.log" }, places.files(back))
        end)

        it("never takes an empty source for a wish to remove everything", function()
            local url = places.url(server, "full")
            places.ncrun(server, "cp", "-r", places.tree { a = "1" }, url)
            for _, from in ipairs { helper.tmp(), places.url(server, "none/"), helper.tmp() .. "/none" } do
                assert.are.equal(3, (places.try(server, "sync", from, url, "--delete")))
            end
            assert.are.same({ "full/a" }, places.keys(server, "full/"))
        end)
    end)
end

describe("sync", function()
    it("removes nothing when a file could not be copied", function()
        local server <close> = helper.server()
        local from = places.tree { a = "1", b = "2" }
        places.ncrun(server, "cp", "-r", places.tree { old = "1" }, places.url(server, "s"))
        server:faults { "PUT */s/b status=403:AccessDenied", "PUT */s/a status=400:BadThing" }
        assert.is_true((places.try(server, "sync", from, places.url(server, "s"), "--delete")) ~= 0)
        server:faults {}
        assert.truthy(table.concat(places.keys(server, "s/"), " "):find "s/old")
    end)

    it("refuses a name far down a long list before its page is begun", function()
        local server <close> = helper.server { memory = "yes", keys = 14500 }
        server:faults { "GET * op=ListObjectsV2 nth=13 add-key=many/..%2Fup" }
        local back = helper.tmp()
        local code, _, err = places.try(server, "sync", places.url(server, "many"), back .. "/d", "--quiet")
        assert.are.equal(1, code, err)
        assert.truthy(err:find('"../up" would leave the folder', 1, true), err)
        assert.are.equal(3, (helper.sh(("test ! -e %s/up && test ! -e %s/d/0013000 && exit 3"):format(back, back))))
    end)

    it("goes on past ten thousand files while it lists", function()
        local server <close> = helper.server { memory = "yes", keys = 20001 }
        local _, err = places.ncrun(server, "sync", places.url(server, "many"), places.url(server, "copy"), "--quiet")
        assert.are.equal("", err)
        local out = places.ncrun(server, "ls", "-r", places.url(server, "copy/"), "summarize=yes")
        assert.truthy(out:find("Total Objects: 20001\n", 1, true))
        assert.are.equal("", (places.ncrun(server, "sync", places.url(server, "many"), places.url(server, "copy"))))
    end)
end)

describe("a copy of a staged model", function()
    local server, url
    setup(function()
        server = helper.server { hub = staging.hub "32MiB" }
        url = places.url(server, "models/tiny")
        assert.are.equal(0, (staging.run(server.env, "part_size=5MiB")))
    end)
    teardown(function() server:stop() end)

    it("is checked against the manifest, and is marked last", function()
        local back = helper.tmp()
        server:reset()
        local _, err = places.ncrun(server, "cp", "-r", url, back)
        assert.truthy(err:find("9 checked against the manifest", 1, true), err)
        assert.are.equal(0, (helper.sh(("diff -r -x .complete %s %s/acme/tiny"):format(back, server.hub))))
        assert.are.equal(staging.object(server.env, "models/tiny/.complete"), helper.read(back .. "/.complete"))
        assert.is_nil(helper.read(back .. "/.staging"))
        assert.are.equal("", (places.ncrun(server, "sync", url, back)))
    end)

    it("is no copy, and is not marked, where bytes are wrong", function()
        local back = helper.tmp()
        helper.write(back .. "/.complete", "")
        server:faults { "GET *tiny/" .. staging.SHARD .. " flip=6000000" }
        local code, _, err = places.try(server, "cp", "-r", url, back)
        server:faults {}
        assert.are.equal(6, code, err)
        assert.truthy(err:find("nothing is marked complete", 1, true), err)
        assert.is_nil(helper.read(back .. "/.complete"))
        assert.is_nil(helper.read(back .. "/" .. staging.SHARD))
        places.ncrun(server, "sync", url, back)
        assert.are.equal(0, (helper.sh(("diff -r -x .complete %s %s/acme/tiny"):format(back, server.hub))))
    end)

    it("is refused where the source is not what its manifest says", function()
        local copy, back = places.url(server, "models/broken"), helper.tmp()
        places.ncrun(server, "cp", "-r", url, copy)
        places.ncrun(server, "rm", copy .. "/" .. staging.SHARD)
        local code, _, err = places.try(server, "cp", "-r", copy, back)
        assert.are.equal(1, code)
        assert.truthy(err:find(staging.SHARD .. " is not there", 1, true), err)
        assert.are.same({}, places.files(back))
        places.ncrun(server, "cp", places.tree { f = "short" } .. "/f", copy .. "/" .. staging.SHARD)
        code, _, err = places.try(server, "cp", "-r", copy, back)
        assert.are.equal(1, code)
        assert.truthy(err:find("has 5 bytes, not", 1, true), err)
        places.ncrun(server, "cp", "-r", copy, back, "verify=no")
        assert.are.equal("short", helper.read(back .. "/" .. staging.SHARD))
    end)

    it("is told apart by the manifests where size and time say nothing", function()
        local a, b = helper.tmp(), helper.tmp()
        places.ncrun(server, "cp", "-r", url, a, "--quiet")
        places.ncrun(server, "cp", "-r", a, b, "--quiet")
        helper.sh(([[printf X | dd of=%s/config.json bs=1 conv=notrunc 2>/dev/null
            sum=$(sha256sum %s/config.json | cut -d ' ' -f 1)
            old=$(sha256sum %s/config.json | cut -d ' ' -f 1)
            part=$(xxhsum -H2 %s/config.json | cut -d ' ' -f 1)
            oldpart=$(xxhsum -H2 %s/config.json | cut -d ' ' -f 1)
            sed -i "s/$old/$sum/; s/$oldpart/$part/" %s/.complete
            touch -d '2 hours ago' %s/config.json %s/.complete]]):format(a, a, b, a, b, a, a, a))
        local out = places.ncrun(server, "sync", a, b)
        assert.truthy(out:find("copy: " .. a .. "/config.json", 1, true), out)
        places.assert_same(a, b)
    end)

    it("is said to be none yet while it is staged, and whose manifest can't be read", function()
        local dir, back = places.tree { w = "1", [".staging"] = "{}" }, helper.tmp()
        local _, err = places.ncrun(server, "cp", "-r", dir, back)
        assert.truthy(err:find("has a .staging and no .complete", 1, true), err)
        assert.are.same({ "w" }, places.files(back))
        helper.write(dir .. "/.complete", '{ "version": 1, ')
        local code
        code, _, err = places.try(server, "cp", "-r", dir, back)
        assert.are.equal(1, code)
        assert.truthy(err:find(dir .. "/.complete: the marker is JSON that was cut short", 1, true), err)
    end)

    it("says that it was not verified where the marker lists nothing", function()
        local bare = places.tree { ["w.bin"] = 1000, [".complete"] = "" }
        local _, err = places.ncrun(server, "cp", "-r", bare, places.url(server, "bare"))
        assert.truthy(err:find("taken by their size, not verified", 1, true), err)
        assert.are.same({ "bare/.complete", "bare/w.bin" }, places.keys(server, "bare/"))
    end)
end)
