--- Where a benchmark runs: a folder in memory, the local server in front of it, and what the cases
--- share: checkpoints as input, a bucket to empty and to look at.

local proc  = require "nc.proc"
local s3    = require "nc.s3"
local sys   = require "nc.core.sys"
local task  = require "nc.task"
local units = require "nc.units"

local site = {}

-- Debian's own programs only.
local PATH <const> = "/usr/sbin:/usr/bin:/sbin:/bin"

local Site = {}
Site.__index = Site

--- This process's environment, which contestants inherit, without the machine's own settings: proxies,
--- CA bundles, credentials.
function site.clean_environment()
    for name in pairs(sys.environ()) do
        if name ~= "BENCH" then sys.setenv(name, nil) end
    end
    sys.setenv("PATH", PATH)
    sys.setenv("LANG", "C.UTF-8")
    sys.setenv("TMPDIR", "/dev/shm") -- a disk would be measured too
end

---@param options { size: integer, shards: integer }
---@return table  closable
function site.open(options)
    local self = setmetatable({ dir = sys.mkdtemp(), size = options.size, shards = options.shards }, Site)
    sys.setenv("HOME", self.dir) -- no one's configuration files
    return self
end

function Site:__close()
    if self.server then
        local _ <close> = self.server
    end
    proc.capture { "rm", "-rf", self.dir }
end

local function must(argv)
    local done = proc.capture(argv)
    if done.code ~= 0 then error(("%s: %s"):format(argv[1], done.stderr), 0) end
    return done.stdout
end

--- A generated checkpoint as a repository of the hub; self.files has its sizes by path.
function Site:checkpoint(repository)
    local folder = self.dir .. "/hub/" .. repository
    must { "spec/fixtures/make-checkpoint", folder, ("size=%d"):format(self.size),
        ("shards=%d"):format(self.shards) }
    self.files = {}
    for _, name in ipairs(sys.readdir(folder)) do
        self.files[name] = sys.stat(folder .. "/" .. name).size
    end
end

--- "4.0 GiB in 16 shards"
function Site:describe_input()
    return ("%s in %d shards"):format(units.format_size(self.size), self.shards)
end

--- Starts ncdev with an empty bucket; what it exports is in the environment then. Objects are in memory,
--- and an ETag is no MD5, which would cost the server more than all the rest.
function Site:serve()
    local said = ""
    self.server = proc.spawn({ "build/ncdev", "memory=yes", "etag=fast", "hub=" .. self.dir .. "/hub" }, {
        stdout = function(text) said = said .. text end,
    })
    task.deadline("20s", function()
        while not said:find "export NCDEV_ADMIN=[^\n]*\n" do task.sleep "20ms" end
    end)
    for name, value in said:gmatch "export ([%w_]+)='([^']*)'\n" do sys.setenv(name, value) end
    self.bucket = s3.bucket(os.getenv "NC_BUCKET")
end

--- Removes all objects and unfinished uploads.
function Site:empty_bucket()
    for upload in self.bucket:uploads "" do self.bucket:abort_upload(upload.key, upload.upload_id) end
    for object in self.bucket:list "" do self.bucket:delete(object.key) end
end

--- Raises unless every file of the checkpoint lies below the prefix with its size.
function Site:check_bucket(prefix)
    local there = {}
    for object in self.bucket:list(prefix) do there[object.key:sub(#prefix + 1)] = object.size end
    for path, size in pairs(self.files) do
        if there[path] ~= size then
            error(("%s%s: %s bytes where %d are expected"):format(prefix, path, there[path] or "no", size), 0)
        end
    end
end

return site
