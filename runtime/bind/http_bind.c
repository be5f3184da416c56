/* nc.core.http: single requests of any kind. lua/nc/http.lua is the face of it. */
#include "bind/http_bind.h"

#include "loop/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CALL "nc.call"

static const char pool_key = 'p';

static int free_pool(lua_State *L)
{
    struct http_pool **pool = lua_touserdata(L, 1);
    http_pool_free(*pool);
    *pool = NULL;
    return 0;
}

struct http_pool *bind_pool(lua_State *L)
{
    struct http_pool **pool;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &pool_key) == LUA_TUSERDATA) {
        pool = lua_touserdata(L, -1);
        lua_pop(L, 1);
        return *pool;
    }
    lua_pop(L, 1);
    struct nc_err err;
    struct http_options options = {0};
    pool = lua_newuserdatauv(L, sizeof(struct http_pool *), 0);
    *pool = NULL;
    if (luaL_newmetatable(L, "nc.http.pool")) {
        lua_pushcfunction(L, free_pool);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    if (http_pool_new(pool, &options, &err))
        bind_raise(L, &err, "http");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &pool_key);
    return *pool;
}

const char *bind_string(lua_State *L, int index, const char *name)
{
    lua_getfield(L, index, name);
    if (!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TSTRING)
        luaL_error(L, "%s must be a string", name);
    size_t len = 0;
    const char *s = lua_tolstring(L, -1, &len);
    if (s && strlen(s) != len)
        luaL_error(L, "%s holds a NUL byte", name);
    lua_pop(L, 1); /* the table keeps it */
    return s;
}

const char *bind_need_string(lua_State *L, int index, const char *name)
{
    const char *s = bind_string(L, index, name);
    if (!s)
        luaL_error(L, "%s is missing", name);
    return s;
}

lua_Integer bind_integer(lua_State *L, int index, const char *name, lua_Integer absent)
{
    lua_getfield(L, index, name);
    int is_number = 1;
    lua_Integer n = lua_isnil(L, -1) ? absent : lua_tointegerx(L, -1, &is_number);
    if (!is_number || n < 0)
        luaL_error(L, "%s must be a whole number, 0 or more", name);
    lua_pop(L, 1);
    return n;
}

bool bind_bool(lua_State *L, int index, const char *name)
{
    lua_getfield(L, index, name);
    bool set = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return set;
}

void bind_each_pair(lua_State *L, int index, const char *name,
                    void (*add)(void *arg, const char *name, const char *value), void *arg)
{
    if (lua_getfield(L, index, name) != LUA_TNIL) {
        luaL_checktype(L, -1, LUA_TTABLE);
        lua_Integer n = luaL_len(L, -1);
        for (lua_Integer i = 1; i <= n; i++) {
            lua_geti(L, -1, i);
            lua_geti(L, -1, 1);
            lua_geti(L, -2, 2);
            add(arg, luaL_checkstring(L, -2), luaL_checkstring(L, -1));
            lua_pop(L, 3);
        }
    }
    lua_pop(L, 1);
}

/* ---- calls ---- */

void bind_call_over(struct call *c)
{
    struct loop *loop = loop_main();
    uint64_t token = c->token;
    pthread_mutex_lock(&c->lock);
    c->over = true;
    /* Posted before the lock goes: once it is free, Lua may collect the call. */
    loop_post(loop, token, c->http->failed ? 0 : 1);
    pthread_cond_broadcast(&c->ended);
    pthread_mutex_unlock(&c->lock);
}

static bool is_over(struct call *c)
{
    pthread_mutex_lock(&c->lock);
    bool over = c->over;
    pthread_mutex_unlock(&c->lock);
    return over;
}

static int call_free(lua_State *L)
{
    struct call *c = luaL_checkudata(L, 1, CALL);
    if (c->started && !is_over(c)) {
        http_cancel(c->pool, c->http);
        pthread_mutex_lock(&c->lock);
        while (!c->over)
            pthread_cond_wait(&c->ended, &c->lock);
        pthread_mutex_unlock(&c->lock);
    }
    if (c->free_request)
        c->free_request(c);
    c->free_request = NULL;
    c->started = false;
    free(c->url);
    free(c->what);
    free(c->path);
    free(c->ca_file);
    c->url = c->what = c->path = c->ca_file = NULL;
    buf_free(&c->headers);
    return 0;
}

static int call_collect(lua_State *L)
{
    struct call *c = luaL_checkudata(L, 1, CALL);
    call_free(L);
    hub_location_free(&c->location);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
    return 0;
}

/* call:token() */
static int call_token(lua_State *L)
{
    struct call *c = luaL_checkudata(L, 1, CALL);
    lua_pushinteger(L, (lua_Integer)c->token);
    return 1;
}

static void push_headers(lua_State *L, const struct http_request *r)
{
    lua_newtable(L);
    for (const char *p = buf_str(&r->head); *p;) {
        const char *end = strchr(p, '\n'), *colon = strchr(p, ':');
        const char *value = colon + 1;
        while (value < end && (*value == ' ' || *value == '\t'))
            value++;
        lua_pushlstring(L, p, (size_t)(colon - p));
        lua_pushlstring(L, value, (size_t)(end - value));
        lua_settable(L, -3);
        p = end + 1;
    }
}

