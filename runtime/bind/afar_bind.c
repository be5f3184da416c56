/* nc.core.afar: looks at folders that may not answer. lua/nc/afar.lua uses it. */
#include "bind/bind.h"
#include "disk/afar.h"
#include "loop/loop.h"

#define AFAR "nc.afar"

struct bound_afar {
    struct afar *afar;
    enum afar_what what;
    uint64_t token;
};

static void answered(void *arg)
{
    const struct bound_afar *b = arg;
    loop_post(loop_main(), b->token, 0);
}

/* afar.ask("read" | "list" | "clock", path) -> question, token: the event is its answer */
static int l_ask(lua_State *L)
{
    static const char *const names[] = {"read", "list", "clock", NULL};
    enum afar_what what = (enum afar_what)luaL_checkoption(L, 1, NULL, names);
    const char *path = luaL_checkstring(L, 2);
    struct nc_err err;
    struct bound_afar *b = lua_newuserdatauv(L, sizeof *b, 0);
    *b = (struct bound_afar){NULL, what, loop_token(loop_main())};
    luaL_setmetatable(L, AFAR);
    lua_pushinteger(L, (lua_Integer)b->token);
    return afar_ask(&b->afar, what, path, answered, b, &err) ? bind_raise(L, &err, "afar") : 2;
}

static void push_files(lua_State *L, const struct afar_answer *a)
{
    lua_createtable(L, (int)a->count * 3, 0);
    for (size_t i = 0; i < a->count; i++) {
        lua_Integer at = (lua_Integer)i * 3;
        lua_pushstring(L, a->files[i].path);
        lua_rawseti(L, -2, at + 1);
        lua_pushinteger(L, (lua_Integer)a->files[i].size);
        lua_rawseti(L, -2, at + 2);
        lua_pushnumber(L, a->files[i].modified);
        lua_rawseti(L, -2, at + 3);
    }
}

/* question:answer(), after its event: of a read, text, seconds since 1970 when it was written, or
 * nil; of a list, { path, size, seconds, ... } of all plain files below, or nil; of a clock,
 * seconds. Raises why it failed. */
static int l_answer(lua_State *L)
{
    const struct bound_afar *b = luaL_checkudata(L, 1, AFAR);
    if (!b->afar)
        luaL_argerror(L, 1, "it is closed");
    const struct afar_answer *a = afar_answer(b->afar);
    if (a->failed)
        return bind_raise(L, &a->err, "afar");
    if (b->what == AFAR_CLOCK) {
        lua_pushnumber(L, a->time);
        return 1;
    }
    if (!a->there)
        return 0;
    if (b->what == AFAR_LIST) {
        push_files(L, a);
        return 1;
    }
    lua_pushlstring(L, a->len ? a->text : "", a->len);
    lua_pushnumber(L, a->time);
    return 2;
}

static int l_close(lua_State *L)
{
    struct bound_afar *b = luaL_checkudata(L, 1, AFAR);
    afar_free(b->afar);
    b->afar = NULL;
    return 0;
}

static const luaL_Reg methods[] = {{"answer", l_answer}, {NULL, NULL}};

static const luaL_Reg functions[] = {{"ask", l_ask}, {NULL, NULL}};

int luaopen_nc_afar(lua_State *L)
{
    luaL_newmetatable(L, AFAR);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, l_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, l_close);
    lua_setfield(L, -2, "__close");
    luaL_newlib(L, functions);
    return 1;
}
