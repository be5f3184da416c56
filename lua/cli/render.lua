--- ncrun render: the catalog of manifests with its pages, or the manifest of one script.

local catalog  = require "manifests.catalog"
local cluster  = require "manifests.cluster"
local elf      = require "nc.elf"
local errors   = require "nc.errors"
local lint     = require "nc.k8s.lint"
local log      = require "nc.log"
local manifest = require "nc.manifest"
local pages    = require "manifests.pages"
local scripts  = require "cli.scripts"
local sys      = require "nc.core.sys"
local text     = require "nc.core.text"
local yaml     = require "nc.yaml"

local render = {}

local HELP <const> = [[
ncrun render [only=NAME,...] [out=first-job]     the catalog: manifests, pages, recipes, ncrun, SHA256SUMS
ncrun render SCRIPT [name=my-job] [name=value ...] [-- command ...]     one manifest, from any script
ncrun render ... stdout                          prints it
ncrun render ... --check                         looks for mistakes and writes nothing
ncrun render --check FILE.yaml ...               the same for manifests that are there, edited ones say

A recipe says itself which Kubernetes objects run it (its `manifest`); around a script that doesn't, a Job
is put. name=value after a script are its own parameters, for the pod. Files are rewritten only when they
changed. A mistake that kubectl would not see ends it with 1 and is named by its path.

Options:
  out=FOLDER         where to (default first-job; for a script .)
  only=NAME,...      these of the catalog, and no pages
  name=NAME          a script's manifest: what its objects are called (default the script's name)
  namespace=NAME     where the objects go (default as the recipe says)
  image=IMAGE        in place of the recipe's own
  base=ADDRESS       where pods fetch ncrun-<machine>: the address of the folder that holds the manifests
  binary=PATH,...    the static ncrun to publish, one for each machine type (default: this one, else
                     build/static/ncrun); its SHA-256 goes into each manifest
  delivery=fetch     ... or delivery=image, or delivery=IMAGE: an init container brings ncrun from there]]

local OPTIONS <const> = { "base", "binary", "delivery", "image", "name", "namespace", "only", "out" }

-- ---- words ----

