/* nc.core.s3: a bucket's client and single signed requests. lua/nc/s3.lua is the face of it. */
#include "bind/http_bind.h"

#include <stdlib.h>
#include <string.h>

#define CLIENT "nc.s3.client"

struct s3_client *bind_check_s3(lua_State *L, int index)
{
    struct s3_client *c = luaL_checkudata(L, index, CLIENT);
    if (!c->bucket)
        luaL_argerror(L, index, "the client is closed");
    return c;
}

static int client_free(lua_State *L)
{
    struct s3_client *c = luaL_checkudata(L, 1, CLIENT);
    if (c->bucket)
        s3_client_free(c);
    return 0;
}

/* s3.client { endpoint, region, bucket, virtual_host, access_key, secret_key, session_token,
 * ca_file, renewable, attempts, content_md5 } -> client */
static int l_client(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    struct s3_config config = {
        .endpoint = bind_string(L, 1, "endpoint"),
        .region = bind_need_string(L, 1, "region"),
        .bucket = bind_string(L, 1, "bucket"),
        .virtual_host = bind_bool(L, 1, "virtual_host"),
        .access = bind_need_string(L, 1, "access_key"),
        .secret = bind_need_string(L, 1, "secret_key"),
        .token = bind_string(L, 1, "session_token"),
        .ca_file = bind_string(L, 1, "ca_file"),
        .renewable = bind_bool(L, 1, "renewable"),
        .attempts_max = (unsigned)bind_integer(L, 1, "attempts", 0),
        .content_md5 = bind_bool(L, 1, "content_md5"),
    };
    struct s3_client *c = lua_newuserdatauv(L, sizeof *c, 0);
    memset(c, 0, sizeof *c);
    luaL_setmetatable(L, CLIENT);
    struct nc_err err;
    if (s3_client_init(c, &config, &err))
        return bind_raise(L, &err, "s3");
    return 1;
}

/* client:set_keys(access, secret, token | nil) */
static int client_set_keys(lua_State *L)
{
    struct s3_client *c = bind_check_s3(L, 1);
    struct nc_err err;
    if (s3_client_set_keys(c, luaL_checkstring(L, 2), luaL_checkstring(L, 3),
                           luaL_optstring(L, 4, NULL), &err))
        return bind_raise(L, &err, "s3");
    return 0;
}

/* client:keys_expired() -> whether a server has said so since they were set */
static int client_keys_expired(lua_State *L)
{
    lua_pushboolean(L, s3_client_keys_expired(bind_check_s3(L, 1)));
    return 1;
}

static void request_done(struct s3_request *r)
{
    bind_call_over(r->owner);
}

static void free_request(struct call *c)
{
    s3_request_free(&c->u.s3);
}

static void add_query(void *arg, const char *name, const char *value)
{
    struct call *c = arg;
    url_query_add(&c->u.s3.query, name, value);
}

static void add_header(void *arg, const char *name, const char *value)
{
    struct call *c = arg;
    s3_request_header(&c->u.s3, name, value);
}

/* s3.start(client, { method, key, query, headers, body, max_body, timeout, stall, attempts }) ->
 * call. query and headers are lists of { name, value }. A status that is no success is an error. */
static int l_start(lua_State *L)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE", NULL};
    struct s3_client *client = bind_check_s3(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    lua_getfield(L, 2, "method");
    int method = luaL_checkoption(L, 3, NULL, methods);
    lua_settop(L, 2);
    const char *key = bind_string(L, 2, "key");
    struct call *c = bind_call_new(L);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 2);
    struct nc_err err;
    if (s3_request_init(&c->u.s3, client, methods[method], key ? key : "", &err)) {
        s3_request_free(&c->u.s3);
        return bind_raise(L, &err, "s3");
    }
    c->free_request = free_request;
    c->http = &c->u.s3.http;
    c->u.s3.owner = c;
    c->u.s3.done = request_done;
    bind_each_pair(L, 2, "query", add_query, c);
    bind_each_pair(L, 2, "headers", add_header, c);
    bind_call_options(L, c, 2);
    bind_call_start(c);
    return 1;
}

static const luaL_Reg client_methods[] = {
    {"set_keys", client_set_keys},
    {"keys_expired", client_keys_expired},
    {NULL, NULL},
};

static const luaL_Reg functions[] = {{"client", l_client}, {"start", l_start}, {NULL, NULL}};

int luaopen_nc_s3(lua_State *L)
{
    luaL_newmetatable(L, CLIENT);
    lua_pushcfunction(L, client_free);
    lua_setfield(L, -2, "__gc");
    luaL_newlib(L, client_methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
