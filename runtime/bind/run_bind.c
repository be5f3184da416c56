/* nc.core.run: sinks and the supervisor. lua/nc/supervise.lua and
 * lua/nc/logs.lua use them. */
#include <math.h>
#include <string.h>

#include "bind/bind.h"
#include "loop/loop.h"
#include "run/supervisor.h"

#define SINK "nc.sink"
#define SUPERVISOR "nc.supervisor"

enum { SINKS_MAX = 8 };

/* ---- sinks ---- */

static struct sink *check_sink(lua_State *L, int index)
{
    struct sink **s = luaL_checkudata(L, index, SINK);
    if (!*s)
        luaL_argerror(L, index, "the sink is closed");
    return *s;
}

/* A sink's userdata, still closed. [-0, +1, m] */
static struct sink **new_sink(lua_State *L)
{
    struct sink **s = lua_newuserdatauv(L, sizeof(struct sink *), 0);
    *s = NULL;
    luaL_setmetatable(L, SINK);
    return s;
}

/* run.sink(fd | path) -> sink */
static int l_sink(lua_State *L)
{
    struct nc_err err;
    struct sink **s = new_sink(L);
    int failed = lua_type(L, 1) == LUA_TNUMBER ? sink_new_fd(s, (int)luaL_checkinteger(L, 1), &err)
                                               : sink_new_file(s, luaL_checkstring(L, 1), &err);
    return failed ? bind_raise(L, &err, "sink") : 1;
}

/* sink:feed(data): all of it, or what there is room for within a second */
static int sink_l_feed(lua_State *L)
{
    size_t len;
    struct sink *s = check_sink(L, 1);
    const char *data = luaL_checklstring(L, 2, &len);
    sink_feed(s, data, len);
    return 0;
}

/* sink:put(data, from) -> the index of the first byte that there was no room for */
static int sink_l_put(lua_State *L)
{
    size_t len;
    struct sink *s = check_sink(L, 1);
    const char *data = luaL_checklstring(L, 2, &len);
    lua_Integer from = luaL_checkinteger(L, 3);
    luaL_argcheck(L, from >= 1 && (size_t)from <= len + 1, 3, "out of range");
    size_t n = sink_put(s, data + from - 1, len - (size_t)from + 1);
    lua_pushinteger(L, from + (lua_Integer)n);
    return 1;
}

/* sink:empty() -> a token that comes once all is written, or can't be */
static int sink_l_empty(lua_State *L)
{
    struct sink *s = check_sink(L, 1);
    uint64_t token = loop_token(loop_main());
    sink_when_empty(s, token);
    lua_pushinteger(L, (lua_Integer)token);
    return 1;
}

/* sink:flush(seconds) -> whether all is written; waits, in C, while anything moves */
static int sink_l_flush(lua_State *L)
{
    struct sink *s = check_sink(L, 1);
    uint64_t ms = (uint64_t)(luaL_checknumber(L, 2) * 1000);
    lua_pushboolean(L, sink_flush(s, ms, ms));
    return 1;
}

/* sink:state() -> { written=, lost=, closed=, error= sentence | nil } */
static int sink_l_state(lua_State *L)
{
    struct sink_state state = sink_state(check_sink(L, 1));
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, (lua_Integer)state.written);
    lua_setfield(L, -2, "written");
    lua_pushinteger(L, (lua_Integer)state.lost);
    lua_setfield(L, -2, "lost");
    lua_pushboolean(L, state.closed);
    lua_setfield(L, -2, "closed");
    if (state.error) {
        lua_pushstring(L, strerror(state.error));
        lua_setfield(L, -2, "error");
    }
    return 1;
}

static int sink_l_close(lua_State *L)
{
    struct sink **s = luaL_checkudata(L, 1, SINK);
    sink_free(*s);
    *s = NULL;
    return 0;
}

static const luaL_Reg sink_methods[] = {
    {"feed", sink_l_feed},   {"put", sink_l_put},     {"empty", sink_l_empty},
    {"flush", sink_l_flush}, {"state", sink_l_state}, {NULL, NULL},
};

static const luaL_Reg sink_metamethods[] = {
    {"__gc", sink_l_close},
    {"__close", sink_l_close},
    {NULL, NULL},
};

/* ---- the supervisor ---- */

struct supervision {
    struct supervisor *s; /* NULL: closed */
    uint64_t told_token, warned_token, over_token;
};

static struct supervision *check_supervision(lua_State *L)
{
    struct supervision *v = luaL_checkudata(L, 1, SUPERVISOR);
    if (!v->s)
        luaL_argerror(L, 1, "it is closed");
    return v;
}

/* run.supervise(argv, env, { cwd=, grace=, stdin= "null" | "inherit" }, { sink, ... }) ->
 * supervisor env is a list of "NAME=value", grace in seconds. */
