--- What specs share: folders, servers and children, each bounded in time and gone at the end.
--
--   local server <close> = helper.server { hub = helper.acoustic(), faults = { "GET * nth=2 status=503" } }
--   local code, out, err = helper.ncrun({ "recipes/stage-weights.lua", "model=a/b" }, { env = server.env })
--
-- It works the same in `ncrun test` and in busted under plain lua5.4, since all of it goes through sh.
-- However this process ends, what it started is then ended and its folders are removed.

local json = require "dkjson" -- comes with busted

local helper = {}

-- Debian's own programs only: what else a machine puts on the way (shims, wrappers) wants more of its
-- environment than children get here.
local PATH <const> = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
local SANITIZERS <const> = { "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS" }

-- Makes the folder of this run and leaves a keeper behind that waits for the end of the process that
-- called sh. The keeper is told by pid, not by a pipe: a child that lives on would hold the pipe open.
local BEGIN <const> = [[
root=$(mktemp -d /tmp/ncspec.XXXXXX) && chmod 711 "$root" && mkdir "$root/home" && echo "$root"
setsid sh -c '
    trap "" INT TERM HUP
    tail --pid="$2" -s 0.2 -f /dev/null
    for file in "$1"/*.pid; do
        [ -e "$file" ] && [ ! -e "${file%.pid}.code" ] && kill -KILL "-$(cat "$file")"
    done
    for rig in "$1"/*/.rig; do
        [ -e "$rig" ] && "spec/rigs/$(cat "$rig")-down" "${rig%/.rig}"
    done
    grep -o "$1/[^ ]*" /proc/self/mountinfo | sort -ru | xargs -r umount -l
    rm -rf "$1"
' keeper "$root" "$PPID" </dev/null >/dev/null 2>&1 &
]]

-- Starts a program in a session of its own, which its pid then names too. Pid and exit code appear by
-- rename: whoever sees the file sees all of it.
local START <const> = [[
base=%s
{
    setsid sh -c 'echo $$ >$0.new && mv $0.new $0.pid && exec "$@"' \
        $base %s <%s >$base.out 2>$base.err &
    wait $!
    echo $? >$base.new
    mv $base.new $base.code
} >/dev/null 2>&1 &
until [ -e $base.pid ]; do sleep 0.01; done
]]

local root -- the folder of this run
local serial = 0

local function quote(s)
    return "'" .. tostring(s):gsub("'", [['\'']]) .. "'"
end

local function output_of(command)
    local pipe <close> = assert(io.popen(command, "r"))
    return pipe:read("a")
end

local function here(path)
    return path:sub(1, 1) == "/" and path or output_of("pwd"):gsub("\n", "/") .. path
end

helper.NCRUN = here(os.getenv "NCRUN" or "build/ncrun")
helper.NCDEV = here(os.getenv "NCDEV" or "build/ncdev")

-- A new path of our own; nothing is there yet.
local function fresh()
    root = root or output_of(BEGIN):match("[^\n]+")
    serial = serial + 1
    return ("%s/%d"):format(root, serial)
end

---A folder that is removed at the end.
---@return string
function helper.tmp()
    local path = fresh()
    assert(os.execute("mkdir " .. path))
    return path
end

---@return string|nil
function helper.read(path)
    local file <close> = io.open(path, "rb")
    return file and file:read("a")
end

---Writes a file, making the folders above it.
function helper.write(path, text)
    assert(os.execute("mkdir -p " .. quote(path:match("^(.*)/") or ".")))
    local file <close> = assert(io.open(path, "wb"))
    assert(file:write(text))
end

---One environment made of several; later ones win, and false removes.
function helper.env(...)
    local all = {}
    for _, env in ipairs { ... } do
        for name, value in pairs(env) do
            all[name] = value or nil
        end
    end
    return all
end

---Asks again and again until ask() gives something true, which is returned.
function helper.eventually(seconds, what, ask)
    local limit = os.time() + seconds
    repeat
        local answer = ask()
        if answer then return answer end
        os.execute("sleep 0.02")
    until os.time() > limit
    error(("%s: not within %d s"):format(what, seconds), 2)
end

-- ---- children ------------------------------------------------------------------------------

