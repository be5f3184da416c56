/* nc.core.json: JSON through jansson. lua/nc/json.lua is what is meant to be used.
 *
 * Both directions build under a protected call, so that a Lua error (memory) frees the C side too.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bind/bind.h"

/* A table that is a list even when it is empty. */
#define ARRAY "nc.json.array"

struct work {
    json_t *root;
    lua_Integer depth; /* of containers within containers, at most */
    const char *why;   /* what can't be encoded */
};

/* ---- decode ---- */

static void push_value(lua_State *L, const json_t *value, lua_Integer depth);

static void push_array(lua_State *L, const json_t *array, lua_Integer depth)
{
    size_t n = json_array_size(array);
    lua_createtable(L, (int)(n < 1 << 20 ? n : 1 << 20), 0);
    for (size_t i = 0; i < n; i++) {
        push_value(L, json_array_get(array, i), depth);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    luaL_setmetatable(L, ARRAY);
}

static void push_object(lua_State *L, const json_t *object, lua_Integer depth)
{
    const char *key;
    json_t *value;
    lua_createtable(L, 0, (int)(json_object_size(object) & 0xfffff));
    json_object_foreach((json_t *)object, key, value)
    {
        lua_pushstring(L, key);
        push_value(L, value, depth);
        lua_rawset(L, -3);
    }
}

static void push_value(lua_State *L, const json_t *value, lua_Integer depth)
{
    luaL_checkstack(L, 4, "JSON is nested too deep");
    switch (json_typeof(value)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        if (depth <= 0)
            luaL_error(L, "it is nested too deep");
        if (json_is_array(value))
            push_array(L, value, depth - 1);
        else
            push_object(L, value, depth - 1);
        break;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        lua_pushinteger(L, json_integer_value(value));
        break;
    case JSON_REAL:
        lua_pushnumber(L, json_real_value(value));
        break;
    case JSON_NULL:
        lua_pushlightuserdata(L, NULL);
        break;
    default:
        lua_pushboolean(L, json_is_true(value));
    }
}

static int push_root(lua_State *L)
{
    const struct work *w = lua_touserdata(L, 1);
    push_value(L, w->root, w->depth);
    return 1;
}

static int bad_json(lua_State *L, const char *why)
{
    struct nc_err err;
    nc_err_set(&err, "BadJson", "not usable JSON: %s", why);
    lua_pushnil(L);
    bind_push_error(L, &err, "json");
    return 2;
}

/* json.decode(text, max_depth) -> value; nil and an error object for bad JSON */
static int l_decode(lua_State *L)
{
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len);
    struct work w = {.depth = luaL_checkinteger(L, 2)};
    json_error_t error;
    w.root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!w.root) {
        char why[JSON_ERROR_TEXT_LENGTH + 64];
        snprintf(why, sizeof why, "%s (line %d, column %d)", error.text, error.line, error.column);
        return bad_json(L, why);
    }
    lua_pushcfunction(L, push_root);
    lua_pushlightuserdata(L, &w);
    int rc = lua_pcall(L, 1, 1, 0);
    json_decref(w.root);
    if (rc == LUA_ERRRUN)
        return bad_json(L, "it is nested too deep");
    return rc ? lua_error(L) : 1;
}

/* ---- encode ---- */

/* The number of elements of the list at the top of the stack; -1 for a map, -2 for neither. */
static lua_Integer list_length(lua_State *L)
{
    lua_Integer n = 0, length = (lua_Integer)lua_rawlen(L, -1);
    bool marked = false, words = false, others = false;
    if (lua_getmetatable(L, -1)) {
        luaL_getmetatable(L, ARRAY);
        marked = lua_rawequal(L, -1, -2);
        lua_pop(L, 2);
    }
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1), n++) {
        if (lua_type(L, -2) == LUA_TSTRING)
            words = true;
        else if (!lua_isinteger(L, -2) || lua_tointeger(L, -2) < 1 || lua_tointeger(L, -2) > length)
            others = true;
    }
    if (words)
        return others || marked || length ? -2 : -1;
    if (others || n != length)
        return -2;
    return n || marked ? n : -1;
}

