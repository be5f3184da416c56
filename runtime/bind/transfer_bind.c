/* nc.core.transfer: the transfer engine. lua/nc/transfer.lua is its face. */
#include "bind/http_bind.h"

#include "base/clock.h"
#include "loop/loop.h"
#include "transfer/ends.h"

#include <stdlib.h>
#include <string.h>

#define TRANSFER "nc.transfer"

struct bound_transfer {
    struct transfer *t;
    uint64_t token;
    bool started;
};

static struct bound_transfer *check_transfer(lua_State *L)
{
    struct bound_transfer *b = luaL_checkudata(L, 1, TRANSFER);
    if (!b->t)
        luaL_argerror(L, 1, "the transfer is closed");
    return b;
}

static int transfer_close(lua_State *L)
{
    struct bound_transfer *b = luaL_checkudata(L, 1, TRANSFER);
    transfer_free(b->t);
    b->t = NULL;
    return 0;
}

static void ended(void *arg)
{
    struct bound_transfer *b = arg;
    loop_post(loop_main(), b->token, 0);
}

/* The end that the table at the top describes; what it borrows goes into user value `slot`. */
static struct source *make_source(lua_State *L, int owner)
{
    static const char *const kinds[] = {"hub", "s3", "dir", NULL};
    int table = lua_gettop(L);
    lua_getfield(L, table, "kind");
    int kind = luaL_checkoption(L, -1, NULL, kinds);
    if (kind == 2) {
        lua_settop(L, table);
        return source_dir_new(bind_need_string(L, table, "root"));
    }
    lua_getfield(L, table, "client");
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, owner, 1);
    struct source *s = kind == 0 ? source_hub_new(bind_check_hub(L, lua_gettop(L)),
                                                  bind_need_string(L, table, "repository"),
                                                  bind_need_string(L, table, "commit"))
                                 : source_s3_new(bind_check_s3(L, lua_gettop(L)),
                                                 bind_need_string(L, table, "prefix"));
    lua_settop(L, table);
    return s;
}

/* The folder that the source table at index describes, or NULL. Borrowed from the table. */
static const char *source_folder(lua_State *L, int index)
{
    const char *kind = bind_string(L, index, "kind");
    return kind && strcmp(kind, "dir") == 0 ? bind_string(L, index, "root") : NULL;
}

/* The bucket that the table at `table` describes. source: where on the stack the source's is. */
static struct sink *make_sink_s3(lua_State *L, int owner, int table, int source)
{
    const char *prefix = bind_need_string(L, table, "prefix");
    struct s3_client *from = NULL;
    lua_getfield(L, table, "client");
    struct s3_client *to = bind_check_s3(L, lua_gettop(L));
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, owner, 2);
    if (strcmp(bind_need_string(L, source, "kind"), "s3") == 0) {
        lua_getfield(L, source, "client");
        from = bind_check_s3(L, lua_gettop(L));
    }
    struct sink *s = sink_s3_new(to, prefix, source_folder(L, source));
    if (s && from && s3_client_same_service(from, to) &&
        sink_s3_copies_from(s, from, bind_need_string(L, source, "prefix"))) {
        s->free(s);
        s = NULL;
    }
    return s;
}

/* source: where on the stack the source's table is, which has been made use of already. */
static struct sink *make_sink(lua_State *L, int owner, int source)
{
    static const char *const kinds[] = {"s3", "dir", "none", NULL};
    int table = lua_gettop(L);
    lua_getfield(L, table, "kind");
    int kind = luaL_checkoption(L, -1, NULL, kinds);
    struct sink *s = NULL;
    if (kind == 0) {
        s = make_sink_s3(L, owner, table, source);
    } else if (kind == 1) {
        s = sink_dir_new(bind_need_string(L, table, "root"), source_folder(L, source));
    } else {
        s = sink_none_new();
    }
    lua_settop(L, table);
    return s;
}

/* transfer.new { source = { kind = "hub", client, repository, commit } | { kind = "s3", client,
 * prefix } | { kind = "dir", root }, sink = { kind = "s3", client, prefix } | { kind = "dir", root
 * } | { kind = "none" }, memory, parallel, part_size, limit_rate, stall, sha256, growing } ->
 * transfer sha256: every file's is computed; else where one is expected. growing: files are added
 * after the start too, until no_more. */
