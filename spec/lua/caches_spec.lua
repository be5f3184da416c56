local caches  = require "nc.caches"
local engines = require "nc.engine"
local errors  = require "nc.errors"
local rows    = require "manifests.engines"

describe("caches.is_module", function()
    it("takes what a compiler has finished", function()
        for _, path in ipairs {
            "aiter/module_moe.so", "triton/ABC123/kernel.cubin", "triton/ABC/kernel.json",
            "vllm/torch_compile_cache/a.py", "inductor/fxgraph/xy/block", "xdg/sglang/clocks.bin",
        } do assert.is_true(caches.is_module(path), path) end
    end)

    it("passes over locks, temporary names and a build's own ledger", function()
        for _, path in ipairs {
            "aiter/lock_module_moe", "lock", "triton/tmp.pid_12_ab/kernel.cubin", "inductor/locks/x.lock", "a.tmp",
            "a.tmp.123", "b/x.o", "b/.ninja_log", "a.so.0123abcd.part",
        } do assert.is_false(caches.is_module(path), path) end
    end)
end)

describe("an engine", function()
    it("is found for each model and vendor there is, with an image that has a tag", function()
        for model, vendors in pairs(rows) do
            for vendor in pairs(vendors) do
                local engine = engines.find(model, vendor)
                assert.truthy(engine.image:find ":[%w._-]+$", engine.image)
                assert.truthy(math.type(engine.port) == "integer")
                local words = table.concat(engine:command "/nvme/models/x", " ")
                assert.truthy(words:find("/nvme/models/x", 1, true), words)
                assert.is_nil(words:find("{", 1, true))
                assert.truthy(words:find(("--port %d"):format(engine.port), 1, true), words)
                assert.is_nil(engine:cache_name():find "[^%w._-]")
            end
        end
    end)

    it("is asked for where none is known", function()
        local ok, e = pcall(engines.find, "owner/name", "amd")
        assert.is_false(ok)
        assert.is_true(errors.is(e, "Usage"))
        assert.same({ "serve", "/dir" }, engines.custom({ "serve", "{dir}" }):command "/dir")
    end)
end)
