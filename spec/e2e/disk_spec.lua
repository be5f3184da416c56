-- Disks that are full, that fail, that can clone: what becomes of a pull there.
local helper = require "spec.helper"
local pipe   = require "spec.pipe"
local pulls  = require "spec.pulls"

local PART <const> = pulls.PART
local ENOENT <const>, EIO <const>, ENOSPC <const>, ENOSYS <const>, EDQUOT <const> = 2, 5, 28, 38, 122

local library -- spec/fixtures/disk_fault.c as a library to preload

-- An environment in which the disk fails so, or with fault nil is only watched.
local function faulty(fault, trace)
    if not library then
        library = helper.tmp() .. "/disk_fault.so"
        local code, _, err = helper.run { "gcc", "-shared", "-fPIC", "-O1", "-o", library,
            "spec/fixtures/disk_fault.c" }
        assert.equal(0, code, err)
    end
    local sanitizer = os.getenv "ASAN_OPTIONS" -- which would insist on being the first library
    return {
        LD_PRELOAD = library, DISK_FAULT = fault or false, DISK_TRACE = trace or false,
        ASAN_OPTIONS = sanitizer and sanitizer .. ":verify_asan_link_order=0" or false,
    }
end

-- Runs a line of sh with an XFS of 320 MiB at $disk, in a mount namespace of its own.
local function on_xfs(line, env)
    local dir = helper.tmp()
    local code, out, err = helper.sh(([[
        truncate -s 320M %s/image && mkfs.xfs -q -m reflink=1 %s/image && mkdir %s/disk || exit 98
        exec unshare -m sh -c 'mount -o loop %s/image %s/disk || exit 98; disk=%s/disk; %s']]):format(
        dir, dir, dir, dir, dir, dir, line), env, { timeout = 100 })
    if code == 98 then
        error("this spec needs root and loop devices, to mount an XFS: run it on a machine of its own, or in a "
            .. "container with --privileged\n" .. err, 0)
    end
    return code, out, err
end

local function shell(argv)
    return table.concat(argv, " ") -- paths of ours alone, without blanks
end

describe("a full disk", function()
    it("is noticed before the first byte is on its way, where space can be asked for", function()
        local folder = helper.tmp()
        local server <close> = helper.server()
        -- There is no such object: nobody is to ask for it.
        local words = pulls.command { from = { prefix = "from/" }, to = { root = folder .. "/disk" },
            files = { { path = "big.bin", size = 400 << 20 } } }
        local code, out, err = on_xfs(("ln -s $disk %s/disk; %s; code=$?; ls -A $disk; exit $code"):format(
            folder, shell(words)), server.env)
        assert.equal(5, code, err)
        assert.equal("", out)
        assert.truthy(err:find("make room for [^\n]*big.bin %(419430400 bytes%): No space left"), err)
        assert.equal(0, pulls.count(server, "GetObject"))
    end)

    it("is noticed when it is written to, at the latest", function()
        local folder, files = pulls.random(8 * PART)
        local to = helper.tmp()
        for _, digests in ipairs { true, false } do
            files[1].parts = digests and files[1].parts or nil
            local words = pulls.command { from = { root = folder }, to = { root = to }, files = files }
            local code, out, err = helper.sh(("unshare -m sh -c 'mount -t tmpfs -o size=20m none %s && { %s; code=$?; "
                .. "ls -A %s; exit $code; }'"):format(to, shell(words), to))
            assert.equal(5, code, err)
            assert.equal("", out)
            assert.truthy(err:find("No space left", 1, true), err)
        end
    end)

    it("is the same to us as a limit on the size of files", function()
        local folder, files = pulls.random(3 * PART)
        local to = helper.tmp()
        local code, _, err = pulls.run({ from = { root = folder }, to = { root = to }, files = files }, {},
            { "prlimit", "--fsize=" .. 2 * PART })
        assert.equal(5, code, err)
        assert.truthy(err:find("File too large", 1, true), err)
        assert.same({}, pulls.half_written(to))
        assert.is_nil(helper.read(to .. "/big.bin"))
    end)
end)

