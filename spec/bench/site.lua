--- Where a benchmark runs: a folder in memory and one on a disk, the local server, and what the cases
--- share: files as input, places to empty and to look at.

local http  = require "nc.http"
local proc  = require "nc.proc"
local s3    = require "nc.s3"
local sys   = require "nc.core.sys"
local task  = require "nc.task"
local units = require "nc.units"

local site = {}

-- Debian's own programs only.
local PATH <const> = "/usr/sbin:/usr/bin:/sbin:/bin"
local PROCESS_MEMORY <const> = 512 << 20
local OURS <const> = { "BENCH", "ROUNDS", "SIZE", "SHARDS", "FILES", "DISK" }

---@class bench.Site
---@field dir string      in memory
---@field disk string     on the disk
---@field size integer    bytes of large input
---@field shards integer  files it is cut into
---@field files integer   how many small files there are
local Site = {}
Site.__index = Site

local function clean_environment()
    local ours = {}
    for _, name in ipairs(OURS) do ours[name] = true end
    for name in pairs(sys.environ()) do
        if not ours[name] then sys.setenv(name, nil) end
    end
    sys.setenv("PATH", PATH)
    sys.setenv("LANG", "C.UTF-8")
    sys.setenv("TMPDIR", "/dev/shm") -- a disk would be measured too
end

local function must(argv)
    local done = proc.capture(argv)
    if done.code ~= 0 then error(("%s: %s"):format(table.concat(argv, " "), done.stderr), 0) end
    return done.stdout
end

-- Runs a shell script whose $0, $1, ... are the words.
local function shell(script, ...)
    return must { "sh", "-euc", script, ... }
end

