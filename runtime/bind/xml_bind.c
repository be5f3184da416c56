/* nc.core.s3xml: S3's XML answers as Lua tables, and its request bodies. A body that can't be used
 * is nil and an error object, whose code is the server's own where it is an <Error>. */
#include <stdlib.h>
#include <string.h>

#include "bind/bind.h"
#include "s3/s3_xml.h"

/* Pushes fn's one result for data. Protected, so that the caller can free data and only then raise.
 */
static int push_protected(lua_State *L, lua_CFunction fn, void *data)
{
    lua_pushcfunction(L, fn);
    lua_pushlightuserdata(L, data);
    return lua_pcall(L, 1, 1, 0);
}

static int fail(lua_State *L, const struct nc_err *err)
{
    lua_pushnil(L);
    bind_push_error(L, err, "s3");
    return 2;
}

static void set_text(lua_State *L, const char *name, const char *value)
{
    if (value && *value) {
        lua_pushstring(L, value);
        lua_setfield(L, -2, name);
    }
}

static void set_integer(lua_State *L, const char *name, uint64_t value)
{
    lua_pushinteger(L, (lua_Integer)value);
    lua_setfield(L, -2, name);
}

/* Seconds since 1970; absent when the server gave none. */
static void set_date(lua_State *L, const char *name, int64_t value)
{
    if (value)
        set_integer(L, name, (uint64_t)value);
}

