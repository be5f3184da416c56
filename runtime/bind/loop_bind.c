/* nc.core.loop: the event loop, as lua/nc/task.lua sees it. */
#include <math.h>
#include <sys/epoll.h>

#include "bind/bind.h"
#include "loop/loop.h"

/* loop.token() -> token: names an operation of one's own */
static int l_token(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)loop_token(loop_main()));
    return 1;
}

/* loop.timer(seconds) -> token */
static int l_timer(lua_State *L)
{
    lua_Number seconds = luaL_checknumber(L, 1);
    luaL_argcheck(L, seconds >= 0, 1, "negative time");
    uint64_t ms = seconds < 1e12 ? (uint64_t)ceil(seconds * 1000) : UINT64_MAX;
    uint64_t token = loop_token(loop_main());
    struct nc_err err;
    if (loop_timer(loop_main(), token, ms, &err))
        return bind_raise(L, &err, "timer");
    lua_pushinteger(L, (lua_Integer)token);
    return 1;
}

/* loop.watch(fd, "r" | "w") -> token */
static int l_watch(lua_State *L)
{
    static const char *const modes[] = {"r", "w", NULL};
    static const uint32_t events[] = {EPOLLIN, EPOLLOUT};
    int fd = (int)luaL_checkinteger(L, 1);
    int mode = luaL_checkoption(L, 2, NULL, modes);
    uint64_t token = loop_token(loop_main());
    struct nc_err err;
    if (loop_watch(loop_main(), token, fd, events[mode], &err))
        return bind_raise(L, &err, "watch");
    lua_pushinteger(L, (lua_Integer)token);
    return 1;
}

/* loop.cancel(token) -> whether there was such a timer or watch */
static int l_cancel(lua_State *L)
{
    lua_pushboolean(L, loop_cancel(loop_main(), (uint64_t)luaL_checkinteger(L, 1)));
    return 1;
}

/* loop.wait(block, events) -> n; events[1..n] = token, value, token, value, ...
 * A signal has token 0. */
static int l_wait(lua_State *L)
{
    struct loop_event events[128];
    int64_t timeout_ms = lua_toboolean(L, 1) ? -1 : 0;
    luaL_checktype(L, 2, LUA_TTABLE);
    size_t n = loop_wait(loop_main(), timeout_ms, events, sizeof events / sizeof *events);
    lua_Integer at = 0;
    for (size_t i = 0; i < n; i++) {
        lua_pushinteger(L, (lua_Integer)events[i].token);
        lua_rawseti(L, 2, ++at);
        lua_pushinteger(L, events[i].value);
        lua_rawseti(L, 2, ++at);
    }
    lua_pushinteger(L, at);
    return 1;
}

static const luaL_Reg functions[] = {
    {"token", l_token},   {"timer", l_timer}, {"watch", l_watch},
    {"cancel", l_cancel}, {"wait", l_wait},   {NULL, NULL},
};

int luaopen_nc_loop(lua_State *L)
{
    luaL_newlib(L, functions);
    return 1;
}
