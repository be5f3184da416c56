--- ncrun sync FROM TO

local command   = require "cli.command"
local shared    = require "cli.stores"
local stores    = require "nc.stores"
local sys       = require "nc.core.sys"
local transfers = require "cli.transfers"

local params, flags = shared.options(transfers.OPTIONS)
params.delete = { false, "remove what is only in TO, once all files are there" }
flags["--delete"] = "delete=yes"

local sync
sync = command {
    name = "sync",
    operands = "FROM TO",
    summary = "Copy what is new or has changed.",
    text = [[
Copies all that is below FROM into TO, but for the files that are there already. Both are
s3://bucket/prefix or a folder.

  ncrun sync s3://bucket/data/ /scratch/data
  ncrun sync ./results s3://bucket/results/ --exclude "*.tmp"
  ncrun sync ./site s3://bucket/site/ delete=yes

A file is there already when both sides have a `.complete` manifest that gives it the same digest;
where they don't, when it has the same size and either the same ETag (two buckets) or a time that is
not before that of the file in FROM. A file of the same size whose time went backwards is not noticed:
`ncrun cp -r` copies everything.

delete=yes removes after the last file was copied, and nothing where one has failed or FROM is empty.
What exclude= leaves out is neither copied nor removed.]],
    params = params,
    flags = flags,
    many = { "exclude", "include" },
    run = function(p, operands)
        if #operands ~= 2 then sync:misuse "wants FROM and TO" end
        for _, address in ipairs(operands) do
            local path = stores.parse(address).path
            local st = path and sys.stat(path)
            if st and st.type ~= "directory" then sync:misuse(address .. " is no folder: cp copies one file") end
        end
        transfers.check(p)
        transfers.tree(p, operands[1], operands[2], { label = "sync", overwrite = "changed", delete = p.delete })
        return 0
    end,
}

return sync