static int l_new(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    struct transfer_options options = {
        .pool = bind_pool(L),
        .memory = (uint64_t)bind_integer(L, 1, "memory", 0),
        .parallel = (unsigned)bind_integer(L, 1, "parallel", 0),
        .part_size = (uint64_t)bind_integer(L, 1, "part_size", 0),
        .limit_rate = (uint64_t)bind_integer(L, 1, "limit_rate", 0),
        .sha256 = bind_bool(L, 1, "sha256"),
        .growing = bind_bool(L, 1, "growing"),
        .ended = ended,
    };
    lua_getfield(L, 1, "stall");
    options.stall_ms = (uint32_t)(luaL_optnumber(L, -1, 0) * 1000);
    lua_pop(L, 1);
    struct bound_transfer *b = lua_newuserdatauv(L, sizeof *b, 2);
    *b = (struct bound_transfer){0};
    luaL_setmetatable(L, TRANSFER);
    b->token = loop_token(loop_main());
    options.arg = b;
    lua_getfield(L, 1, "sink");
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_getfield(L, 1, "source");
    luaL_checktype(L, -1, LUA_TTABLE);
    /* Nothing below may raise between making the first end and handing both over. */
    options.source = make_source(L, 2);
    lua_pushvalue(L, 3);
    options.sink = options.source ? make_sink(L, 2, 4) : NULL;
    struct nc_err err;
    if (!options.sink) {
        if (options.source)
            options.source->free(options.source);
        return luaL_error(L, "out of memory");
    }
    if (transfer_new(&b->t, &options, &err))
        return bind_raise(L, &err, "transfer");
    lua_settop(L, 2);
    return 1;
}

/* Calls use(file, n - 1, text) for each list[n] = text of field `name` of the table at 2, and
 * returns how often. */
