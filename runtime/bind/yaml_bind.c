/* nc.core.yaml: YAML as flat lists. lua/nc/yaml.lua makes them from values and values from them.
 *
 * In such a list a map is MAP, key, value, ..., END, a list LIST, value, ..., END. Scalars stand
 * for themselves; NULL is null. */
#include <stdlib.h>
#include <string.h>

#include "bind/bind.h"
#include "yaml/emit.h"
#include "yaml/parse.h"

#define EMITTER "nc.yaml.emitter"
#define READER "nc.yaml.reader"
#define TEXT_MAX ((size_t)64 << 20)

/* Their addresses are the marks. */
static char mark_map, mark_list, mark_end, mark_document, mark_alias, mark_anchor, mark_merge;

/* ---- write ---- */

struct emitter {
    struct yaml_emitter *yaml;
    struct buf out;
};

static int free_emitter(lua_State *L)
{
    struct emitter *e = luaL_checkudata(L, 1, EMITTER);
    if (e->yaml)
        yaml_emit_close(e->yaml, NULL);
    e->yaml = NULL;
    buf_free(&e->out);
    return 0;
}

static struct emitter *new_emitter(lua_State *L)
{
    struct emitter *e = lua_newuserdatauv(L, sizeof *e, 0);
    e->yaml = NULL;
    buf_init(&e->out, TEXT_MAX);
    luaL_setmetatable(L, EMITTER);
    e->yaml = yaml_emit_open(&e->out);
    if (!e->yaml)
        luaL_error(L, "out of memory");
    return e;
}

static void emit_mark(lua_State *L, struct yaml_emitter *yaml, const void *mark)
{
    if (!mark)
        yaml_emit_plain(yaml, "null");
    else if (mark == &mark_map)
        yaml_emit_map(yaml);
    else if (mark == &mark_list)
        yaml_emit_list(yaml);
    else if (mark == &mark_end)
        yaml_emit_end(yaml);
    else
        luaL_error(L, "a light userdata that is no mark");
}

/* The item at the top of the stack. */
static void emit_item(lua_State *L, struct yaml_emitter *yaml)
{
    size_t len;
    const char *s;
    switch (lua_type(L, -1)) {
    case LUA_TLIGHTUSERDATA:
        emit_mark(L, yaml, lua_touserdata(L, -1));
        break;
    case LUA_TBOOLEAN:
        yaml_emit_plain(yaml, lua_toboolean(L, -1) ? "true" : "false");
        break;
    case LUA_TSTRING:
        s = lua_tolstring(L, -1, &len);
        yaml_emit_string(yaml, s, len);
        break;
    default:
        luaL_error(L, "not in YAML: %s", luaL_typename(L, -1));
    }
}

/* yaml.emit(items, plain) -> string; nil and an error object. plain[i] is the text of the number
 * that is the i-th item. */
static int l_emit(lua_State *L)
{
    struct nc_err err;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    struct emitter *e = new_emitter(L);
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_rawgeti(L, 1, i) == LUA_TNUMBER) {
            lua_rawgeti(L, 2, i);
            yaml_emit_plain(e->yaml, luaL_checkstring(L, -1));
            lua_pop(L, 1);
        } else {
            emit_item(L, e->yaml);
        }
        lua_pop(L, 1);
    }
    int rc = yaml_emit_close(e->yaml, &err);
    e->yaml = NULL;
    if (rc) {
        lua_pushnil(L);
        bind_push_error(L, &err, "yaml");
        return 2;
    }
    lua_pushlstring(L, buf_str(&e->out), e->out.len);
    buf_free(&e->out);
    return 1;
}

/* ---- read ---- */

static int free_reader(lua_State *L)
{
    struct yaml_reader **r = luaL_checkudata(L, 1, READER);
    yaml_parse_close(*r);
    *r = NULL;
    return 0;
}

static void push_scalar(lua_State *L, const struct yaml_item *item)
{
    switch (item->value.type) {
    case YAML_TYPE_STRING:
        lua_pushlstring(L, item->text, item->len);
        break;
    case YAML_TYPE_NULL:
        lua_pushlightuserdata(L, NULL);
        break;
    case YAML_TYPE_BOOL:
        lua_pushboolean(L, item->value.truth);
        break;
    case YAML_TYPE_INT:
        lua_pushinteger(L, item->value.integer);
        break;
    case YAML_TYPE_FLOAT:
        lua_pushnumber(L, item->value.number);
        break;
    }
}

