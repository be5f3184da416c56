local errors = require "nc.errors"

describe("errors", function()
    it("reads as a sentence and keeps its fields", function()
        local e = errors.new { code = "NoSuchKey", message = "GET s3://b/k: 404", op = "get", status = 404 }
        assert.equal("GET s3://b/k: 404", tostring(e))
        assert.equal(404, e.status)
        assert.is_false(e.retryable)
        assert.is_true(errors.is(e))
        assert.is_true(errors.is(e, "NoSuchKey"))
        assert.is_false(errors.is(e, "Timeout"))
        assert.is_false(errors.is("NoSuchKey", "NoSuchKey"))
    end)

    it("maps codes to the documented exit codes", function()
        local function code(c) return errors.exit_code(errors.new { code = c, message = c }) end
        assert.same({ 2, 3, 4, 5, 6, 126, 127, 1 }, {
            code "Usage", code "NoSuchBucket", code "ExpiredToken", code "ENOSPC", code "SomeFailed",
            code "CommandNotExecutable", code "CommandNotFound", code "ConnectFailed",
        })
        assert.equal(143, errors.exit_code(errors.new { code = "Cancelled", message = "m", signal = 15 }))
        assert.equal(1, errors.exit_code "a plain error")
    end)

    it("is what C raises too", function()
        local ok, e = pcall(require("nc.core.sys").readdir, "/no/such/folder")
        assert.is_false(ok)
        assert.is_true(errors.is(e, "ENOENT"))
        assert.equal("readdir /no/such/folder: No such file or directory", tostring(e))
        assert.equal(3, errors.exit_code(e))
    end)

    it("refuses an error without code or message, at the caller's line", function()
        local _, e = pcall(function() errors.new { code = "X" } end)
        assert.matches("errors_spec.lua:%d+: errors.new needs", e)
    end)

    it("suggests the nearest valid word", function()
        assert.equal('unknown parameter "modle" (did you mean "model"?); valid: model, to',
            errors.unknown("parameter", "modle", { "model", "to" }))
        assert.equal('unknown parameter "zzz"; valid: model, to',
            errors.unknown("parameter", "zzz", { "model", "to" }))
    end)

    it("refuses unknown options at the line of the caller's caller", function()
        local function open(options)
            options = errors.check_options(options, { "retries", "timeout" })
            return options
        end
        assert.same({}, open(nil))
        assert.same({ timeout = 1 }, open { timeout = 1 })
        local _, e = pcall(function() open { timout = 1 } end)
        assert.matches('errors_spec.lua:%d+: unknown option "timout" %(did you mean "timeout"%?%)', e)
    end)
end)
