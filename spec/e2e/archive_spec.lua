-- Unpacking what a stage-in streams: archives as they should be, and those that mean harm.
local helper = require "spec.helper"
local jobs = require "spec.jobs"

local function make(path, ...)
    local code, _, err = helper.run { "spec/fixtures/make-archive", path, ... }
    assert(code == 0, err)
end

-- Everything below a folder, links too.
local function tree(folder)
    local _, out = helper.sh(("cd %s && find . -printf '%%y %%P %%s %%l\n' | sort"):format(folder))
    return out
end

describe("an archive that is staged in", function()
    local server = helper.server { memory = "yes" }
    local env = jobs.env(server)
    local source = helper.tmp()

    teardown(function() server:__close() end)

    -- Stages it in and runs a script; `work` is inside a folder in which nothing else may appear.
    local function stage(path, script, from)
        local around = helper.tmp()
        local name = path:match "[^/]*$"
        if from ~= "volume" then jobs.put(env, path, name) end
        local code, out, err = jobs.run(env, {
            "input=" .. (from == "volume" and path or name), "work=" .. around .. "/a/work",
        }, script or "true")
        return code, out, err, around
    end

    for _, case in ipairs {
        { "tar", "tar -cf" }, { "tar.gz", "tar -czf" }, { "tgz", "tar -czf" }, { "tar.zst", "tar --zstd -cf" },
    } do
        for _, from in ipairs { "bucket", "volume" } do
            it(("is unpacked as tar would, from a %s: .%s"):format(from, case[1]), function()
                local data = source .. "/data"
                helper.sh(([[
                    mkdir -p %s/images/deep %s/empty && cd %s || exit 1
                    for i in 1 2 3; do head -c 300000 /dev/urandom >images/$i.jpg; done
                    printf 'a,b\n' >labels.csv; chmod 755 labels.csv; touch -d @1000000000 labels.csv
                    ln -sf ../1.jpg images/deep/first; ln -f images/2.jpg images/two; echo x >'ein ä.txt'
                    truncate -s 3M sparse; printf end >>sparse
                ]]):format(data, data, data))
                local path = ("%s/ok.%s"):format(source, case[1])
                local line = ("%s %s -C %s --format=pax --sparse ."):format(case[2], path, data)
                assert.equal(0, (helper.sh(line)))
                local code, out, err, around = stage(path, [[
                    cd "$NC_INPUT" && stat -c '%a %Y' labels.csv && stat -c '%h' images/two
                ]], from)
                assert.equal(0, code, err)
                assert.equal("755 1000000000\n2\n", out)
                assert.equal(0, (helper.run { "diff", "-r", data, around .. "/a/work/input" }))
                assert.equal(tree(data), tree(around .. "/a/work/input"))
            end)
        end
    end

    for _, case in ipairs {
        { "a name with ..", { "file ok.txt ok", "file ../out.txt bad" }, "../out.txt", "would leave the folder" },
        { "a name with .. in it", { "file a/b/../../../out.txt bad" }, "a/b/../../../out.txt", "would leave" },
        { "an absolute name", { "file /tmp/nc-absolute bad" }, "/tmp/nc-absolute", "is absolute" },
        { "a link to an absolute path", { "link l /etc", "file l/out bad" }, "l", "leads out of the folder" },
        { "a link that climbs out", { "dir a", "link a/l ../../up" }, "a/l", "leads out of the folder" },
        { "a file behind a link", { "dir a", "link l a", "file l/in.txt bad" }, "l/in.txt", "behind a link" },
        { "links that lead out together", { "dir a", "link a/here .", "link out a/here/../../up" }, "out",
          "leads out of the folder" },
        { "a hard link out", { "hard h ../../etc/passwd" }, "h", "leads out of the folder" },
        { "a hard link that lifts a link", { "dir a", "dir a/b", "link a/b/l ../../x", "hard l a/b/l" }, "l",
          "is a hard link to what is no file" },
        { "a device", { "device null" }, "null", "is a device" },
        { "a pipe", { "fifo p" }, "p", "is a device or a pipe" },
        { "a control character", { "file a\tb bad" }, "a?b", "holds a control character" },
        { "a bomb of sparse files", { "sparse s1 4000000000000", "sparse s2 9000000000000000" }, nil, "are free" },
        { "one huge sparse file", { "file ok.txt ok", "sparse huge 8000000000000000000" }, "huge", "are free" },
    } do
        it("is refused by name, and nothing is written outside: " .. case[1], function()
            local path = helper.tmp() .. "/bad.tar.gz"
            make(path, table.unpack(case[2]))
            local code, _, err, around = stage(path, "echo ran")
            assert.is_true(code ~= 0, err)
            if case[3] then assert.truthy(err:find(('the entry "%s'):format(case[3]), 1, true), err) end
            assert.truthy(err:find(case[4], 1, true), err)
            local _, outside = helper.sh(("find %s -path '%s/a/work/input' -prune -o -type f -print"):format(
                around, around))
            assert.equal("", outside)
            assert.is_nil(helper.read "/tmp/nc-absolute")
        end)
    end

    it("that is no archive, is cut short or is broken is an error, and the command does not run", function()
        local path = helper.tmp() .. "/cut.tar.gz"
        assert.equal(0, (helper.sh(([[head -c 3000000 /dev/urandom >%s.x && tar -czf %s.whole %s.x 2>/dev/null &&
            head -c 1000000 %s.whole >%s]]):format(path, path, path, path, path))))
        local code, out, err = stage(path, "echo ran")
        assert.is_true(code ~= 0)
        assert.equal("", out)
        assert.truthy(err:find("cut.tar.gz", 1, true), err)
        helper.write(path, ("no archive\n"):rep(100))
        code, out, err = stage(path, "echo ran")
        assert.equal(1, code, err)
        assert.equal("", out)
        assert.truthy(err:find("unpack s3://", 1, true), err)
    end)

    it("that is not there is code 3, and a folder's archives stay as they are unless all are wanted", function()
        local code, _, err = jobs.run(env, { "input=nothing.tar.gz" }, "true")
        assert.equal(3, code, err)
        local folder = helper.tmp()
        helper.sh("mkdir " .. folder .. "/set")
        make(folder .. "/set/x.tar", "file in.txt hello")
        helper.write(folder .. "/set/plain.txt", "plain")
        local _, out = jobs.run(env, { "input=" .. folder .. "/set/" }, 'ls "$NC_INPUT"')
        assert.equal("plain.txt\nx.tar\n", out)
        _, out = jobs.run(env, { "archive=all", "input=" .. folder .. "/set/" }, 'ls "$NC_INPUT"')
        assert.equal("in.txt\nplain.txt\n", out)
        make(folder .. "/y.tar", "file in.txt hello")
        _, out = jobs.run(env, { "archive=no", "input=" .. folder .. "/y.tar" }, 'ls "$NC_INPUT"')
        assert.equal("y.tar\n", out)
    end)
end)
