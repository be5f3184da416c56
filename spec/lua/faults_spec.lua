-- Every way in which tools like this one are known to fail with bytes, and the specs that show that this
-- one does not: a named spec that is gone leaves its fault unshown, which fails here.
local helper = require "spec.helper"

-- What must hold, and by file the beginnings of "describe: it" as the source has them.
local FAULTS <const> = {
    { "a 200 to CompleteMultipartUpload that holds an error, nothing or half a document is no success", {
        upload_faults = { "completing an upload: comes right after ", "completing an upload: has not happened while",
            "completing an upload: leaves no object of another size", "completing an upload: takes no older object" },
        bucket_copy = { "a copy inside a server: is not taken for done while a 200 says otherwise" },
    } },
    { "an upload that was completed, with its answer lost, is done", {
        upload_faults = { "an upload of an earlier run on : is done when it was completed and nobody heard of it",
            "completing an upload: starts the file over when its upload is gone" },
        rgw = { "on the Ceph gateway: such an upload is begun again by the engine" },
    } },
    { "no object is published without all of its parts", {
        upload_faults = { "completing an upload: is not even tried when a part has failed for good",
            "completing an upload: starts the file over when the server has lost a part",
            "completing an upload: publishes nothing when the server loses every part" },
    } },
    { "parts are planned within the limits, at every edge", {
        upload_faults = { "the parts of a file: are right at every edge",
            "the parts of a file: are never more than 10,000", "the parts of a file: are of 5 MiB at least" },
    } },
    { "uploads that were left behind are gone on with or aborted, those of others never", {
        large = { "a large stage: moves nothing twice after kill -9" },
        stage = { "staging a checkpoint: never aborts an upload that was there before it",
            "staging a checkpoint: tells a stranger's upload from its own",
            "staging a checkpoint: removes the upload whose beginning was answered too late",
            "staging a checkpoint: keeps its parts on SIGTERM" },
        bucket_copy = { "a copy inside a server: is begun again when the object changes once" },
    } },
    { "bodies are plain, without checksums that other servers refuse", {
        upload_faults = { "a body on its way up: is plain" },
    } },
    { "a body that is sent again is sent whole", {
        upload_faults = { "a body on its way up: is sent again from its start after ",
            "a body on its way up: is sent again where a redirect says" },
    } },
    { "a server that waited too long for a body gets it again", {
        upload_faults = { "a body on its way up: is sent again when the server had to wait too long for it" },
    } },
    { "connections that a server has closed, and refusals before the body was read, are understood", {
        upload_faults = { "a body on its way up: may be refused before it is read" },
        http = { "an HTTP request: does not count a connection that the server has closed" },
        s3_client = { "a client of S3: gives the server's reason for a refusal before the body is read" },
    } },
    { "503 is waited for on every verb and never taken for missing", {
        upload_faults = { "a bucket with troubles: is waited for when it answers 503",
            "a bucket with troubles: is not staged to a second time when the look at the marker answers 503" },
    } },
    { "credentials that expire on the way are renewed, or end the job soon with what to do", {
        upload_faults = { "credentials: that have expired end the job soon",
            "credentials: of a web identity are renewed" },
    } },
    { "a clock that is wrong is corrected by the server's", {
        upload_faults = { "a bucket with troubles: has another time of day" },
        s3_client = { "a client of S3: takes over the server's clock",
            "a client of S3: gives up where the clock can't be made to fit" },
    } },
    { "keys are the same on the wire and in the signature, whatever they hold", {
        s3 = { "a bucket on : takes keys as they are" },
        stage_faults = { "a name that the hub gives: may be anything that is a name" },
        bucket_copy = { "a copy inside : holds every byte" },
        rgw = { "on the Ceph gateway: keys with control characters" },
    } },
    { "what is sent is signed: ports, paths, either way of addressing", {
        s3_client = { "a client of S3: keeps the path of its endpoint, and signs for host and port" },
        s3 = { "a bucket on : is found with its name in the host", "a bucket on : is found below localhost" },
    } },
    { "the right region is taken from the server's answer, once", {
        s3_client = { "a client of S3: takes the region from the server's answer, once",
            "a client of S3: follows a bucket to its region", "a client of S3: ends when a server sends it round" },
    } },
    { "listings end, and are whole", {
        upload_faults = { "a bucket with troubles: may give no listing that ends" },
        s3 = { "a bucket on : lists 1000 objects in one page and 1001 in two" },
        hub = { "a model hub: ends a listing that goes round in circles" },
    } },
    { "names that would leave the target, or lie over each other, are refused with the whole list", {
        stage_faults = { "a name that the hub gives: is refused with the whole list where it is ",
            "a name that the hub gives: is refused with a NUL in it" },
        marker = { "marker.check_paths: refuses what would leave the folder",
            "marker.check_paths: refuses two files in one place" },
    } },
    { "proxies, CA bundles and blanks in settings are honoured or refused by name, and no secret is shown", {
        http = { "the environment of HTTP: sends requests by way of http_proxy",
            "the environment of HTTP: leaves the proxy out for hosts of NO_PROXY",
            "the environment of HTTP: falls through a CA file", "an HTTP request: shows no secret" },
        s3 = { "https on : names the CA file that does not exist", "a bucket on : trims what a Secret leaves",
            "a bucket on : refuses a wrong secret with the server's word and without showing one" },
        hub = { "a model hub: trims a token", "a model hub: refuses a token with a control character" },
    } },
    { "a body that is cut is never success", {
        download_faults = { "a file on its way down: comes whole in spite of ",
            "a file on its way down: is never taken for whole that is always cut" },
        pull = { "a pull: comes whole from a bucket in spite of " },
        http = { "an HTTP request: takes no body for whole that is cut" },
    } },
    { "an object that is replaced on the way is never mixed with what replaces it", {
        download_faults = { "an object that is read in parts: is begun again when it changes once",
            "an object that is read in parts: fails when it changes all the time",
            "an object that is read in parts: is not mixed with what replaces it on the way" },
        pull = { "a pull: notices by the ETag", "a pull: is never of two objects",
            "a pull: notices that a file is changed while it is read" },
        bucket_copy = { "a copy inside a server: is never half of one object and half of another" },
        rgw = { "a pull: notices a replaced object from the first range on" },
    } },
    { "what was half fetched is gone on with only where it is of the same content", {
        download_faults = { "a file on its way down: is never taken for right that always comes with " },
        resume = { "a pull that was killed with -9 in the middle: goes on where it was, from a bucket",
            "a pull that was killed with -9 in the middle: goes on where it was, from a folder",
            "what a run that is over has left half-written: is not gone on with for another version",
            "what a run that is over has left half-written: is looked at before it is believed",
            "what a run that is over has left half-written: counts no line of the journal that was cut short" },
        rgw = { "a pull: that was killed with -9 goes on where it was" },
    } },
    { "wrong bytes of the right size are noticed, fetched again, and then a failure without a marker", {
        download_faults = { "a file on its way down: is fetched once more, alone, when one bit was wrong" },
        pull = { "a pull: fetches one wrong part again, alone", "a pull: gives a part up that is wrong three times" },
        stage = { "staging a checkpoint: refuses a shard with one flipped byte by name, without a marker" },
    } },
    { "the manifest decides what has to be moved, not size, time or ETag", {
        stage_plan = { "the plan of a stage: moves what is of another revision though the size is the same",
            "the plan of a stage: does not take a small file of another content for known" },
    } },
    { "bytes are kept as they are stored, whatever Content-Encoding says", {
        http = { "an HTTP request: leaves the coding of a body as it is" },
        hub = { "a model hub: is not believed when it compresses" },
    } },
    { "a final name is complete or absent, whenever the program is killed", {
        resume = { "SIGKILL at 50 random points of a pull: never leaves part of a file under its name" },
        folder = { "a copy in a folder: never has part of a file under its name" },
        disk = { "a disk that fails: %s %s ends the pull, and nothing of it stays" },
    } },
    { "a full disk is noticed, wherever it is told, and ends everything with exit code 5", {
        disk = { "a full disk: is noticed before the first byte is on its way",
            "a full disk: is noticed when it is written to", "a full disk: is the same to us as a limit on the size of files",
            "a disk that fails: %s %s ends the pull, and nothing of it stays",
            "from a folder to a folder: a full disk is told by the kernel, too" },
        folder = { "a copy in a folder: ends with exit 5 and no temporary file where the disk is full" },
    } },
    { "what stalls is cut and tried again, and a job that moves nothing ends", {
        download_faults = { "a transfer where nothing moves: fails when its time is over",
            "a transfer where nothing moves: fails the same way when the bucket takes nothing" },
        http = { "an HTTP request: is cut where nothing moves", "an HTTP request: is cut where next to nothing moves",
            "an HTTP request: is cut where a handshake does not end" },
        heartbeat = { "a heartbeat: tells of bytes that moved, and stops when none does" },
    } },
    { "a page is never saved as a file", {
        hub = { "a model hub: is not believed when a page stands for the file" },
        download_faults = { "a file on its way down: is never taken for right that always comes with " },
    } },
    { "memory does not grow with files or lists", {
        memory = { "2 GiB: need no more than a memory cgroup of 256 MiB", "memory: of a pull of 1 GiB is within 10%",
            "memory: of a list that comes on the way does not grow" },
        large = { "a large stage: stays under 300 MiB for 4 GiB in 16 shards" },
    } },
    { "half a snapshot is no success", {
        stage_faults = { "a stage: has no marker when one file is not to be had",
            "a stage: has no marker when the hub fails in the middle" },
    } },
    { "refused, gated, absent and busy are told apart", {
        hub = { "a model hub: tells gated, refused and absent apart", "a model hub: says what is missing",
            "a model hub: is asked again after a 429", "a model hub: is asked again after a fault of its own" },
        stage_faults = { "a stage: waits as long as a 429 says" },
    } },
    { "an address that expires on the way is asked for again", {
        hub = { "a model hub: resolves again what has expired, and goes on" },
        stage_faults = { "a stage: goes on with new addresses when those of the CDN end" },
    } },
    { "a token goes to nobody but the one it is for", {
        hub = { "a model hub: gives what it redirects to without the token",
            "what is no model hub: may not send the token" },
        stage_faults = { "a stage: never gives the bucket or the CDN the hub's token" },
        s3_client = { "a client of S3: goes without a signature where another host has the bytes" },
    } },
    { "a stage is of one commit, though the branch moves", {
        stage_faults = { "a stage: stays at one commit when the branch moves" },
    } },
    { "a pointer is not taken for the weights it stands for", {
        download_faults = { "a file on its way down: is never taken for right that always comes with " },
        hub = { "a model hub: is not believed when a page stands for the file" },
    } },
}