describe("a disk that fails", function()
    local sources = {} -- name -> folder and list of one file: one that is streamed, one that is not

    setup(function()
        for name, size in pairs { big = 3 * PART + 5, small = 3000 } do
            local folder, files = pulls.folder { [name] = pipe.bytes(size) }
            files[1].version = "1"
            sources[name] = { folder = folder, files = files }
        end
    end)

    local function assert_nothing_stays(name, fault, exit, words)
        local source, to = sources[name], helper.tmp()
        helper.write(to .. "/" .. name, "old")
        local job = { from = { root = source.folder }, to = { root = to }, files = source.files }
        local code, _, err = pulls.run(job, faulty(fault))
        assert.equal(exit, code, err)
        assert.truthy(err:find(words, 1, true) and err:find(name, 1, true), err)
        assert.same({}, pulls.half_written(to))
        assert.equal("old", helper.read(to .. "/" .. name))
        assert.equal(0, (pulls.run(job)))
        pulls.assert_pulled(source.folder, to)
    end

    for _, at in ipairs {
        { "at a write", "write:%d:1" }, { "at fsync", "fsync:%d:1" }, { "at close", "close:%d:1" },
        { "at rename", "rename:%d:1" },
    } do
        for _, kind in ipairs { { "EIO", EIO, 1, "Input/output error" }, { "ENOSPC", ENOSPC, 5, "No space left" } } do
            it(("%s with %s ends the pull, and nothing of it stays"):format(at[1], kind[1]), function()
                for name in pairs(sources) do
                    assert_nothing_stays(name, at[2]:format(kind[2]), kind[3], kind[4])
                end
            end)
        end
    end

    it("half-way through a file ends the pull, and nothing of it stays", function()
        assert_nothing_stays("big", ("write:%d:8"):format(EIO), 1, "Input/output error")
    end)

    it("for want of a quota has the exit code of a full one", function()
        assert_nothing_stays("big", ("fsync:%d:1"):format(EDQUOT), 5, "Disk quota exceeded")
    end)
end)

describe("a file with holes", function()
    local folder, files

    setup(function()
        folder, files = helper.tmp(), { { path = "sparse", size = (96 << 20) + 7 } }
        local path = folder .. "/sparse"
        helper.sh(("truncate -s %d %s"):format(files[1].size, path))
        for _, at in ipairs { 0, 7 << 20, (40 << 20) - 100, (96 << 20) + 4 } do
            helper.sh(("printf abc | dd of=%s bs=1 seek=%d conv=notrunc status=none"):format(path, at))
        end
    end)

    local function blocks(path)
        local _, out = helper.run { "stat", "-c", "%b", path }
        return tonumber(out)
    end

    for _, way in ipairs { "with", "without" } do
        it("keeps them " .. way .. " digests", function()
            local to, file = helper.tmp(), helper.env(files[1])
            file.parts = way == "with" and pulls.digests(folder .. "/sparse") or nil
            local code, result, err = pulls.run { from = { root = folder }, to = { root = to }, files = { file } }
            assert.equal(0, code, err)
            assert.equal(way == "with" and "parts" or nil, result.files[1].verified)
            pulls.assert_pulled(folder, to)
            assert.is_true(blocks(to .. "/sparse") <= blocks(folder .. "/sparse") + 512,
                ("%d blocks became %d"):format(blocks(folder .. "/sparse"), blocks(to .. "/sparse")))
        end)
    end
end)

