/* nc.core.hub: a model hub and single requests to it. lua/nc/hub.lua is the face of it. */
#include "bind/http_bind.h"

#include <stdlib.h>
#include <string.h>

#define HUB "nc.hub.client"

struct hub *bind_check_hub(lua_State *L, int index)
{
    struct hub *hub = luaL_checkudata(L, index, HUB);
    if (!hub->base)
        luaL_argerror(L, index, "the hub is closed");
    return hub;
}

static int hub_collect(lua_State *L)
{
    struct hub *hub = luaL_checkudata(L, 1, HUB);
    if (hub->base)
        hub_free(hub);
    return 0;
}

/* hub.open(endpoint, token | nil) -> hub */
static int l_open(lua_State *L)
{
    const char *endpoint = luaL_checkstring(L, 1);
    const char *token = luaL_optstring(L, 2, NULL);
    struct hub *hub = lua_newuserdatauv(L, sizeof *hub, 0);
    memset(hub, 0, sizeof *hub);
    luaL_setmetatable(L, HUB);
    struct nc_err err;
    if (hub_init(hub, endpoint, token, &err))
        return bind_raise(L, &err, "hub");
    return 1;
}

static void request_done(struct hub_request *r)
{
    bind_call_over(r->owner);
}

static void free_request(struct call *c)
{
    hub_request_free(&c->u.hub);
}

/* hub.start(hub, { path, what, max_body, timeout, stall, attempts }) -> call; a GET of path, which
 * is percent-encoded and may have a query. A status that is no success is an error. */
static int l_start(lua_State *L)
{
    struct hub *hub = bind_check_hub(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    const char *path = bind_need_string(L, 2, "path");
    const char *what = bind_need_string(L, 2, "what");
    struct call *c = bind_call_new(L);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 2);
    c->path = strdup(path);
    c->what = strdup(what);
    if (!c->path || !c->what)
        return luaL_error(L, "out of memory");
    hub_request_init(&c->u.hub, hub, &c->location);
    c->free_request = free_request;
    c->http = &c->u.hub.http;
    c->u.hub.path = c->path;
    c->u.hub.owner = c;
    c->u.hub.done = request_done;
    c->http->what = c->what;
    bind_call_options(L, c, 2);
    bind_call_start(c);
    return 1;
}

static const luaL_Reg functions[] = {{"open", l_open}, {"start", l_start}, {NULL, NULL}};

int luaopen_nc_hub(lua_State *L)
{
    luaL_newmetatable(L, HUB);
    lua_pushcfunction(L, hub_collect);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
