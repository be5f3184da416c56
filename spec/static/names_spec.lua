-- How the static build finds an address by name: without NSS, as a pod's resolv.conf says.
local helper = require "spec.helper"

local OK <const> = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

-- Prints the answer's body or the error's code and sentence, and the seconds it took.
local GET <const> = [[
local http, sys = require "nc.http", require "nc.core.sys"
local start = sys.now()
local ok, answer = pcall(http.request, { url = ... })
print(ok and answer.body or answer.code .. ": " .. tostring(answer), sys.now() - start)
]]

-- A name server's address, of this file's own: two files may run at a time.
local net = ("127.%d.%d."):format(math.random(2, 254), math.random(254))

local function name_server(last, ...)
    local address = net .. last
    local child = helper.start { "spec/fixtures/name-server", address, ... }
    helper.eventually(20, "the name server " .. address, function()
        return child:stdout():find(address .. "\n", 1, true)
    end)
    return child
end

-- The queries that it got, each once, in the order in which they came first.
local function asked(server)
    local list, seen = {}, {}
    for query in server:stdout():gmatch "\n?([ut][dc]p [^\n]+)" do
        if not seen[query] then list[#list + 1] = query end
        seen[query] = true
    end
    return list
end

for _, image in ipairs { "in-empty", "in-hostile" } do
    describe("a name, " .. image, function()
        local web, port

        setup(function()
            web = helper.raw(OK)
            port = web.url:match "%d+$"
        end)
        teardown(function() local _ <close> = web end)

        -- Gets http://NAME:PORT/ where /etc has these files.
        local function get(name, etc)
            local folder = helper.tmp()
            for file, text in pairs(etc) do helper.write(("%s/etc/%s"):format(folder, file), text) end
            helper.write(folder .. "/get.lua", GET)
            local code, out, err = helper.run({ "spec/static/" .. image, folder .. "/get.lua",
                ("http://%s:%s/"):format(name, port) }, { env = { ETC = folder .. "/etc" } })
            assert.equal(0, code, err)
            local answer, seconds = out:match "^(.*)\t([%d.]+)\n$"
            return answer, tonumber(seconds)
        end

        local function resolv(options, ...)
            local lines = { "search default.svc.cluster.local svc.cluster.local cluster.local",
                "options ndots:5" .. options }
            for _, last in ipairs { ... } do lines[#lines + 1] = "nameserver " .. net .. last end
            return table.concat(lines, "\n") .. "\n"
        end

        it("is found in /etc/hosts, and nobody is asked", function()
            local dns <close> = name_server(1)
            assert.equal("ok", (get("store.local", { hosts = "127.0.0.1 store.local\n",
                ["resolv.conf"] = resolv("", 1) })))
            assert.same({}, asked(dns))
        end)

        it("of a service is completed by the search list, in its order", function()
            local dns <close> = name_server(1, "store.team.svc.cluster.local=127.0.0.1")
            assert.equal("ok", (get("store.team", { ["resolv.conf"] = resolv("", 1) })))
            local names = {}
            for _, query in ipairs(asked(dns)) do
                local name = query:match "^udp (%S+) A$"
                if name then names[#names + 1] = name end
            end
            assert.same({ "store.team.default.svc.cluster.local", "store.team.svc.cluster.local" }, names)
        end)

        it("of the world is asked as it is once the search list has nothing", function()
            local dns <close> = name_server(1, "s3.example.com=127.0.0.1")
            assert.equal("ok", (get("s3.example.com", { ["resolv.conf"] = resolv("", 1) })))
            assert.truthy(dns:stdout():find("udp s3.example.com.cluster.local A\n", 1, true))
        end)

        it("with an IPv6 address only is reached there", function()
            local six <close> = helper.raw(OK, "host=::1")
            local dns <close> = name_server(1, "six.svc.cluster.local=::1")
            local before = port
            port = six.url:match "%d+$"
            local answer = get("six", { ["resolv.conf"] = resolv("", 1) })
            port = before
            assert.equal("ok", answer)
            assert.truthy(dns:stdout():find("udp six.svc.cluster.local AAAA\n", 1, true))
        end)

        it("with 80 addresses, which fit no datagram, is asked for over TCP", function()
            local dns <close> = name_server(1, "many.svc.cluster.local=127.0.0.1" .. (",127.0.0.1"):rep(79))
            assert.equal("ok", (get("many", { ["resolv.conf"] = resolv("", 1) })))
            assert.truthy(dns:stdout():find("tcp many.svc.cluster.local A\n", 1, true))
        end)

        it("is reached at the address that answers", function()
            local dns <close> = name_server(1, "two.svc.cluster.local=127.1.1.1,127.0.0.1,127.1.1.2")
            assert.equal("ok", (get("two", { ["resolv.conf"] = resolv("", 1) })))
            assert.truthy(dns:stdout():find("udp two.svc.cluster.local A\n", 1, true))
        end)

        it("that does not exist is said so at once", function()
            local dns <close> = name_server(1)
            local answer, seconds = get("nowhere.example.com", { ["resolv.conf"] = resolv("", 1) })
            assert.truthy(answer:find("^DnsFailed: .*nowhere%.example%.com"), answer)
            assert.is_true(seconds < 2, answer)
            assert.truthy(dns:stdout():find("udp nowhere.example.com A\n", 1, true))
        end)

        it("takes under two seconds where the first name server is dead, the whole search list too", function()
            local dead <close> = name_server(1, "do=nothing")
            local dns <close> = name_server(2, "s3.example.com=127.0.0.1")
            local answer, seconds = get("s3.example.com", { ["resolv.conf"] = resolv(" timeout:5", 1, 2) })
            assert.equal("ok", answer)
            assert.is_true(seconds < 2, ("%.2f s"):format(seconds))
            assert.is_true(#asked(dead) > 0)
            assert.is_true(#asked(dns) > 0)
        end)

        it("is found by the second name server where nothing listens at the first, or it fails", function()
            local dns <close> = name_server(2, "store.svc.cluster.local=127.0.0.1")
            assert.equal("ok", (get("store", { ["resolv.conf"] = resolv("", 1, 2) })))
            local failing <close> = name_server(1, "do=fail")
            assert.equal("ok", (get("store", { ["resolv.conf"] = resolv("", 1, 2) })))
            assert.is_true(#asked(failing) > 0)
            assert.is_true(#asked(dns) > 0)
        end)
    end)
end
