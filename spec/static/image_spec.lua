-- build/static/image: the static build as an OCI image.
local helper = require "spec.helper"
local json = require "dkjson"

local LAYOUT <const> = "build/static/image"

local function output_of(argv)
    local code, out, err = helper.run(argv)
    assert.equal(0, code, err)
    return out
end

local function blob(digest)
    return helper.read(LAYOUT .. "/blobs/sha256/" .. digest:match "^sha256:(%x+)$")
end

describe("the OCI image", function()
    it("is a layout whose blobs are what their names say", function()
        assert.equal("1.0.0", json.decode(helper.read(LAYOUT .. "/oci-layout")).imageLayoutVersion)
        local sums = output_of { "sh", "-c", "cd " .. LAYOUT .. "/blobs/sha256 && sha256sum *" }
        for sum, name in sums:gmatch "(%x+)  (%x+)\n" do assert.equal(name, sum) end
    end)

    it("runs the binary as a user that is nobody", function()
        local index = json.decode(helper.read(LAYOUT .. "/index.json"))
        assert.equal(1, #index.manifests)
        local manifest = json.decode(blob(index.manifests[1].digest))
        local config = json.decode(blob(manifest.config.digest))
        assert.same({ "/ncrun" }, config.config.Entrypoint)
        assert.equal("65532:65532", config.config.User)
        assert.equal("linux", config.os)
    end)

    it("holds the binary and /etc/passwd, and nothing else", function()
        local folder = helper.tmp() .. "/bundle"
        local tag = json.decode(helper.read(LAYOUT .. "/index.json")).manifests[1].annotations
            ["org.opencontainers.image.ref.name"]
        output_of { "umoci", "unpack", "--rootless", "--image", LAYOUT .. ":" .. tag, folder }
        assert.equal("etc/passwd\nncrun\n", output_of { "sh", "-c",
            "cd " .. folder .. "/rootfs && find . -type f -printf '%P\\n' | sort" })
        output_of { "cmp", folder .. "/rootfs/ncrun", "build/static/ncrun" }
    end)

    it("has the same digests when it is made again", function()
        local again = helper.tmp() .. "/image"
        local tag = json.decode(helper.read(LAYOUT .. "/index.json")).manifests[1].annotations
            ["org.opencontainers.image.ref.name"]
        output_of { "static/image", "build/static/ncrun", again, tag }
        output_of { "diff", "-r", LAYOUT, again }
    end)
end)