static json_t *to_scalar(lua_State *L, struct work *w)
{
    size_t len;
    const char *s;
    json_t *value = NULL;
    switch (lua_type(L, -1)) {
    case LUA_TSTRING:
        s = lua_tolstring(L, -1, &len);
        value = json_stringn(s, len);
        w->why = "a string that is not UTF-8";
        break;
    case LUA_TNUMBER:
        value = lua_isinteger(L, -1) ? json_integer(lua_tointeger(L, -1))
                                     : json_real(lua_tonumber(L, -1));
        w->why = "a number that is not finite";
        break;
    case LUA_TBOOLEAN:
        value = json_boolean(lua_toboolean(L, -1));
        break;
    case LUA_TLIGHTUSERDATA:
        value = lua_touserdata(L, -1) ? NULL : json_null();
        w->why = "a light userdata that is not null";
        break;
    default:
        w->why = lua_typename(L, lua_type(L, -1));
    }
    if (value)
        w->why = NULL;
    return value;
}

static bool add_value(lua_State *L, struct work *w, json_t *parent, const char *key, size_t len,
                      lua_Integer depth);

/* The table at the top of the stack into `into`. False with w->why set when it can't be. */
static bool fill(lua_State *L, struct work *w, json_t *into, lua_Integer length, lua_Integer depth)
{
    bool ok = true;
    for (lua_Integer i = 1; i <= length && ok; i++) {
        lua_rawgeti(L, -1, i);
        ok = add_value(L, w, into, NULL, 0, depth);
        lua_pop(L, 1);
    }
    if (length >= 0)
        return ok;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        size_t len;
        const char *key = lua_tolstring(L, -2, &len);
        if (!add_value(L, w, into, key, len, depth)) {
            lua_pop(L, 2);
            return false;
        }
    }
    return true;
}

/* The value at the top of the stack into the parent, which owns it from then on. */
static bool add_value(lua_State *L, struct work *w, json_t *parent, const char *key, size_t len,
                      lua_Integer depth)
{
    luaL_checkstack(L, 6, "JSON is nested too deep");
    bool table = lua_istable(L, -1);
    lua_Integer length = table ? list_length(L) : 0;
    json_t *value;
    if (!table)
        value = to_scalar(L, w);
    else if (depth <= 0 || length == -2)
        value = NULL;
    else
        value = length >= 0 ? json_array() : json_object();
    if (table && !value)
        w->why = depth <= 0 ? "a table nested too deep (or that holds itself)"
                            : "a table that is neither a list nor a map of strings";
    if (!value)
        return false;
    int rc =
        key ? json_object_setn_new(parent, key, len, value) : json_array_append_new(parent, value);
    if (rc) {
        w->why = "a key that is not UTF-8";
        return false;
    }
    return table ? fill(L, w, value, length, depth - 1) : true;
}

static int build_root(lua_State *L)
{
    struct work *w = lua_touserdata(L, 2);
    lua_settop(L, 1);
    if (add_value(L, w, w->root, NULL, 0, w->depth))
        w->why = NULL;
    return 0;
}

/* json.encode(value, indent or nil, max_depth) -> string; nil and what stands in the way */
static int l_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    size_t flags = JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
    lua_Integer indent = luaL_optinteger(L, 2, 0);
    luaL_argcheck(L, indent >= 0 && indent <= 8, 2, "must be from 0 to 8");
    flags |= indent ? JSON_INDENT((size_t)indent) : JSON_COMPACT;
    struct work w = {.root = json_array(), .depth = luaL_checkinteger(L, 3)};
    if (!w.root)
        return luaL_error(L, "out of memory");
    lua_pushcfunction(L, build_root);
    lua_pushvalue(L, 1);
    lua_pushlightuserdata(L, &w);
    int rc = lua_pcall(L, 2, 0, 0);
    if (rc) {
        json_decref(w.root);
        return lua_error(L);
    }
    char *text = w.why ? NULL : json_dumps(json_array_get(w.root, 0), flags);
    json_decref(w.root);
    if (!text) {
        lua_pushnil(L);
        lua_pushstring(L, w.why ? w.why : "more than memory holds");
        return 2;
    }
    lua_pushstring(L, text); /* no NUL in it: jansson escapes them */
    free(text);
    return 1;
}

/* json.array(t) -> t, marked as a list */
static int l_array(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    luaL_setmetatable(L, ARRAY);
    return 1;
}

static const luaL_Reg functions[] = {
    {"array", l_array},
    {"decode", l_decode},
    {"encode", l_encode},
    {NULL, NULL},
};

int luaopen_nc_json(lua_State *L)
{
    luaL_newmetatable(L, ARRAY);
    luaL_newlib(L, functions);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    return 1;
}
