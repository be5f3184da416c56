--- Ncrun beside its peers, as ratios: every contestant does the same job on the same servers, all of
--- them in each round and in another order each time.
--
--   make bench [BENCH=down] [ROUNDS=5] [SIZE=4GiB] [SHARDS=16] [FILES=10000] [DISK=build]
--
-- A file in spec/bench/cases returns benchmarks that belong together; BENCH= names one of them or the
-- file. Times of one machine say little about another, and other work on it comes and goes: read the
-- ratios, each the median over the rounds of the ratio within one. Before the rounds the first contestant
-- does the job once unmeasured, so that the server has its memory.
--
-- CPU is user + system time of the client with its children, the servers' not counted. Memory is the
-- largest sum of the resident pages of the client's processes, looked at 20 times a second (pages that
-- processes share count once for each), or of one process, as the kernel remembers it, where that is
-- more. Tables go to stdout, at the end one of what has to hold (a benchmark's gates) beside what was
-- measured, and all figures to build/bench.json.

package.path = "spec/bench/?.lua"

local json   = require "nc.json"
local log    = require "nc.log"
local proc   = require "nc.proc"
local recipe = require "nc.recipe"
local site   = require "site"
local sys    = require "nc.core.sys"
local task   = require "nc.task"
local units  = require "nc.units"

local CASES <const> = "spec/bench/cases"
local PAGE <const> = 4096
local LIMIT <const> = "15m" -- for one contestant in one round
local STEP_S <const> = 0.01 -- what time(1) measures in; nothing takes less, or there would be no ratio
local MEASURED <const> = { "wall", "cpu", "memory" }

-- Every benchmark, with the file it is from, and what BENCH= may be.
local function find_cases()
    local cases, names = {}, { "all" }
    local files = sys.readdir(CASES)
    table.sort(files)
    for _, file in ipairs(files) do
        local group = file:match "^(.+)%.lua$"
        local before = #names
        for _, case in ipairs(require("cases." .. group)) do
            cases[#cases + 1] = { group = group, case = case }
            if case.name ~= group then names[#names + 1] = case.name end
        end
        table.insert(names, before + 1, group)
    end
    return cases, names
end

local function read_file(path)
    local file <close> = io.open(path, "r")
    return file and file:read "a"
end

-- Bytes resident in what descends from a process; one that has just ended counts nothing.
local function resident_below(pid)
    local bytes = 0
    local children = read_file(("/proc/%d/task/%d/children"):format(pid, pid)) or ""
    for child in children:gmatch "%d+" do
        local pages = (read_file("/proc/" .. child .. "/statm") or ""):match "^%d+ (%d+)"
        bytes = bytes + (tonumber(pages) or 0) * PAGE + resident_below(math.tointeger(child))
    end
    return bytes
end

-- Runs a command to its end: { wall = seconds, cpu = seconds, memory = bytes }.
local function measure(argv, report)
    local said, peak = {}, 0
    local words = { "/usr/bin/time", "-q", "-o", report, "-f", "%e %U %S %M" }
    table.move(argv, 1, #argv, #words + 1, words)
    local child <close> = proc.spawn(words, {
        stdout = "null",
        stderr = function(text) said[#said + 1] = text end,
    })
    local _ <close> = task.every("50ms", function()
        peak = math.max(peak, resident_below(child.pid))
    end)
    local ended = task.deadline(LIMIT, child.wait, child)
    if ended.code ~= 0 then
        error(("%s ended with %s %d\n%s"):format(argv[1], ended.code and "exit code" or "signal",
            ended.code or ended.signal, table.concat(said)), 0)
    end
    local wall, user, system, kib = read_file(report):match "([%d.]+) ([%d.]+) ([%d.]+) (%d+)\n$"
    return {
        wall = math.max(tonumber(wall), STEP_S), cpu = math.max(user + system, STEP_S),
        memory = math.max(peak, kib * 1024),
    }
end

local function shuffled(list)
    local out = table.move(list, 1, #list, 1, {})
    for i = #out, 2, -1 do
        local j = math.random(i)
        out[i], out[j] = out[j], out[i]
    end
    return out
end

local function median(values)
    local sorted = table.move(values, 1, #values, 1, {})
    table.sort(sorted)
    local middle = #sorted // 2
    return #sorted % 2 == 1 and sorted[middle + 1] or (sorted[middle] + sorted[middle + 1]) / 2
end

-- Adds to each its medians, and what the first one needed as a share of what it needed.
local function summarize(results)
    for _, r in ipairs(results) do
        r.median, r.ratio = {}, {}
        for _, what in ipairs(MEASURED) do
            local values, ratios = {}, {}
            for i, m in ipairs(r.rounds) do
                values[i], ratios[i] = m[what], results[1].rounds[i][what] / m[what]
            end
            r.median[what], r.ratio[what] = median(values), median(ratios)
        end
    end
end

-- What a gate compares, of one round. { "wall", "ncrun", "aws", 0.5 } is a ratio, without "aws" a figure;
-- { what =, most =, of = fn } says it itself.
local function gate_value(gate, round)
    if gate.of then return gate.of(round) end
    local what, name, other = gate[1], gate[2], gate[3]
    return other and round[name][what] / round[other][what] or round[name][what]
end

-- Each with what has to hold beside the median of what each round showed.
local function judge(case, results)
    local judged = json.array {}
    for _, gate in ipairs(case.gates or {}) do
        local most, values = gate.most or gate[4], {}
        for i = 1, #results[1].rounds do
            local round = {}
            for _, r in ipairs(results) do round[r.name] = r.rounds[i] end
            values[i] = gate_value(gate, round)
        end
        if most then
            judged[#judged + 1] = {
                what = gate.what or ("%s: %s%s"):format(gate[1], gate[2], gate[3] and " / " .. gate[3] or ""),
                is_size = not gate.of and not gate[3], most = most, measured = median(values),
            }
        end
    end
    return judged
end

-- One job, looked at: what failed must not count as fast.
local function run_once(case, place, command, bytes)
    case.clear(place)
    place:touch_memory()
    local m = measure(command, place.dir .. "/time")
    case.check(place, bytes)
    return m
end

local function run_case(case, ground, p)
    local place <close> = site.open(ground)
    case.setup(place)
    local results = {}
    for i, contestant in ipairs(case.contestants) do
        results[i] = { name = contestant.name, rounds = json.array {}, command = contestant.command(place) }
    end
    run_once(case, place, results[1].command, true)
    for round = 1, p.rounds do
        for _, r in ipairs(shuffled(results)) do
            local m = run_once(case, place, r.command, round == 1)
            r.rounds[round] = m
            log.info(("%s, round %d of %d: %-17s %7.2f s, %6.2f s CPU, %s"):format(
                case.name, round, p.rounds, r.name, m.wall, m.cpu, units.format_size(m.memory)))
        end
    end
    summarize(results)
    return {
        name = case.name, what = case.describe(place), rounds = p.rounds, contestants = results,
        gates = judge(case, results),
    }
end

-- The first contestant beside each of the others.
local function table_of(result)
    local lines = {
        ("**%s**: %s; medians of %d rounds"):format(result.name, result.what, result.rounds), "",
        ("| | wall s | CPU s | peak memory | wall: %s / it | CPU | memory |"):format(
            result.contestants[1].name),
        "|---|---|---|---|---|---|---|",
    }
    for _, r in ipairs(result.contestants) do
        local m, ratios = r.median, {}
        for i, what in ipairs(MEASURED) do ratios[i] = ("%.2f"):format(r.ratio[what]) end
        lines[#lines + 1] = ("| %s | %.2f | %.2f | %s | %s |"):format(
            (r.name:gsub("|", "\\|")), m.wall, m.cpu, units.format_size(m.memory), table.concat(ratios, " | "))
    end
    return table.concat(lines, "\n") .. "\n"
end

-- What has to hold, of all benchmarks that ran; nil where that is nothing.
local function table_of_gates(benchmarks)
    local lines = { "| must show | at most | measured | |", "|---|---|---|---|" }
    for _, b in ipairs(benchmarks) do
        for _, g in ipairs(b.gates) do
            local format = g.is_size and units.format_size or function(x) return ("%.2f"):format(x) end
            lines[#lines + 1] = ("| %s, %s | %s | %s | %s |"):format(b.name, g.what, format(g.most),
                format(g.measured), g.measured <= g.most and "holds" or "**does not**")
        end
    end
    return #lines > 2 and table.concat(lines, "\n") .. "\n" or nil
end

local function machine()
    local cpus, model = 0, "unknown"
    for name in read_file("/proc/cpuinfo"):gmatch "model name%s*: ([^\n]*)" do
        cpus, model = cpus + 1, name
    end
    local clients = json.array {}
    local said = proc.capture { "sh", "-c",
        [[for p in curl rclone aws s3cmd cp rsync; do "$p" --version | head -n 1; done]] }
    for line in said.stdout:gmatch "[^\n]+" do clients[#clients + 1] = line end
    return {
        cpus = cpus, cpu = model, kernel = proc.capture({ "uname", "-sr" }).stdout:match "[^\n]*",
        load = read_file("/proc/loadavg"):match "^%S+",
        clients = clients,
    }
end

local CASE_LIST <const>, NAMES <const> = find_cases()

return recipe {
    summary = "Measure ncrun beside its peers.",
    params = {
        bench  = { "all", "which benchmark, or file of them", choices = NAMES, env = "BENCH" },
        rounds = { 5, "how often each contestant runs", env = "ROUNDS" },
        size   = { "4GiB", "bytes of large input", type = "size", env = "SIZE" },
        shards = { 16, "files they are cut into", env = "SHARDS" },
        files  = { 10000, "how many small files there are", env = "FILES" },
        disk   = { "build", "a folder on the disk that is measured", type = "path", env = "DISK" },
        out    = { "build/bench.json", "where all figures go", type = "path" },
    },
    run = function(p)
        local ground <close> = site.prepare(p)
        local report = { date = os.date "!%Y-%m-%dT%H:%M:%SZ", machine = machine(), benchmarks = json.array {} }
        for _, c in ipairs(CASE_LIST) do
            if p.bench == "all" or p.bench == c.group or p.bench == c.case.name then
                local result = run_case(c.case, ground, p)
                table.insert(report.benchmarks, result)
                print(table_of(result))
            end
        end
        local gates = table_of_gates(report.benchmarks)
        if gates then print(gates) end
        local m = report.machine
        print(("%s, %d x %s, %s, load %s before"):format(report.date, m.cpus, m.cpu, m.kernel, m.load))
        local file <close> = assert(io.open(p.out, "w"))
        assert(file:write(json.encode(report, { indent = 2 }), "\n"))
    end,
}
