/* The kernel's table of mounts: whatever is in it, a path has one type of file system or none, and
 * one that is found stands in the text. */
#include "lua_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char target[] =
    "local volume = require 'nc.volume'\n"
    "return function(text)\n"
    "    for _, path in ipairs { '/', '/mnt/shared', '/mnt/with blank' } do\n"
    "        local found = volume.type_at(text, path)\n"
    "        assert(found == nil or text:find(found, 1, true))\n"
    "        local kind = volume.kind_of(found)\n"
    "        assert(kind == nil or kind == 'posix' or kind == 'nfs')\n"
    "    end\n"
    "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_lua(target, data, size);
}
