/* A fuzz target in Lua: a chunk that returns a function of the input. Whatever it raises is a
 * finding; the lines it runs are what libFuzzer sees of its coverage. */
#ifndef NC_SPEC_LUA_FUZZ_H
#define NC_SPEC_LUA_FUZZ_H

#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bind/require.h"
#include "loop/loop.h"

/* libFuzzer's name for the section of counters that are not the compiler's. */
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t line_hits[1 << 14];

static void count_line(lua_State *L, lua_Debug *at)
{
    uintptr_t line;
    lua_getinfo(L, "Sl", at);
    line = ((uintptr_t)at->source >> 4) * 31 + (uintptr_t)at->currentline;
    line_hits[line % sizeof line_hits]++;
}

static void fuzz_or_die(lua_State *L, int rc)
{
    if (!rc)
        return;
    fprintf(stderr, "%s\n", luaL_tolstring(L, -1, NULL));
    abort();
}

static inline int fuzz_lua(const char *target, const uint8_t *data, size_t size)
{
    static lua_State *L;
    if (!L) {
        struct loop *loop;
        struct nc_err err;
        L = luaL_newstate();
        if (!L || loop_new(&loop, &err))
            abort();
        luaL_openlibs(L);
        bind_set_up_require(L);
        fuzz_or_die(L, luaL_loadstring(L, target) || lua_pcall(L, 0, 1, 0));
        lua_sethook(L, count_line, LUA_MASKLINE, 0);
    }
    lua_pushvalue(L, 1);
    lua_pushlstring(L, (const char *)data, size);
    fuzz_or_die(L, lua_pcall(L, 1, 0, 0));
    return 0;
}

#endif