/* call:result() -> { status, headers, body, attempts } | nil, error object. After its event. */
static int call_result(lua_State *L)
{
    struct call *c = luaL_checkudata(L, 1, CALL);
    if (!c->started || !is_over(c))
        return luaL_error(L, "the call has not ended");
    const struct http_request *r = c->http;
    if (r->failed) {
        lua_pushnil(L);
        bind_push_error(L, &r->err, r->method);
        return 2;
    }
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, r->status);
    lua_setfield(L, -2, "status");
    push_headers(L, r);
    lua_setfield(L, -2, "headers");
    lua_pushlstring(L, buf_str(&r->text), r->text.len);
    lua_setfield(L, -2, "body");
    lua_pushinteger(L, r->attempts);
    lua_setfield(L, -2, "attempts");
    return 1;
}

static const luaL_Reg call_methods[] = {
    {"token", call_token},
    {"result", call_result},
    {NULL, NULL},
};

struct call *bind_call_new(lua_State *L)
{
    struct http_pool *pool = bind_pool(L);
    struct call *c = lua_newuserdatauv(L, sizeof *c, 3);
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->ended, NULL);
    hub_location_init(&c->location);
    buf_init(&c->headers, 64 * 1024);
    c->pool = pool;
    if (luaL_newmetatable(L, CALL)) {
        lua_pushcfunction(L, call_collect);
        lua_setfield(L, -2, "__gc");
        lua_pushcfunction(L, call_free);
        lua_setfield(L, -2, "__close");
        luaL_newlib(L, call_methods);
        lua_setfield(L, -2, "__index");
    }
    lua_setmetatable(L, -2);
    return c;
}

void bind_call_options(lua_State *L, struct call *c, int index)
{
    struct http_request *r = c->http;
    if (lua_getfield(L, index, "body") != LUA_TNIL) {
        r->body = luaL_checklstring(L, -1, &r->body_len);
        r->has_body = true;
    }
    lua_setiuservalue(L, -2, 1);
    r->text_max = (size_t)bind_integer(L, index, "max_body", 1024 * 1024);
    r->text_whole = true;
    r->attempts_max = (unsigned)bind_integer(L, index, "attempts", r->attempts_max);
    lua_getfield(L, index, "timeout");
    r->total_ms = (uint32_t)ceil(luaL_optnumber(L, -1, 0) * 1000);
    lua_getfield(L, index, "stall");
    r->stall_ms = (uint32_t)ceil(luaL_optnumber(L, -1, 0) * 1000);
    lua_pop(L, 2);
}

void bind_call_start(struct call *c)
{
    c->token = loop_token(loop_main());
    c->started = true;
    http_submit(c->pool, c->http);
}

/* ---- plain requests ---- */

static int prepare(struct http_request *http)
{
    struct call *c = (struct call *)http;
    http_request_reset(http);
    buf_puts(&http->url, c->url);
    buf_add(&http->headers, buf_str(&c->headers), c->headers.len);
    return 0;
}

static void plain_done(struct http_request *http)
{
    bind_call_over((struct call *)http);
}

static const struct http_hooks plain_hooks = {NULL, prepare, NULL, plain_done};

static void free_plain(struct call *c)
{
    http_request_free(&c->u.http);
}

static void add_header(void *arg, const char *name, const char *value)
{
    struct call *c = arg;
    buf_printf(&c->headers, "%s: %s\n", name, value);
}

/* http.start { method, url, what, headers = { { name, value } ... }, body, max_body, timeout,
 * stall, attempts, ca_file } -> call. Times in seconds. Any status is a result. */
static int l_start(lua_State *L)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE", NULL};
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_getfield(L, 1, "method");
    int method = luaL_checkoption(L, 2, "GET", methods);
    lua_settop(L, 1);
    const char *url = bind_need_string(L, 1, "url");
    const char *what = bind_need_string(L, 1, "what");
    const char *ca = bind_string(L, 1, "ca_file");
    struct call *c = bind_call_new(L);
    c->http = &c->u.http;
    http_request_init(c->http, &plain_hooks);
    c->free_request = free_plain;
    c->http->method = methods[method];
    c->url = strdup(url);
    c->what = strdup(what);
    c->ca_file = ca ? strdup(ca) : NULL;
    if (!c->url || !c->what || (ca && !c->ca_file))
        return luaL_error(L, "out of memory");
    c->http->what = c->what;
    c->http->ca_file = c->ca_file;
    bind_each_pair(L, 1, "headers", add_header, c);
    bind_call_options(L, c, 1);
    bind_call_start(c);
    return 1;
}

static const luaL_Reg functions[] = {{"start", l_start}, {NULL, NULL}};

int luaopen_nc_http(lua_State *L)
{
    luaL_newlib(L, functions);
    return 1;
}
