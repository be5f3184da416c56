-- What build/static/ncrun is, as a file and as a process.
local helper = require "spec.helper"

local BINARY <const> = "build/static/ncrun"
local EMPTY <const> = "spec/static/in-empty"

local function output_of(argv, opts)
    local code, out, err = helper.run(argv, opts)
    assert.equal(0, code, err)
    return out
end

local function size(path)
    return tonumber((output_of { "stat", "-c", "%s", path }))
end

describe("the static build", function()
    it("is a static-pie that needs no interpreter and no library, under 9 MB stripped", function()
        local kind = output_of { "file", "-b", BINARY }
        assert.truthy(kind:find("static-pie linked", 1, true), kind)
        assert.truthy(kind:find(", stripped", 1, true), kind)
        local headers = output_of { "readelf", "-W", "--program-headers", "--dynamic", BINARY }
        assert.falsy(headers:find("INTERP", 1, true))
        assert.falsy(headers:find("NEEDED", 1, true))
        assert.is_true(size(BINARY) < 9e6)
    end)

    it("has its tables read-only, no executable stack, stack protectors and checked copies", function()
        local headers = output_of { "readelf", "-W", "--program-headers", "--dynamic", BINARY }
        assert.truthy(headers:find("GNU_RELRO", 1, true))
        assert.truthy(headers:find("BIND_NOW", 1, true))
        assert.truthy(headers:find "GNU_STACK[^\n]* RW ")
        local symbols = output_of { "nm", BINARY .. ".symbols" }
        for _, name in ipairs { "__stack_chk_fail", "__memcpy_chk", "__snprintf_chk" } do
            assert.truthy(symbols:find(" " .. name .. "\n", 1, true), name)
        end
    end)

    it("has neither glibc's name service nor its loader of libraries inside", function()
        local symbols = output_of { "nm", BINARY .. ".symbols" }
        for _, name in ipairs { "__nss_database_get", "_dl_open", "__dlopen", "__libc_start_call_main" } do
            local there = symbols:find(" " .. name .. "\n", 1, true) ~= nil
            assert.equal(name == "__libc_start_call_main", there, name)
        end
    end)

    it("is what SHA256SUMS says, and tells its own digest as `file` does", function()
        output_of({ "sha256sum", "-c", "SHA256SUMS" }, { cwd = "build/static" })
        local id = output_of { "file", "-b", BINARY }:match "BuildID%[sha1%]=(%x+)"
        assert.truthy(output_of { EMPTY, "version" }:find("\nbuild " .. id .. "\n", 1, true))
    end)

    it("tells the date of its CA bundle and the revisions of what is linked", function()
        local said = output_of { EMPTY, "version" }
        assert.truthy(said:find "\nCA bundle %d%d%d%d%-%d%d%-%d%d\n", said)
        for _, package in ipairs { "libssl-dev", "liblua5.4-dev", "libc6-dev", "libc-ares-dev" } do
            local source = output_of { "dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package }
            assert.truthy(said:find("\nfrom Debian: " .. source .. "\n", 1, true), said)
        end
        for _, package in ipairs { "curl 7", "libxml2 2" } do
            assert.truthy(said:find("\nfrom Debian: " .. package, 1, true), said)
        end
    end)

    it("has the same bytes when it is built in another folder", function()
        output_of({ "static/twice", "ours" }, { timeout = 240 })
    end)

    it("finds its recipes by name, and a path is a file", function()
        local said = output_of { EMPTY, "help", "stage-weights" }
        assert.truthy(said:find("ncrun recipes/stage-weights.lua", 1, true), said)
        local script = helper.tmp() .. "/mine.lua"
        helper.write(script, "print(...)\n")
        assert.equal("one\ttwo\n", output_of { EMPTY, script, "one", "two" })
    end)

    it("runs with no standard stream open where there is no /dev", function()
        assert.equal("0\n", output_of { "sh", "-c", EMPTY .. " version >/dev/null <&- 2>&-; echo $?" })
        local code = helper.run { "sh", "-c", EMPTY .. " version >&-" }
        assert.equal(1, code) -- what can't be written is said, not lost
    end)

    it("opens no file of the image but those that say where names and certificates are", function()
        local trace = helper.tmp() .. "/trace"
        local script = trace:gsub("trace$", "get.lua")
        helper.write(script, [[print(pcall(require "nc.http".request, { url = "https://localhost:9/" }))]])
        output_of({ "strace", "-f", "-o", trace, "-e", "trace=open,openat,execve", BINARY, script })
        local opened = {}
        for path in helper.read(trace):gmatch '[^\n]-open[at]*%([^"\n]*"([^"]+)"' do opened[path] = true end
        opened[script] = nil
        for _, path in ipairs { "/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt",
            "/dev/urandom" } do
            opened[path] = nil
        end
        -- What the machine allows: CPUs and memory.
        for path in pairs(opened) do
            if path:find "^/sys/" or path:find "^/proc/" then opened[path] = nil end
        end
        assert.same({}, opened)
    end)
end)

-- Runs a program again and again; the median of the milliseconds from its start to its end.
local MEASURE <const> = [[
import os, statistics, sys, time
times, argv = int(sys.argv[1]), sys.argv[2:]
null = os.open("/dev/null", os.O_RDWR)
took = []
for _ in range(times):
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
    os.waitpid(pid, 0)
    took.append(time.perf_counter() - start)
print(statistics.median(took) * 1000)
]]

-- Before all else that this machine does, where that is allowed: what it takes is asked, not how
-- busy the others are.
local FIRST <const> = [[if chrt --fifo 1 true 2>/dev/null; then exec chrt --fifo 1 "$@"; else exec "$@"; fi]]

local function milliseconds(times, ...)
    return tonumber((output_of { "sh", "-c", FIRST, "sh", "python3", "-c", MEASURE, times, ... }))
end

local function peak_kib(...)
    local code, _, err = helper.run { "/usr/bin/time", "-f", "%M", ... }
    assert.equal(0, code, err)
    return tonumber(err:match "(%d+)\n$")
end

describe("`ncrun version`", function()
    it("takes under 5 ms and 8 MB, a hundredth of `aws --version`'s time and a fifth of its memory", function()
        local ours, aws = milliseconds(101, BINARY, "version"), milliseconds(3, "/usr/bin/aws", "--version")
        local told = ("%.2f ms beside %.0f ms"):format(ours, aws)
        assert.is_true(ours < 5, told)
        assert.is_true(ours < aws / 100, told)
        ours, aws = peak_kib(BINARY, "version"), peak_kib("/usr/bin/aws", "--version")
        told = ("%d KiB beside %d KiB"):format(ours, aws)
        assert.is_true(ours < 8e6 / 1024, told)
        assert.is_true(ours < aws / 5, told)
    end)
end)
