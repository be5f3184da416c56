/* nc.core.proc: a child process as an object; lua/nc/proc.lua makes it a pleasant one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bind/bind.h"
#include "loop/child.h"

#define CHILD "nc.child"

static const char *const streams[] = {"stdin", "stdout", "stderr", NULL};

static struct child *check(lua_State *L)
{
    return luaL_checkudata(L, 1, CHILD);
}

/* "null", "inherit", "pipe", "stdout" or "file:PATH", from field `name` of the options.
 * [-0, +1, v]: the string stays on the stack while it is borrowed */
static struct child_stream check_stream(lua_State *L, int index, const char *name)
{
    static const char *const words[] = {
        [CHILD_NULL] = "null",
        [CHILD_INHERIT] = "inherit",
        [CHILD_PIPE] = "pipe",
        [CHILD_STDOUT] = "stdout",
    };
    lua_getfield(L, index, name);
    const char *s = luaL_checkstring(L, -1);
    if (strncmp(s, "file:", 5) == 0)
        return (struct child_stream){CHILD_FILE, s + 5};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i] && strcmp(s, words[i]) == 0)
            return (struct child_stream){(enum child_io)i, NULL};
    }
    luaL_error(L, "%s: %s", name, s);
    return (struct child_stream){0};
}

/* proc.spawn(argv, env, { stdin=, stdout=, stderr=, cwd= }) -> child
 * env is a list of "NAME=value". */
static int l_spawn(lua_State *L)
{
    struct child_options opt = {
        .argv = bind_check_strings(L, 1, "argv"),
        .envp = bind_check_strings(L, 2, "env"),
    };
    luaL_argcheck(L, opt.argv[0], 1, "empty");
    luaL_checktype(L, 3, LUA_TTABLE);
    for (int i = 0; i < 3; i++)
        opt.stream[i] = check_stream(L, 3, streams[i]);
    lua_getfield(L, 3, "cwd");
    opt.cwd = luaL_optstring(L, -1, NULL);

    /* The object is there, ended, before the process: nothing can fail in between. */
    struct child *c = lua_newuserdatauv(L, sizeof *c, 0);
    *c = (struct child){.pidfd = -1, .fd = {-1, -1, -1}, .ended = true};
    luaL_setmetatable(L, CHILD);
    struct nc_err err;
    if (child_spawn(c, &opt, &err))
        return bind_raise(L, &err, "spawn");
    return 1;
}

/* child:pid() -> integer */
static int l_pid(lua_State *L)
{
    lua_pushinteger(L, check(L)->pid);
    return 1;
}

/* child:exit_fd() -> descriptor that is readable once the child has ended */
static int l_exit_fd(lua_State *L)
{
    lua_pushinteger(L, check(L)->pidfd);
    return 1;
}

/* child:fd("stdin" | "stdout" | "stderr") -> our end of that pipe, or nil */
static int l_fd(lua_State *L)
{
    int fd = check(L)->fd[luaL_checkoption(L, 2, NULL, streams)];
    if (fd < 0)
        return 0;
    lua_pushinteger(L, fd);
    return 1;
}

/* child:signal(number) -> whether anybody got it; the whole group does */
static int l_signal(lua_State *L)
{
    lua_pushboolean(L, child_signal(check(L), (int)luaL_checkinteger(L, 2)));
    return 1;
}

/* child:signal_rest(number) -> whether any of its group is left, which then has got it */
static int l_signal_rest(lua_State *L)
{
    lua_pushboolean(L, child_signal_rest(check(L), (int)luaL_checkinteger(L, 2)));
    return 1;
}

/* child:reap() -> code, signal; nothing while it runs */
static int l_reap(lua_State *L)
{
    struct child *c = check(L);
    if (!child_reap(c))
        return 0;
    lua_pushinteger(L, c->code);
    lua_pushinteger(L, c->signal);
    return 2;
}

/* child:read("stdout" | "stderr") -> string; "" at the end; nil when there is nothing yet */
static int l_read(lua_State *L)
{
    char data[65536];
    int fd = check(L)->fd[luaL_checkoption(L, 2, NULL, streams)];
    ssize_t n = fd < 0 ? 0 : read(fd, data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    lua_pushlstring(L, data, n > 0 ? (size_t)n : 0);
    return 1;
}

/* child:write(data, from) -> the index of the first byte not yet written; nil once nobody reads */
static int l_write(lua_State *L)
{
    size_t len;
    int fd = check(L)->fd[0];
    const char *data = luaL_checklstring(L, 2, &len);
    lua_Integer from = luaL_checkinteger(L, 3);
    luaL_argcheck(L, from >= 1 && (size_t)from <= len + 1, 3, "out of range");
    ssize_t n = fd < 0 ? 0 : write(fd, data + from - 1, len - (size_t)from + 1);
    if (fd < 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return 0;
    lua_pushinteger(L, from + (n > 0 ? n : 0));
    return 1;
}

/* child:close("stdin" | "stdout" | "stderr") */
static int l_close(lua_State *L)
{
    child_close(check(L), luaL_checkoption(L, 2, NULL, streams));
    return 0;
}

static int l_free(lua_State *L)
{
    child_free(check(L));
    return 0;
}

static const luaL_Reg methods[] = {
    {"pid", l_pid},
    {"exit_fd", l_exit_fd},
    {"fd", l_fd},
    {"signal", l_signal},
    {"signal_rest", l_signal_rest},
    {"reap", l_reap},
    {"read", l_read},
    {"write", l_write},
    {"close", l_close},
    {NULL, NULL},
};

static const luaL_Reg metamethods[] = {
    {"__gc", l_free},
    {"__close", l_free},
    {NULL, NULL},
};

static const luaL_Reg functions[] = {
    {"spawn", l_spawn},
    {NULL, NULL},
};

int luaopen_nc_proc(lua_State *L)
{
    luaL_newmetatable(L, CHILD);
    luaL_setfuncs(L, metamethods, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
