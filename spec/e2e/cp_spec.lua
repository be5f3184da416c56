--- ncrun cp: every pair of places, on the local server and on a Ceph gateway.
local helper = require "spec.helper"
local places = require "spec.places"

local ODD <const> = "deep/a b+c~%&=@é.txt"

-- A tree with what is awkward: nothing, several parts, odd names, a name that begins with another.
local function awkward()
    return places.tree {
        ["empty"] = "", ["small.bin"] = 1024, ["parts.bin"] = (12 << 20) + 1, [ODD] = "odd\n",
        ["a.b"] = "dot", ["a/b"] = "slash", ["a-b"] = "dash", ["deep/er/x"] = "x",
    }
end

-- Copies what is there to a file system of 8 MiB, and prints what is then on it.
local function copy_to_8_mib(server, url, disk)
    return helper.sh(("unshare -m sh -c 'mount -t tmpfs -o size=8m none %s && \"%s\" cp -r --quiet %s %s; "
        .. "code=$?; ls %s; exit $code'"):format(disk, helper.NCRUN, url, disk, disk), server.env)
end

for _, server in ipairs(helper.servers()) do
    describe("cp on " .. server.name, function()
        teardown(function() if server.stop then server:stop() end end)

        it("takes a folder into the bucket and back, byte for byte", function()
            local from, back = awkward(), helper.tmp()
            local url = places.url(server, "tree")
            local out, err = places.ncrun(server, "cp", "-r", from, url, "part_size=5MiB")
            assert.truthy(out:find(("upload: %s/a.b to %s/a.b\n"):format(from, url), 1, true), out)
            assert.truthy(err:find("copied 8 files, 12.0 MiB from ", 1, true), err)
            places.ncrun(server, "cp", "--recursive", places.url(server, "tree/"), back .. "/new")
            places.assert_same(from, back .. "/new")
        end)

        it("writes what aws reads, and reads what aws writes", function()
            local from, ours, theirs = awkward(), helper.tmp(), helper.tmp()
            places.ncrun(server, "cp", "-r", from, places.url(server, "ours"), "part_size=5MiB")
            places.aws(server, "cp", "--quiet", "--recursive", places.url(server, "ours"), theirs)
            places.assert_same(from, theirs)
            places.aws(server, "cp", "--quiet", "--recursive", from, places.url(server, "theirs"))
            places.ncrun(server, "cp", "-r", places.url(server, "theirs"), ours)
            places.assert_same(from, ours)
        end)

        it("takes a tree from prefix to prefix and from folder to folder", function()
            local from, back = awkward(), helper.tmp()
            places.ncrun(server, "cp", "-r", from, places.url(server, "one"))
            places.ncrun(server, "cp", "-r", places.url(server, "one/"), places.url(server, "two/three"))
            places.ncrun(server, "cp", "-r", places.url(server, "two"), back)
            places.assert_same(from, back .. "/three")
            places.ncrun(server, "cp", "-r", from, back .. "/copy")
            places.assert_same(from, back .. "/copy")
        end)

        it("gives one file its own name or another", function()
            local from, back = places.tree { ["f.bin"] = (6 << 20) + 1 }, helper.tmp()
            local function check(path) assert.are.equal(0, (helper.run { "cmp", from .. "/f.bin", path })) end
            places.ncrun(server, "cp", from .. "/f.bin", places.url(server, "single/"), "part_size=5MiB")
            places.ncrun(server, "cp", from .. "/f.bin", places.url(server, "single/other"), "part_size=5MiB")
            places.ncrun(server, "cp", places.url(server, "single/other"), places.url(server, "single/third"))
            places.ncrun(server, "cp", places.url(server, "single/third"), places.url(server, "deeper/"))
            assert.are.same({ "single/f.bin", "single/other", "single/third" }, places.keys(server, "single/"))
            places.ncrun(server, "cp", places.url(server, "single/f.bin"), back)
            check(back .. "/f.bin")
            places.ncrun(server, "cp", places.url(server, "deeper/third"), back .. "/new/g.bin")
            check(back .. "/new/g.bin")
            places.ncrun(server, "cp", back .. "/f.bin", back .. "/new/h.bin")
            check(back .. "/new/h.bin")
            assert.are.same({ "f.bin", "new/g.bin", "new/h.bin" }, places.files(back))
            assert.are.equal("", (select(2, helper.sh(("find %s -name '*.part*'"):format(back)))))
        end)

        it("passes stdin and stdout through, whatever their length", function()
            for _, size in ipairs { 0, 1, 5 << 20, (11 << 20) + 7 } do
                local from = places.tree { f = size }
                local key = places.url(server, "stream/" .. size)
                local code, _, err = helper.sh(('cat %s/f | "%s" cp - %s part_size=5MiB && "%s" cp %s - | cmp - %s/f')
                    :format(from, helper.NCRUN, key, helper.NCRUN, key, from), server.env)
                assert.are.equal(0, code, err)
            end
        end)

        it("takes keys that are no paths from prefix to prefix", function()
            local names = { "a//b", "/lead", "q?x=1#f", "%2F%zz", "./dot", "tail/", "ü ö+" }
            for _, name in ipairs(names) do
                local code, _, err = helper.run({ helper.NCRUN, "cp", "-", places.url(server, "odd/") .. name .. "x" },
                    { env = server.env, stdin = name })
                assert.are.equal(0, code, err)
            end
            places.ncrun(server, "cp", "-r", places.url(server, "odd"), places.url(server, "odder"))
            for _, name in ipairs(names) do
                assert.are.equal(name, (places.ncrun(server, "cat", places.url(server, "odder/") .. name .. "x")))
            end
            places.ncrun(server, "rm", "-r", places.url(server, "odder"))
            assert.are.same({}, places.keys(server, "odder/"))
        end)

        it("says what is not there", function()
            local code, _, err = places.try(server, "cp", places.url(server, "no/such"), helper.tmp())
            assert.are.equal(3, code)
            assert.truthy(err:find("no/such: there is no such object", 1, true), err)
            code, _, err = places.try(server, "cp", "-r", places.url(server, "no/"), helper.tmp())
            assert.are.equal(3, code)
            assert.truthy(err:find("there is no file: nothing to copy", 1, true), err)
            assert.are.equal(3, (places.try(server, "cp", "/no/such/file", places.url(server))))
            assert.are.equal(3, (places.try(server, "cp", "-r", "/no/such/folder", places.url(server))))
            assert.are.equal(3, (places.try(server, "cp", places.url(server, "no/such"), "-")))
        end)
    end)