-- argv as words of sh, in an environment that holds what is given and next to nothing else: a
-- machine's own proxies, CA bundles and credentials must not decide what a spec sees. Signals are as
-- a program finds them in a terminal; sh starts background children with SIGINT ignored.
local function words(argv, opts)
    local env = helper.env({ PATH = PATH, HOME = root .. "/home", LANG = "C.UTF-8",
        NO_PROXY = "127.0.0.1,localhost", no_proxy = "127.0.0.1,localhost" }, opts.env or {})
    for _, name in ipairs(SANITIZERS) do
        env[name] = env[name] or os.getenv(name)
    end
    local out = { "env", "-i", "--default-signal=HUP,INT,QUIT,PIPE,TERM" }
    if opts.cwd then out[#out + 1] = "--chdir=" .. quote(opts.cwd) end
    for name, value in pairs(env) do
        out[#out + 1] = quote(name .. "=" .. value)
    end
    for _, word in ipairs(argv) do
        out[#out + 1] = quote(word)
    end
    return table.concat(out, " ")
end

local function stdin_of(base, opts)
    if not opts.stdin then return "/dev/null" end
    helper.write(base .. ".in", opts.stdin)
    return base .. ".in"
end

---Runs a program to its end. More time than it may take is an error, with what it said until then.
---@param argv string[]
---@param opts table|nil { env=, cwd=, stdin=text, timeout=seconds [60] }
---@return integer code, string stdout, string stderr  code is 128 + n when a signal ended it
function helper.run(argv, opts)
    opts = opts or {}
    local base, limit = fresh(), opts.timeout or 60
    local bounded = table.move(argv, 1, #argv, 5, { "timeout", "-k", "2", limit })
    local started = os.time()
    local _, _, code = os.execute(("%s <%s >%s.out 2>%s.err")
        :format(words(bounded, opts), stdin_of(base, opts), base, base))
    local out, err = helper.read(base .. ".out"), helper.read(base .. ".err")
    os.execute("rm -f " .. base .. ".*")
    if code == 124 or (code == 137 and os.time() - started >= limit) then
        error(("%s: still running after %g s\n%s%s"):format(table.concat(argv, " "), limit, out, err), 2)
    end
    return code, out, err
end

---@param args string[]
function helper.ncrun(args, opts)
    return helper.run({ helper.NCRUN, table.unpack(args) }, opts)
end

---Runs a line of sh; opts as in run.
function helper.sh(line, env, opts)
    return helper.run({ "sh", "-c", line }, helper.env(opts or {}, { env = env or {} }))
end

local process = {}
process.__index = process

---Starts a program in a session of its own and goes on; `<close>` kills all of that session.
---@return table process { pid=, kill(signal), wait(seconds), running(), stdout(), stderr() }
function helper.start(argv, opts)
    opts = opts or {}
    local base = fresh()
    assert(os.execute(START:format(base, words(argv, opts), stdin_of(base, opts))))
    return setmetatable({ base = base, argv = argv, pid = tonumber(helper.read(base .. ".pid")) }, process)
end

function process:stdout()
    return helper.read(self.base .. ".out")
end

function process:stderr()
    return helper.read(self.base .. ".err")
end

function process:running()
    return not helper.read(self.base .. ".code")
end

---@param signal string|nil TERM unless said otherwise
function process:kill(signal)
    if self:running() then
        os.execute(("kill -%s %d 2>/dev/null"):format(signal or "TERM", self.pid))
    end
end

---@return integer code, string stdout, string stderr
function process:wait(seconds)
    helper.eventually(seconds or 60, table.concat(self.argv, " ") .. ": its end", function()
        return not self:running()
    end)
    return tonumber(helper.read(self.base .. ".code")), self:stdout(), self:stderr()
end

-- Children of its own may have outlived it.
function process:__close()
    os.execute(("kill -KILL -%d 2>/dev/null"):format(self.pid))
    self:wait(10)
end

-- ---- servers -------------------------------------------------------------------------------

-- `export NAME='value'` lines as a table.
local function exports(text)
    local env = {}
    for name, value in text:gmatch("export ([%w_]+)='?([^'\n]*)'?\n") do
        env[name] = value
    end
    return env
end

-- A table's options in order, as name=value words.
local function name_values(opts)
    local out = {}
    for name, value in pairs(opts) do
        out[#out + 1] = ("%s=%s"):format(name, value)
    end
    table.sort(out)
    return out
end

local function ask(server, method, path, body)
    local argv = { "curl", "-sS", "-f", "-m", "10", "-X", method, server.admin .. path }
    if body then table.move({ "--data-binary", body }, 1, 2, #argv + 1, argv) end
    local code, out, err = helper.run(argv, { timeout = 15 })
    if code ~= 0 then error(("%s %s: %s"):format(method, path, err), 3) end
    return out
end

local server = {}
server.__index = server

---Starts the local S3 + hub server with an empty bucket. Options are its own (`hub=`, `bucket=`,
---`memory=` ...), and faults = { rule, ... }; root and hub are new folders unless given.
---@return table server { name=, env=, admin=, root=, hub= }, closable
function helper.server(opts)
    local faults = opts and opts.faults or {}
    opts = helper.env({ root = helper.tmp(), port = 0 }, opts or {}, { faults = false })
    opts.hub = opts.hub or helper.tmp()
    local argv = { helper.NCDEV, table.unpack(name_values(opts)) }
    for _, rule in ipairs(faults) do
        argv[#argv + 1] = "fault=" .. rule
    end
    local child = helper.start(argv)
    local env = helper.eventually(20, "ncdev", function()
        if not child:running() then error("ncdev ended: " .. child:stderr(), 0) end
        local env = exports(child:stdout())
        return env.NCDEV_ADMIN and env
    end)
    return setmetatable({ name = "ncdev", env = env, admin = env.NCDEV_ADMIN, child = child,
        root = opts.root, hub = opts.hub }, server)
end

---What it was asked and what moved, as spec/server/counters.c counts it:
---counters().s3.ops.<op>.requests, .errors, .in, .out
---@return table
function server:counters()
    return (assert(json.decode(ask(self, "GET", "/counters"))))
end

---Its last requests, oldest first, as spec/server/counters.c logs them.
---@return table[]
function server:log()
    return (assert(json.decode(ask(self, "GET", "/log"))))
end

---Zeroes counters and log; objects stay.
function server:reset()
    ask(self, "POST", "/reset", "")
end

---Puts these rules in place of those in force; none at all with {}.
function server:faults(rules)
    ask(self, "DELETE", "/faults")
    if #rules > 0 then ask(self, "POST", "/faults", table.concat(rules, "\n") .. "\n") end
end

---Makes every signed address that the hub has handed out expire.
function server:rotate()
    ask(self, "POST", "/rotate", "")
end

function server:stop()
    self.child:kill("TERM")
    return self.child:wait(20)
end

function server:__close()
    self.child:__close()
end

---A bucket of its own on a real Ceph gateway, which is started once for the run (by spec/run, which
---says where in NC_SPEC_RGW, or here). env also has NC_TLS_ENDPOINT_URL and NC_TLS_CA for https.
---@return table server { name=, env=, dir= of the rig }, closable
function helper.rgw()
    local name = "spec-" .. fresh():match("%.(.*)"):lower():gsub("/", "-")
    local dir = os.getenv "NC_SPEC_RGW" or root .. "/rgw"
    if not helper.read(dir .. "/env") then
        local code, _, err = helper.run({ "spec/rigs/ceph-up", dir, "0", "tls_port=0" }, { timeout = 90 })
        if code ~= 0 then error(err, 0) end
    end
    local env = helper.env(exports(helper.read(dir .. "/env")), { NC_BUCKET = name })
    local code, _, err = helper.run { "curl", "-sS", "-f", "-m", "20", "-X", "PUT",
        "--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        "--user", env.AWS_ACCESS_KEY_ID .. ":" .. env.AWS_SECRET_ACCESS_KEY,
        env.AWS_ENDPOINT_URL .. "/" .. name }
    if code ~= 0 then error("bucket " .. name .. ": " .. err, 0) end
    return setmetatable({ name = "rgw", env = env, dir = dir }, { __close = function() end })
end

---Both servers, for suites that must hold on each.
function helper.servers()
    return { helper.server(), helper.rgw() }
end

local UNENDED <const> = { PENDING = true, RUNNING = true, COMPLETING = true, SUSPENDED = true, REQUEUED = true }

local cluster = {}
cluster.__index = cluster

---A real Slurm of one node of its own; opts are those of spec/rigs/slurm-up. env has SLURM_CONF.
---@return table cluster { env=, run(argv), submit(script, opts), job(id), ended(id, seconds) }, closable
function helper.slurm(opts)
    local dir = helper.tmp()
    local code, out, err = helper.run({ "spec/rigs/slurm-up", dir, table.unpack(name_values(opts or {})) },
        { timeout = 90 })
    if code ~= 0 then error(err, 0) end
    return setmetatable({ dir = dir, env = exports(out) }, cluster)
end

---Runs one of Slurm's commands, which has to succeed.
---@return string stdout
function cluster:run(argv)
    local code, out, err = helper.run(argv, { env = self.env })
    if code ~= 0 then error(("%s: %s%s"):format(table.concat(argv, " "), out, err), 2) end
    return out
end

---Gives a batch script to sbatch. What the job says is in the file that job(id).StdOut names.
---@param script string
---@param opts table|nil { env=, args={"--time=1", ...}, cwd= }
---@return string id
function cluster:submit(script, opts)
    opts = opts or {}
    local path = fresh() .. ".sbatch"
    helper.write(path, script)
    local argv = { "sbatch", "--parsable", "--output=" .. path .. ".%a.out", table.unpack(opts.args or {}) }
    argv[#argv + 1] = path
    local code, out, err = helper.run(argv, { env = helper.env(opts.env or {}, self.env), cwd = opts.cwd })
    if code ~= 0 then error("sbatch: " .. err, 2) end
    return out:match "%d+"
end

---What Slurm knows of a job, or of one of an array ("7_3"): JobState, ExitCode ("code:signal"), StdOut
---and the rest of `scontrol show job`.
---@return table<string, string>
function cluster:job(id)
    local fields = {}
    for name, value in self:run({ "scontrol", "show", "job", id }):gmatch "([%w:/_]+)=(%S*)" do
        fields[name] = fields[name] or value
    end
    return fields
end

---Waits for a job's end; all of an array when given its bare id.
---@return table<string, string> job
function cluster:ended(id, seconds)
    helper.eventually(seconds or 60, "the end of job " .. id, function()
        for state in self:run({ "scontrol", "show", "job", id }):gmatch "JobState=(%S+)" do
            if UNENDED[state] then return false end
        end
        return true
    end)
    return self:job(id)
end

function cluster:__close()
    helper.run({ "spec/rigs/slurm-down", self.dir }, { timeout = 60 })
end

---A server for answers that no real one gives: each of these bytes to one connection, the last to all
---others. Further words are those of spec/fixtures/raw-server.
---@param answers string|string[]
---@return table server { url=, asked() -> heads of the requests so far }, closable
function helper.raw(answers, ...)
    local argv, dir = { here "spec/fixtures/raw-server" }, helper.tmp()
    for i, answer in ipairs(type(answers) == "table" and answers or { answers }) do
        argv[#argv + 1] = ("%s/%d"):format(dir, i)
        helper.write(argv[#argv], answer)
    end
    local child = helper.start(table.move({ ... }, 1, select("#", ...), #argv + 1, argv))
    local port = helper.eventually(10, "raw-server", function() return child:stdout():match "^(%d+)\n" end)
    return setmetatable({
        url = "http://127.0.0.1:" .. port,
        asked = function() return child:stdout():match "^%d+\n(.*)" end,
    }, { __close = function() child:__close() end })
end

-- ---- input ---------------------------------------------------------------------------------

---Generates a checkpoint; opts are those of spec/fixtures/make-checkpoint.
function helper.checkpoint(dir, opts)
    local code, _, err = helper.run({ "spec/fixtures/make-checkpoint", dir,
        table.unpack(name_values(opts or {})) }, { timeout = 300 })
    if code ~= 0 then error(err, 2) end
    return dir
end

---A hub folder that holds the real model cmusphinx/en-us-acoustic.
function helper.acoustic()
    local dir = helper.tmp()
    local code, _, err = helper.run { "spec/fixtures/make-acoustic", dir }
    if code ~= 0 then error(err, 2) end
    return dir
end

return helper
