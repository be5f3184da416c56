--- ncrun cp [-r] FROM TO

local command   = require "cli.command"
local errors    = require "nc.errors"
local files     = require "nc.files"
local output    = require "cli.output"
local s3        = require "nc.s3"
local shared    = require "cli.stores"
local stores    = require "nc.stores"
local streams   = require "nc.streams"
local sys       = require "nc.core.sys"
local transfers = require "cli.transfers"

local params, flags = shared.options { "recursive", table.unpack(transfers.OPTIONS) }
params.overwrite = {
    "yes", "what is there already: copied anew, kept, or copied where it has changed",
    choices = { "yes", "no", "changed" },
}
flags["--no-overwrite"] = "overwrite=no"

local cp

local function open_object(p, address)
    local a = stores.parse(address)
    if not a.bucket or a.key == "" or a.key:sub(-1) == "/" then
        cp:misuse("with - on the other side, " .. address .. " must be an object")
    end
    return s3.bucket(a.bucket, shared.reach(p)), a.key
end

local function from_stdin(p, to)
    local bucket <close>, key = open_object(p, to)
    streams.upload(streams.from_fd(0), bucket, key, p.part_size)
end

local function to_stdout(p, from)
    local bucket <close>, key = open_object(p, from)
    if not streams.download(bucket, key, output.write) then
        error(errors.new { code = "NotFound", message = bucket:url(key) .. ": there is no such object" }, 0)
    end
end

local function one_file(p, from, to)
    local print_line, what = transfers.printer(p), transfers.verb(from, to)
    local report, from_url, to_url = files.copy(from, to, {
        endpoint = p.endpoint, profile = p.profile, region = p.region,
        parallel = p.parallel, part_size = p.part_size, memory = p.memory, limit_rate = p.limit_rate,
        overwrite = p.overwrite,
        planned = p.dry_run and function(a, b) print_line(what, a, b) end,
    })
    if report.files > 0 then print_line(what, from_url, to_url) end
    output.finish()
    if not p.dry_run then transfers.summarize(report, from_url, to_url) end
end

cp = command {
    name = "cp",
    operands = "[-r] FROM TO",
    summary = "Copy files between buckets and folders.",
    text = [[
Copies one file, or with -r all that is below FROM into TO, as `aws s3 cp` does. Each of them is
s3://bucket/key or a path; one of them may be - for stdin or stdout.

  ncrun cp result.dat s3://bucket/output/            keeps its name
  ncrun cp s3://bucket/output/result.dat /scratch/r  gets another
  ncrun cp -r s3://bucket/data/ /scratch/data        all below data/; `sync` copies only what changed
  ncrun cp s3://bucket/logs/a.log - | less
  tar c . | ncrun cp - s3://bucket/backup.tar

Names that would leave TO, or lie over each other there, refuse the whole list before anything is
written, and so does a lack of space. Links in a folder are followed; sockets, pipes and devices are
skipped with a warning. A key that ends with / becomes a folder. A file is under its name when all of
it is there, and a copy that was stopped goes on from there.

Where FROM has a `.complete` manifest, every byte is checked against it, and the marker is written to
TO last of all.]],
    params = params,
    flags = flags,
    many = { "exclude", "include" },
    run = function(p, operands)
        local from, to = operands[1], operands[2]
        if #operands ~= 2 then cp:misuse "wants FROM and TO" end
        transfers.check(p)
        if from == "-" or to == "-" then
            if p.recursive then cp:misuse "- is one stream, no tree" end
            if from == to then cp:misuse "- on both sides copies nothing" end
            if from == "-" then from_stdin(p, to) else to_stdout(p, from) end
            return 0
        end
        local path = stores.parse(from).path
        local st = path and sys.stat(path)
        local is_tree = p.recursive and not (st and st.type ~= "directory")
        if st and st.type == "directory" and not p.recursive then cp:misuse(from .. " is a folder: add -r") end
        if is_tree then
            transfers.tree(p, from, to, { label = "copy", overwrite = p.overwrite })
        else
            one_file(p, from, to)
        end
        return 0
    end,
}

return cp
