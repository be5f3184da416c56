/* YAML both ways: any bytes are read or refused with an error object, and what was read is written
 * so that it reads as the same again; any text, as a value and as a key, comes back as it was. */
#include "lua_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char target[] =
    "local errors, yaml = require 'nc.errors', require 'nc.yaml'\n"
    "local function same(a, b)\n"
    "    if type(a) ~= 'table' then return a == b or (a ~= a and b ~= b) end\n"
    "    if type(b) ~= 'table' or #a ~= #b then return false end\n"
    "    if getmetatable(a) ~= getmetatable(b) then return false end\n"
    "    for k in pairs(b) do if a[k] == nil then return false end end\n"
    "    for k, v in pairs(a) do if not same(v, b[k]) then return false end end\n"
    "    return true\n"
    "end\n"
    "return function(text)\n"
    "    local ok, value = pcall(yaml.decode, text)\n"
    "    if ok then\n"
    "        local written, again = pcall(yaml.encode, value)\n"
    "        if written then\n"
    "            assert(same(value, yaml.decode(again)), again)\n"
    "        else\n"
    "            assert(again:find 'nested too deep' or again:find 'a million', again)\n"
    "        end\n"
    "    else\n"
    "        assert(errors.is(value, 'BadYaml'), tostring(value))\n"
    "    end\n"
    "    if utf8.len(text) then\n"
    "        local list = yaml.list { text, yaml.map { k = text, l = yaml.list { text } },\n"
    "            yaml.map { [text] = 1 } }\n"
    "        assert(same(list, yaml.decode(yaml.encode(list))))\n"
    "        assert(yaml.decode(yaml.encode(text)) == text)\n"
    "    end\n"
    "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_lua(target, data, size);
}