/* Each parser is a C function over (body) made of three steps: parse, push, free. */
#define PARSER(name, type, parse, release)                                                         \
    static int l_##name(lua_State *L)                                                              \
    {                                                                                              \
        size_t len;                                                                                \
        const char *body = luaL_checklstring(L, 1, &len);                                          \
        type out;                                                                                  \
        struct nc_err err;                                                                         \
        if (parse(body, len, &out, &err)) {                                                        \
            release(&out);                                                                         \
            return fail(L, &err);                                                                  \
        }                                                                                          \
        int rc = push_protected(L, push_##name, &out);                                             \
        release(&out);                                                                             \
        return rc ? lua_error(L) : 1;                                                              \
    }

/* s3xml.error(body) -> { code, message, region?, endpoint?, bucket?, key?, ... , retryable } */
static int push_error(lua_State *L)
{
    const struct s3_error *e = lua_touserdata(L, 1);
    lua_createtable(L, 0, 10);
    set_text(L, "code", e->code);
    lua_pushstring(L, e->message);
    lua_setfield(L, -2, "message");
    set_text(L, "region", e->region);
    set_text(L, "endpoint", e->endpoint);
    set_text(L, "bucket", e->bucket);
    set_text(L, "key", e->key);
    set_text(L, "upload_id", e->upload_id);
    set_text(L, "request_id", e->request_id);
    set_date(L, "server_time", e->server_time);
    lua_pushboolean(L, s3_code_retryable(e->code));
    lua_setfield(L, -2, "retryable");
    return 1;
}

static void nothing_owned(struct s3_error *e)
{
    (void)e;
}

PARSER(error, struct s3_error, s3_xml_error, nothing_owned)

/* s3xml.listing(body) -> { objects = {{ key, size, etag?, modified? }}, prefixes, next_token? } */
static int push_listing(lua_State *L)
{
    const struct s3_listing *l = lua_touserdata(L, 1);
    lua_createtable(L, 0, 3);
    lua_createtable(L, (int)l->object_count, 0);
    for (size_t i = 0; i < l->object_count; i++) {
        lua_createtable(L, 0, 4);
        lua_pushstring(L, l->objects[i].key);
        lua_setfield(L, -2, "key");
        set_integer(L, "size", l->objects[i].size);
        set_text(L, "etag", l->objects[i].etag);
        set_date(L, "modified", l->objects[i].modified);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "objects");
    lua_createtable(L, (int)l->prefix_count, 0);
    for (size_t i = 0; i < l->prefix_count; i++) {
        lua_pushstring(L, l->prefixes[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "prefixes");
    if (l->truncated)
        set_text(L, "next_token", l->next_token);
    return 1;
}

PARSER(listing, struct s3_listing, s3_xml_listing, s3_listing_free)

/* s3xml.parts(body) -> { {number, size, etag, modified?}..., next_marker = integer? } */
static int push_parts(lua_State *L)
{
    const struct s3_parts *p = lua_touserdata(L, 1);
    lua_createtable(L, (int)p->count, 1);
    for (size_t i = 0; i < p->count; i++) {
        lua_createtable(L, 0, 4);
        set_integer(L, "number", p->parts[i].number);
        set_integer(L, "size", p->parts[i].size);
        set_text(L, "etag", p->parts[i].etag);
        set_date(L, "modified", p->parts[i].modified);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    if (p->truncated)
        set_integer(L, "next_marker", p->next_marker);
    return 1;
}

PARSER(parts, struct s3_parts, s3_xml_parts, s3_parts_free)

/* s3xml.uploads(body) -> { {key, upload_id, initiated?}..., next_key?, next_upload_id? } */
static int push_uploads(lua_State *L)
{
    const struct s3_uploads *u = lua_touserdata(L, 1);
    lua_createtable(L, (int)u->count, 2);
    for (size_t i = 0; i < u->count; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, u->uploads[i].key);
        lua_setfield(L, -2, "key");
        set_text(L, "upload_id", u->uploads[i].upload_id);
        set_date(L, "initiated", u->uploads[i].initiated);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    if (u->truncated) {
        set_text(L, "next_key", u->next_key);
        set_text(L, "next_upload_id", u->next_upload_id);
    }
    return 1;
}

PARSER(uploads, struct s3_uploads, s3_xml_uploads, s3_uploads_free)

/* s3xml.buckets(body) -> { {name, created?}... } */
static int push_buckets(lua_State *L)
{
    const struct s3_buckets *b = lua_touserdata(L, 1);
    lua_createtable(L, (int)b->count, 0);
    for (size_t i = 0; i < b->count; i++) {
        lua_createtable(L, 0, 2);
        set_text(L, "name", b->buckets[i].name);
        set_date(L, "created", b->buckets[i].created);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

PARSER(buckets, struct s3_buckets, s3_xml_buckets, s3_buckets_free)

/* s3xml.deleted(body) -> { {key, code, message?}... }: what was not deleted */
static int push_deleted(lua_State *L)
{
    const struct s3_delete_failures *f = lua_touserdata(L, 1);
    lua_createtable(L, (int)f->count, 0);
    for (size_t i = 0; i < f->count; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, f->failures[i].key);
        lua_setfield(L, -2, "key");
        set_text(L, "code", f->failures[i].code);
        set_text(L, "message", f->failures[i].message);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

PARSER(deleted, struct s3_delete_failures, s3_xml_deleted, s3_delete_failures_free)

/* s3xml.sts(body) -> { access_key, secret_key, session_token, expires? } */
static int push_sts(lua_State *L)
{
    const struct sts_keys *k = lua_touserdata(L, 1);
    lua_createtable(L, 0, 4);
    set_text(L, "access_key", k->access);
    set_text(L, "secret_key", k->secret);
    set_text(L, "session_token", k->token);
    set_date(L, "expires", k->expires);
    return 1;
}

PARSER(sts, struct sts_keys, s3_xml_sts, sts_keys_free)

static int push_string(lua_State *L)
{
    lua_pushstring(L, lua_touserdata(L, 1));
    return 1;
}

static int push_value(lua_State *L, int (*parse)(const char *, size_t, char **, struct nc_err *))
{
    size_t len;
    const char *body = luaL_checklstring(L, 1, &len);
    char *value;
    struct nc_err err;
    if (parse(body, len, &value, &err))
        return fail(L, &err);
    int rc = push_protected(L, push_string, value);
    free(value);
    return rc ? lua_error(L) : 1;
}

/* s3xml.upload_id(body) -> string */
static int l_upload_id(lua_State *L)
{
    return push_value(L, s3_xml_upload_id);
}

/* s3xml.complete(body) -> etag */
static int l_complete(lua_State *L)
{
    return push_value(L, s3_xml_complete);
}

/* s3xml.copy(body) -> etag */
static int l_copy(lua_State *L)
{
    return push_value(L, s3_xml_copy);
}

/* s3xml.location(body) -> region */
static int l_location(lua_State *L)
{
    size_t len;
    const char *body = luaL_checklstring(L, 1, &len);
    char region[64];
    struct nc_err err;
    if (s3_xml_location(body, len, region, &err))
        return fail(L, &err);
    lua_pushstring(L, region);
    return 1;
}

/* Borrowed by the table it came from, which stays on the stack. */
static const char *check_element(lua_State *L, int type, const char *what)
{
    if (lua_type(L, -1) != type)
        luaL_error(L, "bad argument #1 (%s expected)", what);
    return lua_tostring(L, -1);
}

static int push_built(lua_State *L, struct buf *b, int rc)
{
    if (rc) {
        buf_free(b);
        return luaL_error(L, "bad argument #1 (a control character that XML can't hold)");
    }
    int raised = push_protected(L, push_string, b->data);
    buf_free(b);
    return raised ? lua_error(L) : 1;
}

/* s3xml.build_complete { {number, etag}... } -> body */
static int l_build_complete(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    size_t count = lua_rawlen(L, 1);
    struct s3_part *parts = lua_newuserdatauv(L, (count + 1) * sizeof *parts, 0);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, 1, (lua_Integer)i + 1);
        check_element(L, LUA_TTABLE, "a list of parts");
        lua_getfield(L, -1, "number");
        check_element(L, LUA_TNUMBER, "a number in each part");
        lua_Integer number = lua_tointeger(L, -1);
        lua_getfield(L, -2, "etag");
        const char *etag = check_element(L, LUA_TSTRING, "an etag in each part");
        luaL_argcheck(L, number >= 1 && number <= 10000, 1, "part numbers go from 1 to 10000");
        parts[i] = (struct s3_part){.number = (unsigned)number, .etag = (char *)etag};
        lua_pop(L, 3);
    }
    struct buf b;
    buf_init(&b, 8 << 20);
    return push_built(L, &b, s3_xml_build_complete(&b, parts, count));
}

/* s3xml.build_delete { key... } -> body */
static int l_build_delete(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    size_t count = lua_rawlen(L, 1);
    const char **keys = lua_newuserdatauv(L, (count + 1) * sizeof *keys, 0);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, 1, (lua_Integer)i + 1);
        keys[i] = check_element(L, LUA_TSTRING, "a list of keys");
        if (strlen(keys[i]) != lua_rawlen(L, -1))
            return luaL_error(L, "bad argument #1 (a key holds a NUL byte)");
        lua_pop(L, 1);
    }
    struct buf b;
    buf_init(&b, 8 << 20);
    return push_built(L, &b, s3_xml_build_delete(&b, keys, count));
}

static const luaL_Reg functions[] = {
    {"buckets", l_buckets},
    {"build_complete", l_build_complete},
    {"build_delete", l_build_delete},
    {"complete", l_complete},
    {"copy", l_copy},
    {"deleted", l_deleted},
    {"error", l_error},
    {"listing", l_listing},
    {"location", l_location},
    {"parts", l_parts},
    {"sts", l_sts},
    {"upload_id", l_upload_id},
    {"uploads", l_uploads},
    {NULL, NULL},
};

int luaopen_nc_s3xml(lua_State *L)
{
    luaL_newlib(L, functions);
    return 1;
}
