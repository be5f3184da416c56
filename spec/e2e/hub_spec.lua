local helper   = require "spec.helper"
local errors   = require "nc.errors"
local hubs     = require "nc.hub"
local sys      = require "nc.core.sys"
local transfer = require "nc.transfer"

local REPOSITORY <const> = "owner/model"

-- A hub with one repository; over lfs_over bytes a file lies behind a redirect.
local function serve(files, options)
    local server = helper.server(helper.env({ lfs_over = 1000 }, options or {}))
    for path, text in pairs(files or { ["config.json"] = "{}", ["w/a.safetensors"] = ("a"):rep(5000) }) do
        helper.write(("%s/%s/%s"):format(server.hub, REPOSITORY, path), text)
    end
    return server
end

local function open(server, token)
    return hubs.open { endpoint = server.env.HF_ENDPOINT, token = token, getenv = function() end }
end

local function pin(server, token)
    return open(server, token):pin(REPOSITORY)
end

-- Fetches files and checks them, to keep none of them.
local function fetch(model, options)
    return transfer.run(helper.env({
        source = model:source(), sink = { kind = "none" }, files = model:files(), parallel = 4,
    }, options or {}))
end

local function failure(f, ...)
    local ok, e = pcall(f, ...)
    assert.is_false(ok, "it did not fail")
    assert.is_true(errors.is(e), tostring(e))
    return e
end

local function paths(files)
    local list = {}
    for i, f in ipairs(files) do list[i] = f.path end
    return list
end

local function blocks(n)
    local list = {}
    for i = 1, n do list[i] = ("%08d"):format(i):rep(128 * 1024) end -- 1 MiB each
    return table.concat(list)
end

