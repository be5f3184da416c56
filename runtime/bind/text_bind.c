/* nc.core.text: URLs, dates, digests and patterns for Lua. What can't be parsed is nil and an error
 * object, for the caller to raise or to drop; dates and escapes that are none are just nil. */
#include <string.h>

#include "base/digest.h"
#include "base/text.h"
#include "bind/bind.h"
#include "net/url.h"

/* A string without NUL bytes: C would read another one. */
static const char *check_text(lua_State *L, int arg)
{
    size_t len;
    const char *s = luaL_checklstring(L, arg, &len);
    luaL_argcheck(L, strlen(s) == len, arg, "holds a NUL byte");
    return s;
}

static int fail(lua_State *L, const struct nc_err *err, const char *op)
{
    lua_pushnil(L);
    bind_push_error(L, err, op);
    return 2;
}

/* Pushes what was built, or nil where it did not fit, and frees it. */
static int push_buf(lua_State *L, struct buf *b, bool ok)
{
    if (ok)
        lua_pushlstring(L, buf_str(b), b->len);
    else
        lua_pushnil(L);
    buf_free(b);
    return 1;
}

/* text.url_encode(s [, keep_slash]) -> string */
static int l_url_encode(lua_State *L)
{
    size_t len;
    const char *s = luaL_checklstring(L, 1, &len);
    struct buf b;
    buf_init(&b, len * 3);
    return push_buf(L, &b, url_encode(&b, s, len, lua_toboolean(L, 2)) == 0);
}

/* text.url_decode(s [, plus]) -> string; nil for a % without two digits */
static int l_url_decode(lua_State *L)
{
    size_t len;
    const char *s = luaL_checklstring(L, 1, &len);
    struct buf b;
    buf_init(&b, len);
    return push_buf(L, &b, url_decode(&b, s, len, lua_toboolean(L, 2)) == 0);
}

static void set_text(lua_State *L, const char *name, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

/* text.url_parse(s) -> { scheme, host, port, authority, path, query? } */
static int l_url_parse(lua_State *L)
{
    struct url u;
    struct nc_err err;
    if (url_parse(check_text(L, 1), &u, &err))
        return fail(L, &err, "url");
    lua_createtable(L, 0, 6);
    set_text(L, "scheme", u.tls ? "https" : "http");
    set_text(L, "host", u.host);
    set_text(L, "authority", u.authority);
    set_text(L, "path", u.path);
    if (u.query)
        set_text(L, "query", u.query);
    lua_pushinteger(L, u.port);
    lua_setfield(L, -2, "port");
    url_free(&u);
    return 1;
}

/* text.url_resolve(base, location) -> string */
static int l_url_resolve(lua_State *L)
{
    struct url base, u;
    struct nc_err err;
    const char *location = check_text(L, 2);
    if (url_parse(check_text(L, 1), &base, &err))
        return fail(L, &err, "url");
    int rc = url_resolve(&base, location, &u, &err);
    url_free(&base);
    if (rc)
        return fail(L, &err, "url");
    struct buf b;
    buf_init(&b, 2 * URL_MAX);
    url_format(&u, &b);
    url_free(&u);
    return push_buf(L, &b, !b.failed);
}

/* text.same_origin(a, b) -> boolean; false where one is no URL */
static int l_same_origin(lua_State *L)
{
    struct url a = {0}, b = {0};
    struct nc_err err;
    const char *second = check_text(L, 2);
    bool same = !url_parse(check_text(L, 1), &a, &err) && !url_parse(second, &b, &err) &&
                url_same_origin(&a, &b);
    url_free(&a);
    url_free(&b);
    lua_pushboolean(L, same);
    return 1;
}

static int push_date(lua_State *L, int rc, int64_t epoch)
{
    if (rc)
        lua_pushnil(L);
    else
        lua_pushinteger(L, epoch);
    return 1;
}

/* text.http_date(s) -> seconds since 1970, or nil */
static int l_http_date(lua_State *L)
{
    int64_t epoch = 0;
    int rc = text_http_date(check_text(L, 1), &epoch);
    return push_date(L, rc, epoch);
}

/* text.iso_date(s) -> seconds since 1970, or nil */
static int l_iso_date(lua_State *L)
{
    int64_t epoch = 0;
    int rc = text_iso_date(check_text(L, 1), &epoch);
    return push_date(L, rc, epoch);
}

/* text.format_http_date(epoch) -> string */
static int l_format_http_date(lua_State *L)
{
    char out[TEXT_HTTP_DATE_SIZE];
    text_http_date_format(luaL_checkinteger(L, 1), out);
    lua_pushstring(L, out);
    return 1;
}

/* text.sha256(s) -> 64 hex digits */
static int l_sha256(lua_State *L)
{
    size_t len;
    const char *s = luaL_checklstring(L, 1, &len);
    char out[SHA256_HEX_SIZE];
    if (sha256_hex(s, len, out))
        return luaL_error(L, "out of memory");
    lua_pushstring(L, out);
    return 1;
}

/* text.md5(s) -> base64, as Content-MD5 wants it */
static int l_md5(lua_State *L)
{
    size_t len;
    const char *s = luaL_checklstring(L, 1, &len);
    char out[MD5_BASE64_SIZE];
    if (md5_base64(s, len, out))
        return luaL_error(L, "this machine has no MD5");
    lua_pushstring(L, out);
    return 1;
}

/* text.glob(pattern, s) -> boolean */
static int l_glob(lua_State *L)
{
    lua_pushboolean(L, text_glob(check_text(L, 1), check_text(L, 2)));
    return 1;
}

static const luaL_Reg functions[] = {
    {"format_http_date", l_format_http_date},
    {"glob", l_glob},
    {"http_date", l_http_date},
    {"iso_date", l_iso_date},
    {"md5", l_md5},
    {"same_origin", l_same_origin},
    {"sha256", l_sha256},
    {"url_decode", l_url_decode},
    {"url_encode", l_url_encode},
    {"url_parse", l_url_parse},
    {"url_resolve", l_url_resolve},
    {NULL, NULL},
};

int luaopen_nc_text(lua_State *L)
{
    luaL_newlib(L, functions);
    return 1;
}
