--- Where an engine keeps what it compiles, so that the next start need not compile it again.
--
--     local compiled <close> = caches.open {
--         name = "inkling", image = "vllm_v1", nvme = "/mnt/nvme", volume = "/mnt/shared",
--     }
--     proc.supervise(command, { env = compiled:env() })
--
-- On the volume, where one is mounted that answers: it outlives the node. Else on the NVMe. On one that is NFS
-- compilers stall (thousands of small files, locks and renames), so there they work in a folder on the
-- NVMe: it is filled from the volume before the engine starts, and what is finished is copied back every
-- 15 s and at the end. Nothing here fails the engine; what goes wrong is said once.

local disk     = require "nc.core.disk"
local errors   = require "nc.errors"
local log      = require "nc.log"
local sys      = require "nc.core.sys"
local task     = require "nc.task"
local transfer = require "nc.transfer"
local units    = require "nc.units"
local volumes  = require "nc.volume"

local caches = {}

local OPTIONS <const> = { "every", "image", "name", "nvme", "patience", "volume" }
local SETTLED_S <const> = 2  -- a file that was not written to for so long is finished
local LAST_S <const> = 10    -- for the last copy

-- The variable of each cache -> its folder below ours.
local VARIABLES <const> = {
    AITER_JIT_DIR = "aiter", CCACHE_DIR = "ccache", HF_HOME = "hf", TORCHINDUCTOR_CACHE_DIR = "inductor",
    TRITON_CACHE_DIR = "triton", VLLM_CACHE_ROOT = "vllm", XDG_CACHE_HOME = "xdg",
}

-- What is no finished module: locks (a lock that is restored would be waited for, for ever), files under
-- their temporary names, and a build's own ledger.
local UNFINISHED <const> = {
    "^lock", "%.lock$", "^tmp%.", "%.tmp$", "%.tmp%.", "%.part$", "%.parts$", "%.o$", "^%.ninja", "^%.clock",
}

---@class nc.Caches
---@field folder string    where the engine compiles
---@field store string?    where it is kept, if that is elsewhere
local Caches = {}
Caches.__index = Caches

--- Whether a file of this path is one to keep. Pure.
---@return boolean
function caches.is_module(path)
    for part in path:gmatch "[^/]+" do
        for _, pattern in ipairs(UNFINISHED) do
            if part:find(pattern) then return false end
        end
    end
    return true
end

-- Calls found(path, stat) for each file worth keeping below a folder. What goes away meanwhile is
-- passed over.
local function walk(root, below, found)
    local ok, names = pcall(sys.readdir, root .. "/" .. below)
    for _, name in ipairs(ok and names or {}) do
        local path = below .. name
        local stat = caches.is_module(name) and sys.stat(root .. "/" .. path)
        if stat and stat.type == "directory" then
            walk(root, path .. "/", found)
        elseif stat and stat.type == "file" then
            found(path, stat)
        end
    end
end

local function stamp_of(folder, path)
    local there = disk.look(folder .. "/" .. path)
    return there and there.stamp
end

-- Copies files one way, a few at a time: neither memory nor the volume is ours alone. Returns the paths of
-- those that came; of the others, which may have changed or gone meanwhile, the reasons are said.
local function copy(from, to, files, label)
    if #files == 0 then return {} end
    sys.mkdir(to)
    local result = transfer.run {
        label = label, source = { kind = "dir", root = from }, sink = { kind = "dir", root = to }, files = files,
        memory = 64 << 20, parallel = 4,
    }
    local came = {}
    for i, f in ipairs(result.files) do came[i] = f.path end
    return came
end

-- Fills the working folder from the volume. What is restored is known, and need not go back.
local function restore(self)
    local files = {}
    walk(self.store, "", function(path, stat)
        local here = sys.stat(self.folder .. "/" .. path)
        if not here or here.size ~= stat.size then files[#files + 1] = { path = path, size = stat.size } end
    end)
    local came = copy(self.store, self.folder, files, "restore compiled modules")
    walk(self.folder, "", function(path)
        if sys.stat(self.store .. "/" .. path) then self.saved[path] = stamp_of(self.folder, path) end
    end)
    log.info(("%d compiled modules restored from %s"):format(#came, self.store))
end

-- Copies back what is new; all of it when settled is 0.
local function save(self, settled)
    local files, stamps, now = {}, {}, sys.time()
    walk(self.folder, "", function(path, stat)
        local stamp = stamp_of(self.folder, path)
        if stamp and stamp ~= self.saved[path] and now - stat.mtime >= settled then
            files[#files + 1] = { path = path, size = stat.size }
            stamps[path] = stamp
        end
    end)
    for _, path in ipairs(copy(self.folder, self.store, files, "keep compiled modules")) do
        self.saved[path] = stamps[path]
    end
end

-- fn(...), whose failure is said once for each reason.
local function try(self, what, fn, ...)
    local ok, e = pcall(fn, ...)
    if ok then return end
    if errors.is(e, "Cancelled") then error(e, 0) end
    local reason = errors.is(e) and e.code or tostring(e)
    if not self.said[reason] then log.warn(("%s: %s; the engine goes on without it"):format(what, tostring(e))) end
    self.said[reason] = true
end

-- The kind of the volume, where it can be used: an engine can't start in what can't be written. NFS that can only
-- be read still has modules to restore.
local function usable_kind(o)
    local kind = volumes.kind(o.volume)
    local why = kind and volumes.try(o.volume, o.patience or 30)
    if not why or (kind == "nfs" and why.code ~= "NoAnswer") then return kind end
    log.warn(("the volume at %s can't be used: %s; what is compiled stays on the NVMe"):format(o.volume, tostring(why)))
    return nil
end

--- Opens the caches of one engine image for one model, and restores what was compiled before.
---@param options { name: string, image: string, nvme: string, volume: string, every: (string|number)?,
---  patience: number? }  every: how often to copy back, where that is needed (15 s); patience: seconds that the
---  volume has for its answer (30)
---@return nc.Caches  `<close>` copies the rest
function caches.open(options)
    local o = errors.check_options(options, OPTIONS)
    local function below(root) return ("%s/cache/%s/%s"):format((root:gsub("/+$", "")), o.name, o.image) end
    local kind = usable_kind(o)
    local self = setmetatable({ saved = {}, said = {} }, Caches)
    self.folder = below(kind == "posix" and o.volume or o.nvme)
    self.store = kind == "nfs" and below(o.volume) or nil
    for _, name in pairs(VARIABLES) do sys.mkdir(self.folder .. "/" .. name) end
    if not self.store then
        log.info("compile caches in " .. self.folder)
        return self
    end
    log.info(("compile caches in %s, copied to %s every %s"):format(self.folder, self.store,
        units.format_duration(units.duration(o.every or "15s", 2))))
    try(self, "the compiled modules on the volume can't be restored", restore, self)
    self.worker = task.every(o.every or "15s", function()
        try(self, "the compiled modules can't be copied to the volume", save, self, SETTLED_S)
    end)
    return self
end

--- Variables that make an engine use them.
---@return table<string, string>
function Caches:env()
    local env = {}
    for name, folder in pairs(VARIABLES) do env[name] = self.folder .. "/" .. folder end
    return env
end

--- Seconds that closing may take.
---@return number
function Caches:share()
    return self.store and LAST_S or 0
end

function Caches:__close()
    if not self.worker then return end
    do
        local _ <close> = self.worker
    end
    try(self, "the last compiled modules can't be copied to the volume", task.deadline, LAST_S, save, self, 0)
end

return caches