/* Where parse puts its items: three lists, at these places of the stack. */
enum { AT_ITEMS = 2, AT_LINES = 3, AT_TEXTS = 4 };

/* Appends the value at the top of the stack. */
static void append(lua_State *L, const struct yaml_item *item, lua_Integer *n)
{
    lua_rawseti(L, AT_ITEMS, ++*n);
    lua_pushinteger(L, (lua_Integer)item->line);
    lua_rawseti(L, AT_LINES, *n);
}

static void append_mark(lua_State *L, const struct yaml_item *item, void *mark, lua_Integer *n)
{
    lua_pushlightuserdata(L, mark);
    append(L, item, n);
}

static void append_item(lua_State *L, const struct yaml_item *item, lua_Integer *n)
{
    void *const marks[] = {
        [YAML_ITEM_DOCUMENT] = &mark_document, [YAML_ITEM_MAP] = &mark_map,
        [YAML_ITEM_LIST] = &mark_list,         [YAML_ITEM_END] = &mark_end,
        [YAML_ITEM_ALIAS] = &mark_alias,
    };
    if (item->anchor && item->kind != YAML_ITEM_ALIAS) {
        append_mark(L, item, &mark_anchor, n);
        lua_pushstring(L, item->anchor);
        append(L, item, n);
    }
    if (item->kind == YAML_ITEM_SCALAR) {
        push_scalar(L, item);
        append(L, item, n);
        if (item->is_merge)
            lua_pushlightuserdata(L, &mark_merge);
        else
            lua_pushlstring(L, item->text, item->len);
        lua_rawseti(L, AT_TEXTS, *n);
        return;
    }
    append_mark(L, item, marks[item->kind], n);
    if (item->kind == YAML_ITEM_ALIAS) {
        lua_pushstring(L, item->anchor);
        append(L, item, n);
    }
}

/* yaml.parse(text) -> items, lines, texts; nil and an error object. Besides MAP, LIST and END there
 * are DOCUMENT before each document, ANCHOR and a name before what has one, ALIAS and a name. lines
 * holds each item's line, texts what was written for each scalar (MERGE for an unquoted <<). */
static int l_parse(lua_State *L)
{
    size_t len;
    struct nc_err err;
    struct yaml_item item;
    lua_Integer n = 0;
    int rc;
    const char *text = luaL_checklstring(L, 1, &len);
    lua_settop(L, 1);
    for (int i = 0; i < 3; i++)
        lua_newtable(L);
    struct yaml_reader **r = lua_newuserdatauv(L, sizeof(struct yaml_reader *), 0);
    *r = NULL;
    luaL_setmetatable(L, READER);
    *r = yaml_parse_open(text, len);
    if (!*r)
        return luaL_error(L, "out of memory");
    while ((rc = yaml_parse_next(*r, &item, &err)) > 0)
        append_item(L, &item, &n);
    yaml_parse_close(*r);
    *r = NULL;
    if (rc < 0) {
        lua_pushnil(L);
        bind_push_error(L, &err, "yaml");
        return 2;
    }
    lua_settop(L, AT_TEXTS);
    return 3;
}

static const luaL_Reg functions[] = {
    {"emit", l_emit},
    {"parse", l_parse},
    {NULL, NULL},
};

static void set_mark(lua_State *L, const char *name, void *mark)
{
    lua_pushlightuserdata(L, mark);
    lua_setfield(L, -2, name);
}

static void new_class(lua_State *L, const char *name, lua_CFunction gc)
{
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

int luaopen_nc_yaml(lua_State *L)
{
    new_class(L, EMITTER, free_emitter);
    new_class(L, READER, free_reader);
    luaL_newlib(L, functions);
    set_mark(L, "MAP", &mark_map);
    set_mark(L, "LIST", &mark_list);
    set_mark(L, "END", &mark_end);
    set_mark(L, "DOCUMENT", &mark_document);
    set_mark(L, "ALIAS", &mark_alias);
    set_mark(L, "ANCHOR", &mark_anchor);
    set_mark(L, "MERGE", &mark_merge);
    return 1;
}