static int l_supervise(lua_State *L)
{
    static const char *const stdins[] = {"null", "inherit", NULL};
    static const enum child_io ios[] = {CHILD_NULL, CHILD_INHERIT};
    struct supervisor_options opt = {
        .command.argv = bind_check_strings(L, 1, "argv"),
        .command.envp = bind_check_strings(L, 2, "env"),
    };
    luaL_argcheck(L, opt.command.argv[0], 1, "empty");
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_getfield(L, 3, "stdin");
    opt.command.stream[0].io = ios[luaL_checkoption(L, -1, "null", stdins)];
    lua_getfield(L, 3, "grace");
    opt.grace_ms = (uint64_t)ceil(luaL_checknumber(L, -1) * 1000);
    lua_getfield(L, 3, "cwd");
    opt.command.cwd = luaL_optstring(L, -1, NULL);

    luaL_checktype(L, 4, LUA_TTABLE);
    struct sink *sinks[SINKS_MAX];
    opt.sink_count = lua_rawlen(L, 4);
    luaL_argcheck(L, opt.sink_count <= SINKS_MAX, 4, "too many");
    for (size_t i = 0; i < opt.sink_count; i++) {
        lua_rawgeti(L, 4, (lua_Integer)i + 1);
        sinks[i] = check_sink(L, -1);
        lua_pop(L, 1);
    }
    opt.sinks = sinks;

    struct supervision *v = lua_newuserdatauv(L, sizeof *v, 1);
    *v = (struct supervision){NULL, loop_token(loop_main()), loop_token(loop_main()),
                              loop_token(loop_main())};
    luaL_setmetatable(L, SUPERVISOR);
    lua_pushvalue(L, 4); /* it keeps the sinks alive */
    lua_setiuservalue(L, -2, 1);
    opt.told_token = v->told_token;
    opt.warned_token = v->warned_token;
    opt.over_token = v->over_token;
    struct nc_err err;
    if (supervisor_start(&v->s, &opt, &err))
        return bind_raise(L, &err, "supervise");
    return 1;
}

/* run.hold_signals(): USR1 and USR2 no longer end us; until the command starts they are dropped */
static int l_hold_signals(lua_State *L)
{
    (void)L;
    supervisor_hold_signals();
    return 0;
}

/* supervisor:tokens() -> told, over, warned: when it was first asked to stop (with the signal's
 * number as the value), when all is over, and each time that a USR1 came */
static int supervisor_l_tokens(lua_State *L)
{
    struct supervision *v = check_supervision(L);
    lua_pushinteger(L, (lua_Integer)v->told_token);
    lua_pushinteger(L, (lua_Integer)v->over_token);
    lua_pushinteger(L, (lua_Integer)v->warned_token);
    return 3;
}

/* supervisor:stop(): as a TERM from outside */
static int supervisor_l_stop(lua_State *L)
{
    supervisor_stop(check_supervision(L)->s);
    return 0;
}

/* supervisor:ended() -> whether the command itself has ended */
static int supervisor_l_ended(lua_State *L)
{
    lua_pushboolean(L, supervisor_ended(check_supervision(L)->s));
    return 1;
}

/* supervisor:result() -> code, signal; once it is over */
static int supervisor_l_result(lua_State *L)
{
    struct supervisor_result result = supervisor_result(check_supervision(L)->s);
    lua_pushinteger(L, result.code);
    lua_pushinteger(L, result.signal);
    return 2;
}

static int supervisor_l_close(lua_State *L)
{
    struct supervision *v = luaL_checkudata(L, 1, SUPERVISOR);
    supervisor_free(v->s);
    v->s = NULL;
    return 0;
}

static const luaL_Reg supervisor_methods[] = {
    {"tokens", supervisor_l_tokens},
    {"stop", supervisor_l_stop},
    {"ended", supervisor_l_ended},
    {"result", supervisor_l_result},
    {NULL, NULL},
};

static const luaL_Reg supervisor_metamethods[] = {
    {"__gc", supervisor_l_close},
    {"__close", supervisor_l_close},
    {NULL, NULL},
};

static const luaL_Reg functions[] = {
    {"hold_signals", l_hold_signals},
    {"sink", l_sink},
    {"supervise", l_supervise},
    {NULL, NULL},
};

static void add_class(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods)
{
    luaL_newmetatable(L, name);
    luaL_setfuncs(L, meta, 0);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

int luaopen_nc_run(lua_State *L)
{
    add_class(L, SINK, sink_metamethods, sink_methods);
    add_class(L, SUPERVISOR, supervisor_metamethods, supervisor_methods);
    luaL_newlib(L, functions);
    return 1;
}