local function read_words(args)
    local o = { rest = {}, manifests = {} }
    for i, word in ipairs(args) do
        if word == "--" then
            table.move(args, i, #args, #o.rest + 1, o.rest)
            break
        end
        local name, value = word:match "^(%w+)=(.*)$"
        local ours = false
        for _, option in ipairs(OPTIONS) do ours = ours or option == name end
        if word == "stdout" then
            o.stdout = true
        elseif word == "check" or word == "--check" then
            o.check = true
        elseif ours then
            o[name] = value
        elseif word:find "%.ya?ml$" and not word:find "=" then
            table.insert(o.manifests, word)
        elseif not word:find "=" and not o.script then
            o.script = word
        else
            o.rest[#o.rest + 1] = word
        end
    end
    if #o.manifests > 0 and not o.check then
        error(errors.usage("%s is a manifest already; --check looks for mistakes in it", o.manifests[1]), 0)
    end
    if not o.script and #o.rest > 0 then
        error(errors.usage("%s", errors.unknown("option", o.rest[1]:match "^[^=]*", OPTIONS)), 0)
    end
    return o
end

-- ---- ncrun itself ----

local function read_file(path)
    local f <close> = io.open(path, "rb")
    return f and f:read "a"
end

-- The programs that pods are to fetch: machine -> bytes. This very one where it runs anywhere, else what
-- `make static` has built.
local function binaries(o)
    local paths = {}
    for path in (o.binary or ""):gmatch "[^,]+" do paths[#paths + 1] = path end
    if #paths == 0 then
        local head <close> = io.open("/proc/self/exe", "rb")
        local self = head and elf.read(head:read(4096) or "")
        paths[1] = self and self.static and "/proc/self/exe" or "build/static/ncrun"
    end
    local found = {}
    for _, path in ipairs(paths) do
        local bytes = read_file(path)
        local built = bytes and elf.read(bytes)
        if not (built and built.machine) then
            error(errors.usage("pods fetch a static ncrun and check its SHA-256, but %s is %s: `make static` builds "
                .. "it; or say binary=PATH, or delivery=image", path,
                bytes and "no Linux program" or "not there"), 0)
        end
        found[built.machine] = bytes
    end
    return found
end

-- What all manifests of one call share.
local function settings(o)
    local s = { base = (o.base or cluster.base):gsub("/+$", ""), image = o.image, namespace = o.namespace,
                sums = {}, binaries = {} }
    if o.delivery and o.delivery ~= "fetch" then
        s.delivery_image = o.delivery == "image" and cluster.images.ncrun or o.delivery
    else
        s.binaries = binaries(o)
    end
    for machine, bytes in pairs(s.binaries) do s.sums[machine] = text.sha256(bytes) end
    return s
end

-- ---- manifests ----

-- What a script returns, where that is a recipe; what is none works as it loads: not here.
local function load_recipe(script)
    return script.text:find("nc.recipe", 1, true) and scripts.load(script)() or nil
end

local function with(settings_, more)
    local o = {}
    for k, v in pairs(settings_) do o[k] = v end
    for k, v in pairs(more) do o[k] = v end
    return o
end

local function words_of(params)
    local words = {}
    for name, value in pairs(params) do words[#words + 1] = name .. "=" .. value end
    table.sort(words)
    return words
end

local function known_names()
    local names = {}
    for i, row in ipairs(catalog) do names[i] = row[1] end
    return names
end

-- The rows that only= picks: names with or without .yaml, separated by commas.
local function chosen(only)
    if not only then return catalog end
    local rows = {}
    for name in only:gmatch "[^,%s]+" do
        name = name:gsub("%.yaml$", "")
        local found
        for _, row in ipairs(catalog) do
            if row[1] == name then found = row end
        end
        if not found then error(errors.usage("%s", errors.unknown("manifest", name, known_names())), 0) end
        rows[#rows + 1] = found
    end
    return rows
end

local function build_catalog(o, s)
    local list, loaded = {}, {}
    for i, row in ipairs(chosen(o.only)) do
        local name = ("recipes/%s.lua"):format(row[2])
        local script = { name = name, text = assert(sys.embedded(name), name) }
        loaded[name] = loaded[name] or load_recipe(script)
        list[i] = manifest.build(script, loaded[name], words_of(row[3]),
            with(s, { file = row[1] .. ".yaml", name = row.name }))
        list[i].row = row
    end
    return list
end

local function build_custom(o, s)
    local script = scripts.find(o.script)
    local name = o.name or script.name:match("([^/]*)$"):gsub("%.lua$", "")
    return { manifest.build(script, load_recipe(script), o.rest, with(s, { file = name .. ".yaml", name = name })) }
end

-- ---- files ----

-- Writes what differs from what is there. Returns whether it did.
local function write(path, bytes)
    if read_file(path) == bytes then return false end
    local temp = path .. ".part"
    local f, why = io.open(temp, "wb")
    local ok = f
    if f then
        ok, why = f:write(bytes)
        local closed, also = f:close()
        if ok and not closed then ok, why = nil, also end
    end
    if ok then ok, why = os.rename(temp, path) end
    if not ok then
        os.remove(temp)
        error(errors.new { code = "Failed", message = ("write %s: %s"):format(path, why) }, 0)
    end
    return true
end

-- Everything of the catalog by file name.
local function catalog_files(list, s)
    local files, known = {}, {}
    for _, m in ipairs(list) do files[m.file] = m.text end
    for _, name in ipairs(scripts.embedded()) do files[name:match "[^/]*$"] = sys.embedded(name) end
    for machine, bytes in pairs(s.binaries) do
        files["ncrun-" .. machine], known["ncrun-" .. machine] = bytes, s.sums[machine]
    end
    files["index.html"] = pages.index(list, s)
    files["FIRST-JOB.md"] = pages.first_job(list, s)
    files["getting-started.html"] = pages.getting_started(list, s)
    local names = {}
    for name in pairs(files) do names[#names + 1] = name end
    table.sort(names)
    local sums = {}
    for i, name in ipairs(names) do
        sums[i] = ("%s  %s\n"):format(known[name] or text.sha256(files[name]), name)
    end
    files.SHA256SUMS = table.concat(sums)
    table.insert(names, "SHA256SUMS")
    return files, names
end

-- What is in the folder but not of the catalog: of a recipe that is no more, or of somebody else.
local function warn_of_stale(folder, files)
    for _, name in ipairs(sys.readdir(folder)) do
        if not files[name] then
            log.warn(("%s/%s is not of this catalog; remove it if a recipe left it there"):format(folder, name))
        end
    end
end

local function write_all(folder, files, names)
    sys.mkdir(folder)
    local written = 0
    for _, name in ipairs(names) do
        if write(folder .. "/" .. name, files[name]) then
            written = written + 1
            log.info("wrote " .. folder .. "/" .. name)
        end
    end
    return written
end

-- ---- the command ----

-- A literal block can't hold tabs, blanks at the end of a line or carriage returns.
local function warn_of_unreadable(list)
    local said = {}
    for _, m in ipairs(list) do
        for _, object in ipairs(m.objects) do
            for name, value in pairs(object.kind == "ConfigMap" and object.data or {}) do
                local bad = value:find "[\t\r]" or value:find " \n"
                if bad and not said[name] then
                    said[name] = true
                    local _, line = value:sub(1, bad):gsub("\n", "")
                    log.warn(("%s line %d has a tab, a carriage return or a blank at its end: in the manifest it "
                        .. "is one long quoted line"):format(name, line + 1))
                end
            end
        end
    end
end

local function refuse_findings(list)
    local lines = {}
    for _, m in ipairs(list) do
        for _, finding in ipairs(m.findings) do
            lines[#lines + 1] = ("%s: %s: %s"):format(m.file, finding.path, finding.message)
        end
    end
    if #lines == 0 then return end
    error(errors.new {
        code = "BadManifest",
        message = ("%d mistakes, and nothing was written:\n  %s"):format(#lines, table.concat(lines, "\n  ")),
    }, 0)
end

local function check_files(paths)
    local list = {}
    for i, path in ipairs(paths) do
        local bytes = read_file(path)
        if not bytes then
            error(errors.new { code = "NotFound", message = ("read %s: it is not there"):format(path) }, 0)
        end
        local ok, objects = pcall(yaml.decode_all, bytes)
        if not ok then error(errors.new { code = "BadManifest", message = path .. ": " .. tostring(objects) }, 0) end
        list[i] = { file = path, objects = objects, findings = lint.check(objects) }
    end
    refuse_findings(list)
    log.info(("%d manifests, no mistakes"):format(#list))
    return 0
end

--- What `ncrun help render` prints.
---@return string
function render.describe()
    return HELP
end

---@param args string[]
function render.run(args)
    local o = read_words(args)
    if #o.manifests > 0 then return check_files(o.manifests) end
    if o.name and not o.script then
        error(errors.usage "name= is for a script's own manifest; only= picks one of the catalog", 0)
    end
    local s = settings(o)
    local list = o.script and build_custom(o, s) or build_catalog(o, s)
    refuse_findings(list)
    warn_of_unreadable(list)
    if o.check then
        log.info(("%d manifests, no mistakes"):format(#list))
    elseif o.stdout then
        for i, m in ipairs(list) do io.write(i > 1 and "---\n" or "", m.text) end
    elseif o.script or o.only then
        local files, names = {}, {}
        for i, m in ipairs(list) do files[m.file], names[i] = m.text, m.file end
        write_all(o.out or o.script and "." or "first-job", files, names)
    else
        local folder = o.out or "first-job"
        local files, names = catalog_files(list, s)
        local written = write_all(folder, files, names)
        warn_of_stale(folder, files)
        log.info(("%s: %d files, %d of them new or changed"):format(folder, #names, written))
    end
    return 0
end

return render