-- "describe: it" of every spec in a file, each name up to where it is no literal any more.
local function names_in(path)
    local names, open = {}, {}
    for line in (helper.read(path) or ""):gmatch "[^\n]+" do
        local indent, what, rest = line:match "^( *)(%l+)%(+(.*)"
        local name = rest and (rest:match '^"([^"]*)"' or rest:match '^%a+ %.%. "([^"]*)"')
        if name and (what == "describe" or what == "it") then
            while #open > 0 and #open[#open].indent >= #indent do open[#open] = nil end
        end
        if name and what == "describe" then
            open[#open + 1] = { indent = indent, name = name }
        elseif name and what == "it" and #open > 0 then
            names[#names + 1] = open[#open].name .. ": " .. name
        end
    end
    return names
end

local function begins_any(names, beginning)
    for _, name in ipairs(names) do
        if name:sub(1, #beginning) == beginning then return true end
    end
    return false
end

describe("each known fault", function()
    local seen = {}

    local function specs_of(file)
        if not seen[file] then
            seen[file] = names_in("spec/e2e/" .. file .. "_spec.lua")
            if #seen[file] == 0 then seen[file] = names_in("spec/lua/" .. file .. "_spec.lua") end
        end
        return seen[file]
    end

    for number, fault in ipairs(FAULTS) do
        it(("%d has its spec: %s"):format(number, fault[1]), function()
            local missing, n = {}, 0
            for file, beginnings in pairs(fault[2]) do
                for _, beginning in ipairs(beginnings) do
                    n = n + 1
                    if not begins_any(specs_of(file), beginning) then
                        missing[#missing + 1] = file .. ": " .. beginning
                    end
                end
            end
            assert.same({}, missing)
            assert.is_true(n > 0)
        end)
    end

    it("is one of 35", function() assert.equal(35, #FAULTS) end)
end)

describe("a spec that is not there", function()
    it("is missed", function()
        assert.is_true(begins_any(names_in "spec/e2e/pull_spec.lua", "a pull: gives a part up"))
        assert.is_false(begins_any(names_in "spec/e2e/pull_spec.lua", "a pull: gives a part away"))
        assert.same({}, names_in "spec/e2e/no_such_spec.lua")
    end)
end)
