/* nc.core.heartbeat: a marker that is written again and again. lua/nc/copy.lua and
 * lua/nc/place/claim.lua use it. */
#include "bind/http_bind.h"

#include "loop/loop.h"
#include "transfer/heartbeat.h"

#define HEARTBEAT "nc.heartbeat"

struct bound_heartbeat {
    struct heartbeat *h;
    uint64_t token;
};

static struct bound_heartbeat *check_heartbeat(lua_State *L)
{
    struct bound_heartbeat *b = luaL_checkudata(L, 1, HEARTBEAT);
    if (!b->h)
        luaL_argerror(L, 1, "the heartbeat is closed");
    return b;
}

static int heartbeat_close(lua_State *L)
{
    struct bound_heartbeat *b = luaL_checkudata(L, 1, HEARTBEAT);
    heartbeat_free(b->h);
    b->h = NULL;
    return 0;
}

static void written(void *arg, bool ok)
{
    struct bound_heartbeat *b = arg;
    loop_post(loop_main(), b->token, ok);
}

/* heartbeat.start({ client, key | file, interval, stall, written }, text) -> heartbeat, token:
 * the event is the first write, 1 if it succeeded. Times in seconds. written: the caller has just
 * written it, so the first write is one interval away. */
static int l_start(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    const char *text = luaL_checkstring(L, 2);
    lua_settop(L, 2);
    struct heartbeat_options options = {
        .pool = bind_pool(L),
        .key = bind_string(L, 1, "key"),
        .file = bind_string(L, 1, "file"),
        .begun = bind_bool(L, 1, "written"),
        .written = written,
    };
    struct bound_heartbeat *b = lua_newuserdatauv(L, sizeof *b, 2);
    *b = (struct bound_heartbeat){0};
    luaL_setmetatable(L, HEARTBEAT);
    b->token = loop_token(loop_main());
    options.arg = b;
    if (options.key) {
        lua_getfield(L, 1, "client");
        options.client = bind_check_s3(L, 4);
        lua_setiuservalue(L, 3, 1);
    }
    lua_getfield(L, 1, "interval");
    options.interval_ms = (uint32_t)(luaL_optnumber(L, -1, 0) * 1000);
    lua_getfield(L, 1, "stall");
    options.stall_ms = (uint32_t)(luaL_optnumber(L, -1, 0) * 1000);
    lua_settop(L, 3);
    struct nc_err err;
    if (heartbeat_start(&b->h, &options, text, &err))
        return bind_raise(L, &err, "heartbeat");
    lua_pushinteger(L, (lua_Integer)b->token);
    return 2;
}

/* heartbeat:set(text, now) */
static int l_set(lua_State *L)
{
    struct bound_heartbeat *b = check_heartbeat(L);
    if (heartbeat_set(b->h, luaL_checkstring(L, 2), lua_toboolean(L, 3)))
        return luaL_error(L, "out of memory");
    return 0;
}

/* heartbeat:watch(transfer | nil): whose numbers it adds; kept alive with it */
static int l_watch(lua_State *L)
{
    struct bound_heartbeat *b = check_heartbeat(L);
    heartbeat_watch(b->h, bind_opt_transfer(L, 2));
    lua_settop(L, 2);
    lua_setiuservalue(L, 1, 2);
    return 0;
}

/* heartbeat:failure() -> error object of the last write, or nil */
static int l_failure(lua_State *L)
{
    struct nc_err err;
    if (heartbeat_failed(check_heartbeat(L)->h, &err))
        bind_push_error(L, &err, "heartbeat");
    else
        lua_pushnil(L);
    return 1;
}

/* heartbeat:stop(last): waits until nothing is under way, at most as long as one write takes */
static int l_stop(lua_State *L)
{
    heartbeat_stop(check_heartbeat(L)->h, lua_toboolean(L, 2));
    return 0;
}

static const luaL_Reg methods[] = {
    {"set", l_set}, {"watch", l_watch}, {"failure", l_failure}, {"stop", l_stop}, {NULL, NULL},
};

static const luaL_Reg functions[] = {{"start", l_start}, {NULL, NULL}};

int luaopen_nc_heartbeat(lua_State *L)
{
    luaL_newmetatable(L, HEARTBEAT);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, heartbeat_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, heartbeat_close);
    lua_setfield(L, -2, "__close");
    luaL_newlib(L, functions);
    return 1;
}