end

describe("cp", function()
    local server
    setup(function() server = helper.server() end)
    teardown(function() server:stop() end)

    it("follows links, skips what is no file with a warning, and refuses a link that goes round", function()
        local dir, back = places.tree { ["real/f"] = "text" }, helper.tmp()
        helper.sh(("cd %s && ln -s real/f link && ln -s real folder && mkfifo pipe"):format(dir))
        local _, err = places.ncrun(server, "cp", "-r", dir, places.url(server, "links"))
        assert.truthy(err:find("pipe is a pipe: skipped", 1, true), err)
        assert.are.same({ "links/folder/f", "links/link", "links/real/f" }, places.keys(server, "links/"))
        helper.sh(("ln -s nowhere %s/gone"):format(dir))
        local code
        code, _, err = places.try(server, "cp", "-r", dir, back)
        assert.are.equal(6, code)
        assert.truthy(err:find("gone is a link that leads nowhere", 1, true), err)
        assert.are.same({ "folder/f", "link", "real/f" }, places.files(back))
        helper.sh(("ln -s .. %s/real/round"):format(dir))
        code, _, err = places.try(server, "cp", "-r", dir, places.url(server, "round"))
        assert.are.equal(1, code)
        assert.truthy(err:find("leads back to a folder above it", 1, true), err)
        assert.are.same({}, places.keys(server, "round/"))
    end)

    it("makes a folder of a key that ends with /", function()
        local back = helper.tmp()
        places.ncrun(server, "cp", places.tree { f = "1" } .. "/f", places.url(server, "marks/deep/"))
        local code, _, err = helper.run({ "sh", "-c", [[curl -sSf -X PUT --aws-sigv4 aws:amz:us-east-1:s3 \
            --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
            -H 'Content-Length: 0' "$AWS_ENDPOINT_URL/$NC_BUCKET/marks/hollow/"]] }, { env = server.env })
        assert.are.equal(0, code, err)
        places.ncrun(server, "cp", "-r", places.url(server, "marks/"), back)
        assert.are.equal(0, (helper.sh(("test -d %s/hollow && test -f %s/deep/f"):format(back, back))))
        places.ncrun(server, "cp", "-r", places.url(server, "marks/"), places.url(server, "marks2/"))
        assert.truthy(table.concat(places.keys(server, "marks2/"), " "):find("marks2/hollow/", 1, true))
    end)

    it("says that a file is no folder to copy a tree to", function()
        local from, to = places.tree { f = "1" }, places.tree { file = "2" }
        for _, where in ipairs { to .. "/file", to .. "/file/below" } do
            local code, _, err = helper.run { helper.NCRUN, "cp", "-r", from, where }
            assert.are.equal(1, code, err)
            assert.truthy(err:find(("mkdir %s: "):format(where), 1, true), err)
            assert.are.equal("2", helper.read(to .. "/file"))
        end
    end)

    it("refuses the whole list for one name that it can't write", function()
        local from, back = places.tree { ["ok"] = "1", ["x-y"] = "2" }, helper.tmp()
        local function check(why, prefix)
            local code, _, err = places.try(server, "cp", "-r", places.url(server, prefix), back)
            assert.are.equal(1, code, err)
            assert.truthy(err:find(why, 1, true), err)
            assert.are.same({}, places.files(back))
        end
        places.ncrun(server, "cp", "-r", from, places.url(server, "names"))
        for key, why in pairs {
            ["names/../../up"] = "would leave the folder", ["names//abs"] = "is absolute",
            ["names/a%0Ab"] = "holds a control character", ["names/p//q"] = "a part of it is empty",
            ["names/x/./q"] = "or a dot", ["names/x-y"] = "is there twice", ["names/ok"] = "out of order",
        } do
            server:faults { "GET * op=ListObjectsV2 add-key=" .. key }
            check(why, "names")
        end
        server:faults {}
        places.ncrun(server, "cp", from .. "/ok", places.url(server, "over-each-other/x"))
        places.ncrun(server, "cp", from .. "/ok", places.url(server, "over-each-other/x/y"))
        check('the name "x" is also the folder of "x/y"', "over-each-other")
        places.ncrun(server, "cp", "-r", places.url(server, "over-each-other"), places.url(server, "as-keys"))
    end)

    it("looks for space for all of it first", function()
        local from, disk = places.tree { a = 6 << 20, b = 6 << 20 }, helper.tmp()
        places.ncrun(server, "cp", "-r", from, places.url(server, "space"))
        local code, out, err = copy_to_8_mib(server, places.url(server, "space"), disk)
        assert.are.equal(5, code, err)
        assert.truthy(err:find("12.0 MiB are to be written and 8.0 MiB were free", 1, true), err)
        assert.are.equal("", out)
    end)

    it("counts what was listed before, where listing and copying overlap", function()
        local many <close> = helper.server { memory = "yes", keys = 10000 }
        local from = places.tree { ["0000000a"] = 6 << 20, z = 6 << 20 }
        places.ncrun(many, "cp", "-r", from, places.url(many, "many"))
        local code, _, err = copy_to_8_mib(many, places.url(many, "many"), helper.tmp())
        assert.are.equal(5, code, err)
        assert.truthy(err:find("12.0 MiB are to be written and 8.0 MiB were free", 1, true), err)
    end)

    it("notices a file that changes while it is read", function()
        local slow <close> = helper.server { rate = 8 << 20 }
        for change, expected in pairs { ["touch %s/f"] = 6, ["echo more >>%s/f"] = 0 } do
            slow:reset()
            local from = places.tree { f = 24 << 20 }
            local run <close> = helper.start({ helper.NCRUN, "cp", "-r", from, places.url(slow, "live"),
                "part_size=5MiB" }, { env = slow.env })
            helper.eventually(20, "an upload under way", function()
                return (slow:counters().s3.ops.CreateMultipartUpload or { requests = 0 }).requests > 0
            end)
            helper.sh(change:format(from))
            local code, _, err = run:wait(60)
            assert.are.equal(expected, code, err)
            assert.truthy(err:find((expected == 0 and "grew" or "changed") .. " while it was copied", 1, true), err)
        end
    end)

    it("goes on after kill -9 where it was, under whatever name", function()
        local slow <close> = helper.server { rate = 12 << 20 }
        local from, back = places.tree { f = 30 << 20 }, helper.tmp()
        places.ncrun(slow, "cp", from .. "/f", places.url(slow, "f"), "part_size=5MiB")
        for _, name in ipairs { "f", "other" } do
            local words = { "cp", places.url(slow, "f"), back .. "/" .. name, "part_size=5MiB", "parallel=2" }
            slow:reset()
            local first <close> = helper.start({ helper.NCRUN, table.unpack(words) }, { env = slow.env })
            helper.eventually(30, "some parts", function()
                local get = slow:counters().s3.ops.GetObject
                return get and get.out > 13 << 20
            end)
            first:kill "KILL"
            first:wait(10)
            assert.is_nil(helper.read(back .. "/" .. name))
            slow:reset()
            places.ncrun(slow, table.unpack(words))
            assert.are.equal(0, (helper.run { "cmp", from .. "/f", back .. "/" .. name }))
            assert.is_true(slow:counters().s3.ops.GetObject.out < 29 << 20, name)
        end
        assert.are.same({ "f", "other" }, places.files(back))
    end)

    it("only says with dry_run what it would do", function()
        local from = places.tree { ["x/y"] = "1", z = "2" }
        local out = places.ncrun(server, "cp", "-r", from, places.url(server, "dry"), "--dryrun")
        assert.are.equal(("(dryrun) upload: %s/x/y to %s\n(dryrun) upload: %s/z to %s\n"):format(
            from, places.url(server, "dry/x/y"), from, places.url(server, "dry/z")), out)
        assert.are.equal(("(dryrun) upload: %s/z to %s\n"):format(from, places.url(server, "dry/z")),
            places.ncrun(server, "cp", from .. "/z", places.url(server, "dry/"), "dry_run=yes"))
        assert.are.same({}, places.keys(server, "dry/"))
    end)

    it("takes patterns as aws does: the last one that matches decides", function()
        local from = places.tree { ["a.txt"] = "1", ["b.bin"] = "2", ["d/c.txt"] = "3", ["d/d.bin"] = "4" }
        places.ncrun(server, "cp", "-r", from, places.url(server, "some"), "--exclude", "*", "--include", "*.txt",
            "exclude=d/*")
        assert.are.same({ "some/a.txt" }, places.keys(server, "some/"))
        local code, _, err = places.try(server, "cp", "-r", from, places.url(server, "some"), "exclude=*")
        assert.are.equal(3, code)
        assert.truthy(err:find("exclude= leave", 1, true), err)
    end)

    it("leaves alone with overwrite what is there", function()
        local from = places.tree { ["f"] = "old" }
        places.ncrun(server, "cp", "-r", from, places.url(server, "over"))
        helper.write(from .. "/f", "new")
        helper.write(from .. "/g", "more")
        local out = places.ncrun(server, "cp", "-r", from, places.url(server, "over"), "overwrite=no")
        assert.are.equal(("upload: %s/g to %s\n"):format(from, places.url(server, "over/g")), out)
        assert.are.equal("", (places.ncrun(server, "cp", from .. "/f", places.url(server, "over/"), "overwrite=no")))
        assert.are.equal("old", (places.ncrun(server, "cat", places.url(server, "over/f"))))
        places.ncrun(server, "cp", from .. "/f", places.url(server, "over/"))
        assert.are.equal("new", (places.ncrun(server, "cat", places.url(server, "over/f"))))
    end)

    it("says nothing with quiet but what went wrong", function()
        local from = places.tree { f = "1" }
        local out, err = places.ncrun(server, "cp", "-r", from, places.url(server, "quiet"), "--quiet")
        assert.are.equal("", out .. err)
    end)

    it("refuses words that it does not know, and pairs that make no sense", function()
        local dir = places.tree { ["d/f"] = "1" }
        for _, case in ipairs {
            { "unknown option", "cp", "--sse", dir, places.url(server) },
            { "did you mean \"parallel\"", "cp", "paralel=3", dir, places.url(server) },
            { "wants a value", "cp", dir, places.url(server), "--endpoint-url" },
            { "is a folder: add -r", "cp", dir, places.url(server) },
            { "wants FROM and TO", "cp", dir },
            { "is no folder: cp copies one file", "sync", dir .. "/d/f", places.url(server) },
            { "names no file", "cp", places.url(server, "a/"), dir },
            { "can't be copied into itself", "cp", "-r", dir, dir .. "/d/e" },
            { "can't be copied into itself", "cp", "-r", places.url(server, "a"), places.url(server, "a/b") },
            { "can't be copied onto itself", "cp", dir .. "/d/f", dir .. "/d/" },
            { "a part has at least 5 MiB", "cp", "-r", dir, places.url(server), "part_size=1MiB" },
            { "must be an object", "cp", "-", dir },
            { "copies nothing", "cp", "-", "-" },
            { "names no bucket", "cp", "s3:///x", dir },
        } do
            local code, _, err = places.try(server, table.unpack(case, 2))
            assert.are.equal(2, code, err)
            assert.truthy(err:find(case[1], 1, true), err)
        end
    end)
end)
