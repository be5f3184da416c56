/* A page of the hub's tree, after a line that is its Link header. */
#include "lua_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char target[] =
    "local errors, hub, json = require 'nc.errors', require 'nc.hub', require 'nc.json'\n"
    "local marker, text = require 'nc.marker', require 'nc.core.text'\n"
    "local function try(f, ...)\n"
    "    local ok, value = pcall(f, ...)\n"
    "    if not ok and not errors.is(value) then error(value, 0) end\n"
    "    return ok and value\n"
    "end\n"
    "return function(input)\n"
    "    local link, page = input:match '^([^\\n]*)\\n?(.*)$'\n"
    "    local path = try(hub.next_page, link, 'https://hub.example')\n"
    "    assert(not path or path:sub(1, 1) == '/', path)\n"
    "    local ok, entries = pcall(json.decode, page)\n"
    "    local files = ok and try(hub.files_of, entries, 'list')\n"
    "    if not files then return end\n"
    "    for _, f in ipairs(files) do\n"
    "        assert(f.size >= 0 and (f.sha256 or f.blob))\n"
    "        text.glob('*.bin', f.path)\n"
    "    end\n"
    "    try(marker.check_paths, files)\n"
    "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_lua(target, data, size);
}