-- Touches as much memory as will be used: a virtual machine's host hands it out when it is first touched,
-- which takes longer than to fill it, and takes back what was free for some seconds.
local function touch_memory(bytes)
    local file <close> = assert(io.open "/proc/meminfo")
    local available = tonumber(file:read("a"):match "MemAvailable:%s*(%d+)") * 1024
    shell('trap \'rm -f "$0"\' EXIT; head -c "$1" /dev/zero >"$0"',
        ("/dev/shm/ncrun-bench-%d"):format(sys.pid()), ("%d"):format(math.min(bytes, available * 3 // 4)))
end

---@class bench.Ground
---@field dir string  in memory
local Ground = {}
Ground.__index = Ground

function Ground:__close()
    proc.capture { "rm", "-rf", self.dir }
end

-- One for all servers: a process reads its CA file once.
local function make_certificate(dir)
    shell([[openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=bench \
        -addext subjectAltName=IP:127.0.0.1 -keyout "$0/key.pem" -out "$0/cert.pem" 2>/dev/null]], dir)
    for _, name in ipairs { "SSL_CERT_FILE", "CURL_CA_BUNDLE" } do
        sys.setenv(name, dir .. "/cert.pem")
    end
end

--- What all sites of this process share. From here on the environment, which contestants inherit, is
--- without the machine's own settings (proxies, CA bundles, credentials, configuration files), and
--- memory has been touched.
---@param options { size: integer, shards: integer, files: integer, disk: string }
---@return bench.Ground  closable
function site.prepare(options)
    clean_environment()
    local self = setmetatable({ dir = sys.mkdtemp(), options = options }, Ground)
    sys.setenv("HOME", self.dir)
    make_certificate(self.dir)
    touch_memory(4 * options.size)
    return self
end

---@param ground bench.Ground
---@return bench.Site  closable
function site.open(ground)
    local o = ground.options
    local self = setmetatable({
        ground = ground, dir = sys.mkdtemp(), disk = ("%s/ncrun-bench-%d"):format(o.disk, sys.pid()),
        size = o.size, shards = o.shards, files = o.files,
    }, Site)
    must { "mkdir", "-p", self.disk, self.dir .. "/hub" }
    return self
end

function Site:__close()
    if self.server then
        local _ <close> = self.server
    end
    proc.capture { "rm", "-rf", self.dir, self.disk }
end

-- ---- input ----

--- Makes a folder the input: what contestants move, and what check_... compare with. Markers don't count.
---@return string folder
function Site:use(folder)
    self.input, self.sizes = folder, {}
    for _, name in ipairs(sys.readdir(folder)) do
        if name:sub(1, 1) ~= "." then self.sizes[name] = sys.stat(folder .. "/" .. name).size end
    end
    return folder
end

--- A folder of files of equal size that no one can compress, as the input.
---@param where string?  the folder it is made in: self.dir unless said
---@return string folder
function Site:make_files(count, size, where)
    local folder = (where or self.dir) .. "/input"
    must { "mkdir", "-p", folder }
    shell([[head -c "$1" /dev/zero |
        openssl enc -aes-128-ctr -nosalt -K 00112233445566778899aabbccddeeff -iv 00 2>/dev/null |
        split -b "$2" -a 5 -d - "$0/file-"]], folder, ("%d"):format(count * size), ("%d"):format(size))
    return self:use(folder)
end

--- SIZE in SHARDS files.
function Site:make_large(where)
    return self:make_files(self.shards, self.size // self.shards, where)
end

--- A generated checkpoint as a repository of the hub, and as the input.
function Site:make_checkpoint(repository)
    local folder = self.dir .. "/hub/" .. repository
    must { "spec/fixtures/make-checkpoint", folder, ("size=%d"):format(self.size),
        ("shards=%d"):format(self.shards) }
    return self:use(folder)
end

--- "16 x 256.0 MiB"
function Site:describe_large()
    return ("%d x %s"):format(self.shards, units.format_size(self.size // self.shards))
end

--- Writes a file below self.dir; returns its path.
function Site:write(name, text)
    local path = self.dir .. "/" .. name
    local file <close> = assert(io.open(path, "w"))
    assert(file:write(text))
    return path
end

-- ---- the server ----

--- Starts ncdev with an empty bucket; what it exports is in the environment then. Objects are in memory,
--- ETags are no MD5s, which would cost the server more than all the rest, and the memory of what is
--- deleted is that of what comes, so that no contestant waits for fresh pages.
---@param scheme "http" | "https" | nil
function Site:serve(scheme)
    self.scheme = scheme or "http"
    local argv = {
        "build/ncdev", "memory=yes", "etag=fast", ("keep=%d"):format(3 * self.size), "hub=" .. self.dir .. "/hub",
    }
    if self.scheme == "https" then
        argv[#argv + 1] = "tls_cert=" .. self.ground.dir .. "/cert.pem"
        argv[#argv + 1] = "tls_key=" .. self.ground.dir .. "/key.pem"
    end
    local said = ""
    self.server = proc.spawn(argv, { stdout = function(text) said = said .. text end })
    task.deadline("20s", function()
        while not said:find "export NCDEV_ADMIN=[^\n]*\n" do task.sleep "20ms" end
    end)
    for name, value in said:gmatch "export ([%w_]+)='([^']*)'\n" do sys.setenv(name, value) end
    self.bucket = s3.bucket(os.getenv "NC_BUCKET")
end

--- Ends the server, and forgets the hub's files.
function Site:stop()
    self.server:__close()
    self.server = nil
    must { "rm", "-rf", self.dir .. "/hub" }
end

--- One of the server's own pages: its answer's body.
function Site:admin(method, page)
    local body = method == "POST" and "" or nil
    local res = http.request { method = method, url = os.getenv "NCDEV_ADMIN" .. page, body = body }
    if res.status >= 300 then error(("%s %s: %d %s"):format(method, page, res.status, res.body), 0) end
    return res.body
end

--- Each direction of the bucket, and of what the hub serves, moves so many bytes a second from now on.
function Site:limit(rate)
    self:admin("POST", ("/rate?bytes=%d"):format(rate))
end

--- "s3://bucket/prefix"
function Site:url(prefix)
    return ("s3://%s/%s"):format(self.bucket.name, prefix)
end

--- Removes all objects and unfinished uploads.
function Site:empty_bucket()
    for upload in self.bucket:uploads "" do self.bucket:abort_upload(upload.key, upload.upload_id) end
    local keys = {}
    for object in self.bucket:list "" do keys[#keys + 1] = object.key end
    local workers = {}
    for i = 1, 8 do
        workers[i] = function()
            while #keys > 0 do self.bucket:delete(table.remove(keys)) end
        end
    end
    task.all(workers)
end

-- ---- what came out ----

local function compare(self, there, where)
    for path, size in pairs(self.sizes) do
        if there[path] ~= size then
            error(("%s%s: %s bytes where %d are expected"):format(where, path, there[path] or "no", size), 0)
        end
    end
end

--- Raises unless every file of the input lies below the prefix with its size.
function Site:check_bucket(prefix)
    local there = {}
    for object in self.bucket:list(prefix) do there[object.key:sub(#prefix + 1)] = object.size end
    compare(self, there, prefix)
end

--- Raises unless every file of the input is in the folder: with its size, or byte for byte.
function Site:check_folder(folder, bytes)
    if bytes then
        for path in pairs(self.sizes) do must { "cmp", self.input .. "/" .. path, folder .. "/" .. path } end
        return
    end
    local there = {}
    for _, name in ipairs(sys.readdir(folder)) do there[name] = sys.stat(folder .. "/" .. name).size end
    compare(self, there, folder .. "/")
end

--- Makes an empty folder of it, and waits for the disk to have forgotten what was there.
function Site:empty_folder(folder)
    shell('rm -rf "$0"; mkdir -p "$0"; sync -f "$0"', folder)
end

--- Touches memory for one contestant: for a copy of the input, and for itself.
function Site:touch_memory()
    local bytes = PROCESS_MEMORY
    for _, size in pairs(self.sizes or {}) do bytes = bytes + size end
    touch_memory(bytes)
end

--- The folder's bytes leave the page cache.
function Site:forget(folder)
    shell([[sync -f "$0"; find "$0" -type f -exec sh -c 'for f; do dd if="$f" iflag=nocache count=0 status=none; done' \
        sh {} +]], folder)
end

return site