describe("a model hub", function()
    it("pins a branch to its commit, and a commit to itself", function()
        local server <close> = serve()
        local model = pin(server)
        assert.are.equal(40, #model.commit)
        assert.are.equal(model.commit, open(server):pin(REPOSITORY, model.commit).commit)
    end)

    it("has a new commit as soon as a file has changed", function()
        local server <close> = serve()
        local before = pin(server).commit
        helper.write(("%s/%s/config.json"):format(server.hub, REPOSITORY), "[]") -- as large as before
        assert.are_not.equal(before, pin(server).commit)
    end)

    it("lists every page, with sizes and digests", function()
        local files = { [".gitattributes"] = "x", ["a/b/c/deep.txt"] = "deep", ["z ü+%.bin"] = ("z"):rep(2000) }
        for i = 1, 9 do files[("shard-%d"):format(i)] = ("s"):rep(1000 + i) end
        local server <close> = serve(files, { page = 2 })
        local list = pin(server):files()
        local expected = {}
        for path in pairs(files) do expected[#expected + 1] = path end
        table.sort(expected)
        assert.are.same(expected, paths(list))
        for _, f in ipairs(list) do
            assert.are.equal(#files[f.path], f.size)
            assert.is_true((f.sha256 ~= nil) ~= (f.blob ~= nil))
            assert.are.equal(f.size > 1000, f.sha256 ~= nil)
        end
        assert.is_true(server:counters().hub.ops.Tree.requests > 5)
        assert.are.equal(#expected, #fetch(pin(server)).files)
    end)

    it("leaves out what is not allowed or is ignored", function()
        local server <close> = serve {
            ["a.json"] = "1", ["a.bin"] = "2", ["sub/b.json"] = "3", ["sub/original/c.json"] = "4",
        }
        local model = pin(server)
        assert.are.same({ "a.json", "sub/b.json", "sub/original/c.json" }, paths(model:files { allow = { "*.json" } }))
        local list = model:files { allow = { "*.json" }, ignore = { "*original/*" } }
        assert.are.same({ "a.json", "sub/b.json" }, paths(list))
        assert.are.same({}, paths(model:files { allow = { "*.gguf" } }))
    end)

    it("gives what it redirects to without the token", function()
        local server <close> = serve(nil, { hf_token = "hf_right" })
        local result = fetch(pin(server, "hf_right"))
        assert.are.equal(2, #result.files)
        local counters = server:counters()
        assert.are.equal(0, counters.auth_leaks)
        assert.are.equal(1, counters.cdn.requests)
    end)

    it("resolves a file once for all its parts", function()
        local server <close> = serve({ big = blocks(24) })
        assert.are.equal(1, #fetch(pin(server), { part_size = 5 << 20, parallel = 2 }).files)
        local counters = server:counters()
        assert.are.equal(5, counters.cdn.requests)
        assert.is_true(counters.hub.ops.Resolve.requests <= 2)
    end)

    it("resolves again what has expired, and goes on", function()
        local server <close> = serve({ big = blocks(24) }, { faults = { "GET * side=cdn nth=3 expire" } })
        local result = fetch(pin(server), { part_size = 5 << 20, parallel = 2 })
        assert.are.equal(1, #result.files)
        assert.are.equal(6, server:counters().cdn.requests)
    end)

    it("gives up on an address that is refused again and again", function()
        local server <close> = serve(nil, { faults = { "GET * side=cdn expire" } })
        local e = failure(fetch, pin(server))
        assert.are.equal("AccessDenied", e.code)
        assert.is_truthy(tostring(e):find "signed")
        assert.is_true(server:counters().cdn.requests <= 12)
    end)

    it("follows a repository that has moved, with the token", function()
        local server <close> = serve(nil, { hf_token = "hf_right" })
        helper.write(server.hub .. "/old/name/.moved", REPOSITORY)
        local model = open(server, "hf_right"):pin "old/name"
        assert.are.equal(pin(server, "hf_right").commit, model.commit)
    end)

    it("says what is missing: the repository, the revision or the file", function()
        local server <close> = serve()
        local e = failure(open(server).pin, open(server), "owner/none")
        assert.are.equal("RepoNotFound", e.code)
        assert.are.equal(3, errors.exit_code(e))
        assert.is_truthy(tostring(e):find "HF_TOKEN") -- it may be a private one
        e = failure(open(server).pin, open(server, "hf_any"), "owner/none")
        assert.are.equal("RepoNotFound", e.code)
        assert.are.equal(404, e.status)
        e = failure(open(server).pin, open(server), REPOSITORY, "v9")
        assert.are.equal("RevisionNotFound", e.code)
        assert.are.equal(3, errors.exit_code(e))
        assert.is_truthy(tostring(e):find "revision=")
        local files = { { path = "config.json", size = 2 }, { path = "none.json", size = 2 } }
        local result = fetch(pin(server), { files = files })
        assert.are.same({ "none.json" }, paths(result.failed))
        assert.are.equal("EntryNotFound", result.failed[1].error.code)
        assert.are.same({ "config.json" }, paths(result.files))
    end)

    it("refuses what is no name of a repository before asking anybody", function()
        for _, name in ipairs { "", "x", "a/b/c", "../x", "a/..", "a b/c", "a/b?x", "/a", "a/" } do
            local hub = hubs.open { endpoint = "http://127.0.0.1:9", getenv = function() end }
            assert.are.equal("Usage", failure(hub.pin, hub, name).code)
        end
    end)

    it("tells gated, refused and absent apart, at once", function()
        local server <close> = serve()
        helper.write(server.hub .. "/owner/gated/.gated", "")
        for _, token in ipairs { false, "hf_any" } do
            local e = failure(open(server).pin, open(server, token or nil), "owner/gated")
            assert.are.equal("GatedRepo", e.code)
            assert.are.equal(4, errors.exit_code(e))
        end
        for status, code in pairs { [401] = "Unauthorized", [403] = "AccessDenied", [404] = "NotFound" } do
            server:reset()
            server:faults { ("GET * side=hub status=%d"):format(status) }
            local e = failure(pin, server)
            assert.are.equal(code, e.code)
            assert.are.equal(status, e.status)
            assert.is_false(e.retryable)
            assert.are.equal(status == 404 and 3 or 4, errors.exit_code(e))
            assert.are.equal(1, server:counters().hub.requests)
        end
    end)

    it("stops a transfer whose token was taken away", function()
        local server <close> = serve({ big = blocks(24) }, { faults = { "GET * op=Resolve expired-token" } })
        local e = failure(fetch, pin(server))
        assert.are.equal("Unauthorized", e.code)
        assert.is_truthy(tostring(e):find "HF_TOKEN")
    end)

    it("refuses a wrong token without showing it", function()
        local server <close> = serve(nil, { hf_token = "hf_right" })
        local e = failure(pin, server, "hf_quite_wrong")
        assert.are.equal("Unauthorized", e.code)
        assert.is_nil(tostring(e):find "quite_wrong")
    end)

    it("trims a token, wherever it comes from", function()
        local server <close> = serve(nil, { hf_token = "hf_right" })
        assert.are.equal(40, #pin(server, " hf_right\r\n").commit)
        local folder = helper.tmp()
        helper.write(folder .. "/token", "hf_right\n")
        local sources = {
            { HF_TOKEN = "\thf_right\n" }, { HF_TOKEN = " ", HUGGING_FACE_HUB_TOKEN = "hf_right" },
            { HF_TOKEN_PATH = folder .. "/token" }, { HF_HOME = folder },
        }
        for _, env in ipairs(sources) do
            env.HF_ENDPOINT = server.env.HF_ENDPOINT .. "/\n"
            local hub = hubs.open { getenv = function(name) return env[name] end }
            assert.are.equal(40, #hub:pin(REPOSITORY).commit)
        end
    end)

    it("refuses a token with a control character inside, by name and without showing it", function()
        local folder = helper.tmp()
        helper.write(folder .. "/token", "hf_top\nsecret")
        for name, env in pairs {
            HF_TOKEN = { HF_TOKEN = "hf_top\r\nsecret: x" }, [folder .. "/token"] = { HF_HOME = folder },
        } do
            local e = failure(hubs.open, { getenv = function(n) return env[n] end })
            assert.is_truthy(tostring(e):find(name, 1, true))
            assert.is_nil(tostring(e):find "hf_top")
            assert.is_nil(tostring(e):find "secret")
        end
    end)

    it("is asked again after a 429, when it said", function()
        local server <close> = serve(nil, { faults = { "GET * side=hub nth=1 status=429::2" } })
        local began = sys.now()
        assert.are.equal(40, #pin(server).commit)
        assert.is_true(sys.now() - began >= 1.9)
    end)

    it("is asked again after a fault of its own, for a while", function()
        for _, status in ipairs { 500, 502, 503, 504 } do
            local server <close> = serve(nil, { faults = { ("GET * side=hub nth=1-2 status=%d"):format(status) } })
            assert.are.equal(2, #fetch(pin(server)).files)
        end
        local server <close> = serve(nil, { faults = { "GET * side=hub status=503" } })
        local e = failure(pin, server)
        assert.are.equal(503, e.status)
        assert.are.equal(1, errors.exit_code(e))
        assert.is_true(server:counters().hub.requests <= 5)
    end)

    it("may fail now and then on either side", function()
        local server <close> = serve({ big = blocks(24), small = "x" }, { faults = {
            "GET * side=cdn p=0.2 seed=7 status=503", "GET * op=Resolve nth=1 status=500",
        } })
        assert.are.equal(2, #fetch(pin(server), { part_size = 5 << 20 }).files)
    end)

    it("is not believed when a page stands for the file", function()
        for _, fault in ipairs { "login-page", "pointer" } do
            local server <close> = serve(nil, { faults = {
                "GET * side=cdn " .. fault, "GET * op=Resolve " .. fault,
            } })
            local result = fetch(pin(server))
            assert.are.equal(0, #result.files)
            assert.are.equal(2, #result.failed)
        end
    end)

    it("is not believed when it ignores the range or sends another", function()
        for _, fault in ipairs { "ignore-range", "wrong-range" } do
            local server <close> = serve({ big = blocks(11) })
            local model, files = pin(server), pin(server):files()
            server:faults { "GET * side=cdn nth=2 " .. fault }
            assert.are.equal(1, #fetch(model, { files = files, part_size = 5 << 20 }).files)
            server:faults { "GET * side=cdn " .. fault }
            assert.are.same({ "big" }, paths(fetch(model, { files = files, part_size = 5 << 20 }).failed))
        end
    end)

    it("is not believed when it compresses", function()
        local server <close> = serve(nil, { faults = { "GET * side=cdn gzip", "GET * op=Resolve gzip" } })
        assert.are.equal(2, #fetch(pin(server)).files) -- the bytes are those that are stored
    end)

    it("ends a listing that goes round in circles", function()
        local faults <const> = { "GET * op=Tree same-token" }
        local server <close> = serve({ a = "1", b = "2", c = "3" }, { page = 1, faults = faults })
        local e = failure(function() return pin(server):files() end)
        assert.are.equal("HubError", e.code)
        assert.is_true(server:counters().hub.ops.Tree.requests <= 3)
    end)
end)

-- What speaks HTTP but not the hub's protocol.
local function json(text, header)
    return ("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s"):format(header or "", #text, text)
end

local function opened(server)
    return hubs.open { endpoint = server.url, token = "hf_token_of_mine", getenv = function() end }
end

describe("what is no model hub", function()
    local PINNED <const> = json('{"sha":"' .. ("a"):rep(40) .. '"}')

    it("is named as such", function()
        for _, answer in ipairs { "<html>", "", "[", "42", '{"sha":"main"}', '{"sha":5}', "{}" } do
            local server <close> = helper.raw(json(answer))
            local e = failure(opened(server).pin, opened(server), REPOSITORY)
            assert.are.equal("HubError", e.code)
        end
    end)

    it("may not send the token round in circles", function()
        local server <close> = helper.raw "HTTP/1.1 302 X\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"
        assert.are.equal("TooManyRedirects", failure(opened(server).pin, opened(server), REPOSITORY).code)
    end)

    it("may not send the token elsewhere", function()
        local other <close> = helper.raw(PINNED)
        local server <close> = helper.raw(
            "HTTP/1.1 307 X\r\nContent-Length: 0\r\nLocation: " .. other.url .. "/x\r\n\r\n")
        pcall(opened(server).pin, opened(server), REPOSITORY)
        assert.is_truthy(server.asked():find("hf_token_of_mine", 1, true))
        assert.is_nil(other.asked():find("hf_token_of_mine", 1, true))
        assert.is_nil(other.asked():lower():find("authorization", 1, true))
    end)

    it("may not continue a listing on another host", function()
        local other <close> = helper.raw(json "[]")
        local link = ('Link: <%s/api>; rel="next"\r\n'):format(other.url)
        local server <close> = helper.raw { PINNED, json("[]", link) }
        local e = failure(function() return opened(server):pin(REPOSITORY):files() end)
        assert.is_truthy(tostring(e):find "another host")
        assert.are.equal("", other.asked())
    end)

    it("may not list files without path, size or digest", function()
        for _, entry in ipairs {
            '{"type":"file","path":"x","size":1}', '{"type":"file","size":1,"oid":"' .. ("a"):rep(40) .. '"}',
            '{"type":"file","path":"x","size":-1,"oid":"' .. ("a"):rep(40) .. '"}',
            '{"type":"file","path":"x","size":1,"lfs":{"oid":"zz","size":1}}', "5", "null",
        } do
            local server <close> = helper.raw { PINNED, json("[" .. entry .. "]") }
            assert.are.equal("HubError", failure(function()
                return opened(server):pin(REPOSITORY):files()
            end).code, entry)
        end
    end)
end)
