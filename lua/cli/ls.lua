--- ncrun ls [-r] [PLACE]

local command = require "cli.command"
local disk    = require "nc.core.disk"
local errors  = require "nc.errors"
local output  = require "cli.output"
local s3      = require "nc.s3"
local shared  = require "cli.stores"
local stores  = require "nc.stores"
local sys     = require "nc.core.sys"
local units   = require "nc.units"

local params, flags = shared.options { "endpoint", "human", "profile", "recursive", "region", "summarize" }

local function date(seconds)
    return os.date("%Y-%m-%d %H:%M:%S", math.floor(seconds))
end

local function list_buckets(p)
    local buckets = s3.buckets(shared.reach(p))
    for _, b in ipairs(buckets) do
        output.line(date(b.created or 0) .. " " .. output.clean(b.name))
    end
end

-- The lines as `aws s3 ls` has them, and the count of what they show.
local function printer(p)
    local count, bytes = 0, 0
    local self = {}
    function self.folder(name)
        output.line((" "):rep(27) .. "PRE " .. output.clean(name))
        self.shown = true
    end
    function self.file(name, size, modified)
        count, bytes, self.shown = count + 1, bytes + size, true
        output.line(("%s %10s %s"):format(date(modified), p.human and units.format_size(size) or ("%d"):format(size),
            output.clean(name)))
    end
    function self.summary()
        output.line ""
        output.line(("Total Objects: %d"):format(count))
        output.line(("   Total Size: %s"):format(p.human and units.format_size(bytes) or ("%d"):format(bytes)))
    end
    return self
end

local function list_bucket(p, a, show)
    local bucket <close> = s3.bucket(a.bucket, shared.reach(p))
    local above = p.recursive and "" or a.key:match "^(.*/)[^/]*$" or ""
    for object in bucket:list(a.key, { delimiter = not p.recursive and "/" or nil }) do
        if object.prefix then
            show.folder(object.prefix:sub(#above + 1))
        else
            show.file(object.key:sub(#above + 1), object.size, object.modified or 0)
        end
    end
    -- An empty bucket is one that was found.
    if not show.shown and a.key ~= "" then
        error(errors.new { code = "NotFound", message = bucket:url(a.key) .. ": no key begins with that" }, 0)
    end
end

local function list_folder(p, path, show)
    local st = sys.stat(path)
    if not st then error(errors.new { code = "NotFound", message = path .. ": there is no such file or folder" }, 0) end
    if st.type ~= "directory" then return show.file(path, st.size, st.mtime) end
    if p.recursive then
        local store <close> = stores.open(path)
        for file in store:list() do show.file(file.path, file.size, file.modified) end
        return
    end
    local entries = disk.scan(path)
    for i = 1, #entries, 3 do
        local name, size, modified = table.unpack(entries, i, i + 2)
        if name:sub(-1) == "/" then show.folder(name) elseif size then show.file(name, size, modified) end
    end
end

local ls
ls = command {
    name = "ls",
    operands = "[-r] [s3://bucket/prefix]",
    summary = "List objects, or buckets.",
    text = [[
Prints what begins with the prefix, as `aws s3 ls` does: date (of this machine's time zone), bytes and
name, PRE for what has more below it. With -r every key, in full. Without a place: the buckets. A
folder's path lists that.

  ncrun ls s3://bucket/models/
  ncrun ls -r s3://bucket/ human=yes summarize=yes

Ends with 3 where no key begins with the prefix.]],
    params = params,
    flags = flags,
    run = function(p, operands)
        if #operands > 1 then ls:misuse "lists one place" end
        local address = operands[1]
        if not address or address:match "^[sS]3://$" then
            list_buckets(p)
        else
            local a, show = stores.parse(address), printer(p)
            if a.bucket then list_bucket(p, a, show) else list_folder(p, a.path, show) end
            if p.summarize then show.summary() end
        end
        output.finish()
        return 0
    end,
}

return ls
