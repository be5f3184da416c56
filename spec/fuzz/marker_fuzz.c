/* Markers, which any tool may have written: they are read, or refused with an error object; one
 * that is accepted is written again as it was. */
#include "lua_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char target[] =
    "local errors, marker, owner = require 'nc.errors', require 'nc.marker', require 'nc.owner'\n"
    "local me = owner.here 'job'\n"
    "local function try(f, ...)\n"
    "    local ok, value = pcall(f, ...)\n"
    "    if not ok and not errors.is(value) then error(value, 0) end\n"
    "    return ok and value\n"
    "end\n"
    "return function(text)\n"
    "    local m = try(marker.decode_complete, text)\n"
    "    if m and not m.bare then\n"
    "        try(marker.check_paths, m.files)\n"
    "        local again = marker.decode_complete(marker.encode_complete(m))\n"
    "        assert(again.commit == m.commit and again.total_bytes == m.total_bytes)\n"
    "        for i, f in ipairs(m.files) do\n"
    "            local g = again.files[i]\n"
    "            assert(f.path == g.path and f.size == g.size and f.sha256 == g.sha256)\n"
    "        end\n"
    "    end\n"
    "    local s = marker.decode_staging(text)\n"
    "    owner.describe(s.owner)\n"
    "    owner.is_gone(s.owner, me, 100)\n"
    "    for path, f in pairs(s.done) do assert(path == f.path and f.sha256) end\n"
    "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_lua(target, data, size);
}
