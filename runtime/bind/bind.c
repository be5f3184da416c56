#include "bind/bind.h"

void bind_push_error(lua_State *L, const struct nc_err *err, const char *op)
{
    lua_createtable(L, 0, 5);
    lua_pushstring(L, err->code);
    lua_setfield(L, -2, "code");
    lua_pushstring(L, err->message);
    lua_setfield(L, -2, "message");
    lua_pushstring(L, op);
    lua_setfield(L, -2, "op");
    lua_pushboolean(L, err->retryable);
    lua_setfield(L, -2, "retryable");
    if (err->status) {
        lua_pushinteger(L, err->status);
        lua_setfield(L, -2, "status");
    }
    luaL_newmetatable(L, BIND_ERROR);
    lua_setmetatable(L, -2);
}

int bind_raise(lua_State *L, const struct nc_err *err, const char *op)
{
    bind_push_error(L, err, op);
    return lua_error(L);
}

char **bind_check_strings(lua_State *L, int index, const char *what)
{
    luaL_checktype(L, index, LUA_TTABLE);
    size_t n = lua_rawlen(L, index);
    char **list = lua_newuserdatauv(L, (n + 1) * sizeof *list, 0);
    for (size_t i = 0; i < n; i++) {
        if (lua_rawgeti(L, index, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "%s: item %d is not a string", what, (int)i + 1);
        list[i] = (char *)lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    list[n] = NULL;
    return list;
}