static uint32_t each_part(lua_State *L, struct file *f, const char *name,
                          int (*use)(struct file *f, uint32_t index, const char *text))
{
    uint32_t count = 0;
    if (lua_getfield(L, 2, name) == LUA_TNIL) {
        lua_pop(L, 1);
        return 0;
    }
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_pushnil(L);
    for (; lua_next(L, -2); count++) {
        lua_Integer number = luaL_checkinteger(L, -2);
        if (number < 1 || number > f->parts ||
            use(f, (uint32_t)number - 1, luaL_checkstring(L, -1)))
            luaL_error(L, "%s: %s[%d] can't be used", f->path, name, (int)number);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return count;
}

static int expect(struct file *f, uint32_t index, const char *xxh3)
{
    struct nc_err ignored;
    return transfer_expect(f, index, xxh3, &ignored);
}

/* transfer:add { path, size, sha256, blob, version, etag, part_size, parts, upload_id, etags }: all
 * but path and size may be nil. parts[n]: the XXH3-128 that part n must have, of every part.
 * version: whatever identifies the content, so that another run can go on with a half-written file.
 * etag: the source's. etags[n]: of part n, stored by an earlier run under upload_id. */
static int l_add(lua_State *L)
{
    struct bound_transfer *b = check_transfer(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    lua_Integer size = bind_integer(L, 2, "size", -1);
    luaL_argcheck(L, size >= 0, 2, "no size");
    struct transfer_file wanted = {
        .path = bind_need_string(L, 2, "path"),
        .size = (uint64_t)size,
        .sha256 = bind_string(L, 2, "sha256"),
        .blob = bind_string(L, 2, "blob"),
        .version = bind_string(L, 2, "version"),
        .etag = bind_string(L, 2, "etag"),
        .part_size = (uint64_t)bind_integer(L, 2, "part_size", 0),
    };
    const char *upload_id = bind_string(L, 2, "upload_id");
    struct nc_err err;
    struct file *f = transfer_add(b->t, &wanted, &err);
    if (!f || (upload_id && transfer_continue(f, upload_id, &err)))
        return bind_raise(L, &err, "transfer");
    uint32_t digests = each_part(L, f, "parts", expect);
    if (digests && digests != f->parts)
        return luaL_error(L, "%s: digests of %d parts, and it has %d", f->path, (int)digests,
                          (int)f->parts);
    if (upload_id)
        each_part(L, f, "etags", transfer_has_part);
    return 0;
}

/* transfer:go_on(): begins what was added since */
static int l_go_on(lua_State *L)
{
    transfer_go_on(check_transfer(L)->t);
    return 0;
}

/* transfer:stop(): cancels it, and waits until all is at rest */
static int l_transfer_stop(lua_State *L)
{
    transfer_stop(check_transfer(L)->t);
    return 0;
}

/* transfer:unfinished() -> list of { path, upload_id }: after the end, uploads that were begun and
 * neither completed nor given up */
static int l_unfinished(lua_State *L)
{
    struct bound_transfer *b = check_transfer(L);
    lua_newtable(L);
    const struct file *f = NULL;
    for (lua_Integer i = 1; (f = transfer_next_unfinished(b->t, f)); i++) {
        lua_createtable(L, 0, 2);
        lua_pushstring(L, f->path);
        lua_setfield(L, -2, "path");
        lua_pushstring(L, f->upload_id);
        lua_setfield(L, -2, "upload_id");
        lua_rawseti(L, -2, i);
    }
    return 1;
}

/* transfer:no_more(): a growing one has all its files */
static int l_no_more(lua_State *L)
{
    transfer_no_more(check_transfer(L)->t);
    return 0;
}

/* transfer:start() -> token: its event is the end */
static int l_start(lua_State *L)
{
    struct bound_transfer *b = check_transfer(L);
    luaL_argcheck(L, !b->started, 1, "the transfer has started");
    b->started = true;
    transfer_start(b->t);
    lua_pushinteger(L, (lua_Integer)b->token);
    return 1;
}

static int l_cancel(lua_State *L)
{
    transfer_cancel(check_transfer(L)->t);
    return 0;
}

static void set_integer(lua_State *L, const char *name, uint64_t value)
{
    lua_pushinteger(L, (lua_Integer)value);
    lua_setfield(L, -2, name);
}

/* transfer:stats() -> table of numbers; idle_ms since bytes last moved */
static int l_stats(lua_State *L)
{
    struct transfer_stats s;
    transfer_stats(check_transfer(L)->t, &s);
    lua_createtable(L, 0, 12);
    set_integer(L, "bytes_total", s.bytes_total);
    set_integer(L, "bytes_done", s.bytes_done);
    set_integer(L, "bytes_in", s.bytes_in);
    set_integer(L, "bytes_out", s.bytes_out);
    set_integer(L, "files_total", s.files_total);
    set_integer(L, "files_done", s.files_done);
    set_integer(L, "files_failed", s.files_failed);
    set_integer(L, "files_waiting", s.files_waiting);
    set_integer(L, "retries", s.retries);
    set_integer(L, "idle_ms", clock_ms() - s.moved_ms);
    set_integer(L, "memory", s.memory);
    set_integer(L, "parallel", s.parallel);
    return 1;
}

/* What all its bytes were compared with. */
static const char *verified_by(const struct file *f)
{
    if (f->expected && !f->cloned && !f->continued)
        return "parts";
    if (!f->hashes)
        return NULL;
    return f->wanted_sha256 ? "sha256" : f->blob[0] ? "blob" : NULL;
}

static void push_digests(lua_State *L, const struct file *f)
{
    if (f->sha256[0]) {
        lua_pushstring(L, f->sha256);
        lua_setfield(L, -2, "sha256");
    }
    for (uint32_t i = 0; i < f->parts; i++) {
        if (!f->digests[i][0])
            return;
    }
    lua_createtable(L, (int)f->parts, 0);
    for (uint32_t i = 0; i < f->parts; i++) {
        lua_pushstring(L, f->digests[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "parts");
}

static void push_file(lua_State *L, const struct file *f)
{
    lua_createtable(L, 0, 12);
    lua_pushstring(L, f->path);
    lua_setfield(L, -2, "path");
    set_integer(L, "size", f->size);
    set_integer(L, "part_size", f->part_size);
    set_integer(L, "moved", f->moved);
    lua_pushboolean(L, f->continued);
    lua_setfield(L, -2, "continued");
    lua_pushboolean(L, f->orphans);
    lua_setfield(L, -2, "orphans");
    if (f->state == FILE_FAILED) {
        bind_push_error(L, f->err, "transfer");
        lua_setfield(L, -2, "error");
        return;
    }
    lua_pushstring(L, verified_by(f));
    lua_setfield(L, -2, "verified");
    push_digests(L, f);
}

/* transfer:ended() -> list of files that have ended since the last call: { path, size, part_size,
 * moved, continued, orphans, verified, sha256, parts = { digest ... } } or, failed, { path, ...,
 * error }. moved: bytes that came in this run. verified: "parts", "sha256", "blob" or nil, what its
 * bytes were compared with. sha256 and parts: where they are known. */
static int l_ended(lua_State *L)
{
    struct bound_transfer *b = check_transfer(L);
    lua_newtable(L);
    struct file *f;
    for (lua_Integer i = 1; (f = transfer_next_ended(b->t)); i++) {
        push_file(L, f);
        lua_rawseti(L, -2, i);
    }
    return 1;
}

/* transfer:failure() -> error object of what ended the whole job, or nil */
static int l_failure(lua_State *L)
{
    struct nc_err err;
    if (transfer_failed(check_transfer(L)->t, &err))
        bind_push_error(L, &err, "transfer");
    else
        lua_pushnil(L);
    return 1;
}

static const luaL_Reg transfer_methods[] = {
    {"add", l_add},
    {"start", l_start},
    {"go_on", l_go_on},
    {"no_more", l_no_more},
    {"cancel", l_cancel},
    {"stats", l_stats},
    {"stop", l_transfer_stop},
    {"unfinished", l_unfinished},
    {"ended", l_ended},
    {"failure", l_failure},
    {"close", transfer_close},
    {NULL, NULL},
};

static const luaL_Reg functions[] = {{"new", l_new}, {NULL, NULL}};

struct transfer *bind_opt_transfer(lua_State *L, int index)
{
    struct bound_transfer *b = lua_isnil(L, index) ? NULL : luaL_checkudata(L, index, TRANSFER);
    return b ? b->t : NULL;
}

int luaopen_nc_transfer(lua_State *L)
{
    luaL_newmetatable(L, TRANSFER);
    lua_newtable(L);
    luaL_setfuncs(L, transfer_methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, transfer_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, transfer_close);
    lua_setfield(L, -2, "__close");
    luaL_newlib(L, functions);
    return 1;
}
