local catalog = require "nc.catalog"
local errors  = require "nc.errors"
local models  = require "manifests.models"

local function refusal(...)
    local ok, e = pcall(catalog.find, ...)
    assert.is_false(ok)
    assert.is_true(errors.is(e, "Usage"), tostring(e))
    return tostring(e)
end

describe("catalog.find", function()
    it("knows every model of the list, for each vendor that has it", function()
        for _, name in ipairs(catalog.names()) do
            for _, vendor in ipairs { "nvidia", "amd" } do
                local entry = models[name][vendor] or models[name].any
                if entry then
                    assert.same({ name = name, repository = entry.repository }, catalog.find(name, vendor))
                end
            end
        end
    end)

    it("gives vendors their own variants", function()
        assert.not_equal(catalog.find("inkling", "nvidia").repository, catalog.find("inkling", "amd").repository)
        assert.same(catalog.find("kimi-k3", "nvidia"), catalog.find("kimi-k3", "amd"))
    end)

    it("takes owner/name as it is and calls the copy by the name, in lower case", function()
        assert.same({ name = "tiny-1.b_2", repository = "Acme/Tiny-1.B_2" }, catalog.find("Acme/Tiny-1.B_2", "nvidia"))
    end)

    it("refuses what is neither, and lists what there is", function()
        local message = refusal("inkli", "nvidia")
        assert.truthy(message:find('did you mean "inkling"', 1, true))
        assert.truthy(message:find("owner/name on the hub", 1, true))
        for _, model in ipairs { "", "a/b/c", "/b", "a/", "a/..", "../b", "a b/c", "a/b?c", "a/-b", "https://h/a/b" } do
            refusal(model, "nvidia")
        end
    end)

    it("refuses a vendor that has no variant", function()
        assert.truthy(refusal("inkling", "other"):find("vendor=other", 1, true))
    end)
end)

describe("the list of models", function()
    it("has names that are folders, and repositories", function()
        local names = catalog.names()
        assert.is_true(#names > 0)
        for i, name in ipairs(names) do
            assert.is_true(i == 1 or names[i - 1] < name)
            assert.truthy(name:match "^[%w][%w._-]*$", name)
            for _, variant in pairs(models[name]) do
                assert.truthy(variant.repository:match "^[%w][%w._-]*/[%w][%w._-]*$", variant.repository)
            end
        end
    end)
end)
