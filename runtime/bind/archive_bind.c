/* nc.core.archive: unpacking. lua/nc/archive.lua uses it. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "archive/unpack.h"
#include "bind/bind.h"
#include "loop/loop.h"

#define UNPACKER "nc.unpacker"

enum { PIPE_ROOM = 1024 * 1024 };

struct unpacker {
    struct unpack *unpack; /* NULL: closed */
    int fd; /* where the archive is written to; -1: it comes from a file, or all is */
    uint64_t token;
};

static struct unpacker *check_unpacker(lua_State *L)
{
    struct unpacker *u = luaL_checkudata(L, 1, UNPACKER);
    if (!u->unpack)
        luaL_argerror(L, 1, "it is closed");
    return u;
}

static int raise_errno(lua_State *L, const char *name)
{
    struct nc_err err;
    nc_err_sys(&err, errno, "read %s", name);
    return bind_raise(L, &err, "unpack");
}

/* archive.unpack(name, folder, path | nil) -> unpacker. Reads the archive from path, or from what
 * is written to unpacker:fd(); name is for messages. */
static int l_unpack(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    const char *folder = luaL_checkstring(L, 2);
    const char *path = luaL_optstring(L, 3, NULL);
    struct unpacker *u = lua_newuserdatauv(L, sizeof *u, 0);
    *u = (struct unpacker){NULL, -1, loop_token(loop_main())};
    luaL_setmetatable(L, UNPACKER);
    int ends[2] = {-1, -1};
    if (path)
        ends[0] = open(path, O_RDONLY | O_CLOEXEC);
    else if (pipe2(ends, O_CLOEXEC))
        ends[0] = -1;
    if (ends[0] < 0)
        return raise_errno(L, name);
    u->fd = ends[1];
    if (u->fd >= 0)
        fcntl(u->fd, F_SETPIPE_SZ, PIPE_ROOM); /* or what the system grants */
    struct nc_err err;
    struct unpack_options opt = {ends[0], name, folder, u->token};
    return unpack_start(&u->unpack, &opt, &err) ? bind_raise(L, &err, "unpack") : 1;
}

/* unpacker:token() -> the token that comes at its end */
static int unpacker_l_token(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)check_unpacker(L)->token);
    return 1;
}

/* unpacker:fd() -> where to write the archive's bytes */
static int unpacker_l_fd(lua_State *L)
{
    lua_pushinteger(L, check_unpacker(L)->fd);
    return 1;
}

static void end_input(struct unpacker *u)
{
    if (u->fd >= 0)
        close(u->fd);
    u->fd = -1;
}

/* unpacker:no_more(): the archive is at its end */
static int unpacker_l_no_more(lua_State *L)
{
    end_input(check_unpacker(L));
    return 0;
}

/* unpacker:result() -> files, bytes; raises why it ended early. After its end. */
static int unpacker_l_result(lua_State *L)
{
    struct unpack_result result;
    struct nc_err err;
    if (unpack_result(check_unpacker(L)->unpack, &result, &err))
        return bind_raise(L, &err, "unpack");
    lua_pushinteger(L, (lua_Integer)result.files);
    lua_pushinteger(L, (lua_Integer)result.bytes);
    return 2;
}

static int unpacker_l_close(lua_State *L)
{
    struct unpacker *u = luaL_checkudata(L, 1, UNPACKER);
    end_input(u);
    unpack_free(u->unpack);
    u->unpack = NULL;
    return 0;
}

static const luaL_Reg methods[] = {
    {"token", unpacker_l_token},   {"fd", unpacker_l_fd}, {"no_more", unpacker_l_no_more},
    {"result", unpacker_l_result}, {NULL, NULL},
};

static const luaL_Reg metamethods[] = {
    {"__gc", unpacker_l_close},
    {"__close", unpacker_l_close},
    {NULL, NULL},
};

static const luaL_Reg functions[] = {
    {"unpack", l_unpack},
    {NULL, NULL},
};

int luaopen_nc_archive(lua_State *L)
{
    luaL_newmetatable(L, UNPACKER);
    luaL_setfuncs(L, metamethods, 0);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