describe("a disk that is read", function()
    -- Pages of the source that the page cache has before and after a pull into memory.
    local function pull(prepare)
        local base = helper.tmp()
        local folder, files = pulls.random(8 * PART + (3 << 20) + 7)
        local job = { from = { root = base .. "/disk" }, to = { root = base .. "/to" }, files = files }
        local code, out, err = on_xfs(([[ln -s $disk %s/disk; mkdir %s/to; mount -t tmpfs none %s/to
            cp %s/big.bin $disk && sync -f $disk && %s
            fincore -nbo PAGES $disk/big.bin
            %s || exit 1
            fincore -nbo PAGES $disk/big.bin
            cmp %s/big.bin %s/to/big.bin]]):format(base, base, base, folder, prepare, shell(pulls.command(job)),
            folder, base))
        assert.equal(0, code, err)
        local before, after = out:match "^%s*(%d+)\n.*\n%s*(%d+)\n$"
        return tonumber(before), tonumber(after)
    end

    it("is read past the page cache, but for an end that fills no page, where nothing is in it", function()
        local before, after = pull "dd if=$disk/big.bin iflag=nocache count=0 status=none"
        assert.equal(0, before)
        assert.is_true(after <= 1, after .. " pages")
    end)

    it("is not where the page cache has it", function()
        local before, after = pull "cat $disk/big.bin >/dev/null"
        assert.is_true(before > 8 * PART // 4096)
        assert.equal(before, after)
    end)
end)

describe("a file that becomes another one while it is copied onto a disk", function()
    -- On the first try it is written past the page cache, on the second, with its hole, it is not.
    it("is read again where it has a hole now, and the others come", function()
        local folder, to = helper.tmp(), helper.tmp()
        for name, size in pairs { a = 40, y = 3, z = 3 } do
            helper.sh(("head -c %dM /dev/urandom >%s/%s"):format(size, folder, name))
        end
        local _, out, err = on_xfs(([[ln -s $disk %s/disk
            timeout 60 %s cp -r --quiet limit_rate=50MiB %s/ %s/disk/ & copy=$!
            until ls %s/disk | grep -q "^a[.].*[.]part$"; do sleep 0.02; done
            truncate -s 20M %s/a; truncate -s 40M %s/a
            wait $copy; echo "exit $?"
            for f in a y z; do cmp %s/$f %s/disk/$f && echo "$f is right"; done
            ls %s/disk | grep part]]):format(to, helper.NCRUN, folder, to, to, folder, folder, folder, to, to))
        assert.truthy(out:find "^exit [06]\n", out .. err)
        assert.truthy(out:find("a is right\ny is right\nz is right\n$"), out .. err)
    end)
end)

describe("from a folder to a folder", function()
    local folder, files, to, trace

    setup(function()
        folder, files = pulls.random(5 * PART + 3)
        files[1].parts = nil
    end)

    before_each(function()
        to, trace = helper.tmp(), helper.tmp() .. "/trace"
    end)

    local function pull(fault)
        return pulls.run({ from = { root = folder }, to = { root = to }, files = files, parallel = 2 },
            faulty("clone:95:1" .. (fault and "," .. fault or ""), trace))
    end

    local function times(call)
        return select(2, (helper.read(trace) or ""):gsub(call .. "\n", ""))
    end

    it("the kernel copies, where it can't clone", function()
        local code, _, err = pull()
        assert.equal(0, code, err)
        assert.is_true(times "copy" >= 6, "no copy_file_range")
        pulls.assert_pulled(folder, to)
    end)

    it("bytes are read and written where the kernel won't copy, from the start or from some part on", function()
        for _, nth in ipairs { 1, 2, 5 } do
            for _, number in ipairs { ENOSYS, EIO, ENOENT } do
                helper.sh("rm -rf " .. to .. "/* " .. trace)
                local code, _, err = pull(("copy:%d:%d"):format(number, nth))
                assert.equal(0, code, err)
                assert.equal(nth - 1, times "copy")
                pulls.assert_pulled(folder, to)
            end
        end
    end)

    it("a full disk is told by the kernel, too", function()
        for _, number in ipairs { ENOSPC, EDQUOT } do
            local code, _, err = pull(("copy:%d:2"):format(number))
            assert.equal(5, code, err)
            assert.same({}, pulls.half_written(to))
            assert.is_nil(helper.read(to .. "/big.bin"))
        end
    end)

    it("a file becomes a clone, where both lie on a file system that can do that", function()
        local base = helper.tmp()
        local job = { from = { root = base .. "/disk/from" }, to = { root = base .. "/disk/to" },
            files = { { path = "big.bin", size = 40 << 20 } } }
        local code, out, err = on_xfs(([[ln -s $disk %s/disk
            mkdir $disk/from $disk/to && head -c 40M /dev/urandom >$disk/from/big.bin && sync
            before=$(stat -f -c %%f $disk)
            %s || exit 1
            sync
            echo $(((before - $(stat -f -c %%f $disk)) * $(stat -f -c %%S $disk))) blocks
            cmp $disk/from/big.bin $disk/to/big.bin && ls -A $disk/to]]):format(base, shell(pulls.command(job))),
            faulty(nil, trace))
        assert.equal(0, code, err)
        assert.equal(1, times "clone")
        assert.equal(0, times "copy")
        assert.is_true(tonumber(out:match "(%-?%d+) blocks") < 4 << 20, out)
        assert.truthy(out:find("blocks\nbig.bin\n$"), out)
    end)
end)
