#include "bind/require.h"

#include "base/embed.h"
#include "bind/bind.h"

#define MODULE(area) {"nc.core." #area, luaopen_nc_##area},
static const luaL_Reg core_modules[] = {BIND_AREAS(MODULE){NULL, NULL}};

int bind_load_embedded(lua_State *L, const char *name)
{
    const struct embed_file *f = embed_find(name);
    if (!f)
        return 0;
    lua_pushfstring(L, "@%s", f->path);
    if (luaL_loadbufferx(L, f->start, (size_t)(f->end - f->start), lua_tostring(L, -1), "t"))
        return lua_error(L);
    lua_remove(L, -2);
    return 1;
}

static int search_embedded(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    if (!bind_load_embedded(L, name)) {
        lua_pushfstring(L, "no module '%s' in this binary", name);
        return 1;
    }
    lua_pushliteral(L, ":embedded:");
    return 2;
}

void bind_set_up_require(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    luaL_setfuncs(L, core_modules, 0);
    lua_getglobal(L, "package");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "path");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "cpath");
    lua_getfield(L, -1, "searchers");
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, -1); i >= 2; i--) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushcfunction(L, search_embedded);
    lua_rawseti(L, -2, 2);
    lua_pop(L, 3);
}
