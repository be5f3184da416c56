/* nc.core.lock: how processes of one machine agree on who does what: a lock, and files of which one
 * process makes each. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <unistd.h>

#include "bind/bind.h"

#define LOCK "nc.lock"

static int raise_errno(lua_State *L, const char *what, const char *path)
{
    struct nc_err err;
    nc_err_sys(&err, errno, "%s %s", what, path);
    return bind_raise(L, &err, what);
}

/* lock.create(path, text) -> true; false when the name is taken already. Of many who try at once
 * one succeeds, on network file systems too. Not synced: this is for who is at work, not for what
 * lasts. */
static int l_create(lua_State *L)
{
    size_t len;
    const char *path = luaL_checkstring(L, 1);
    const char *text = luaL_checklstring(L, 2, &len);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) {
        lua_pushboolean(L, false);
        return 1;
    }
    ssize_t n = fd < 0 ? -1 : write(fd, text, len);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (n != (ssize_t)len) {
        if (fd >= 0)
            unlink(path);
        errno = n < 0 ? saved : ENOSPC;
        return raise_errno(L, "create", path);
    }
    lua_pushboolean(L, true);
    return 1;
}

static int lock_close(lua_State *L)
{
    int *fd = luaL_checkudata(L, 1, LOCK);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return 0;
}

/* Whether a lock on path that is held keeps others out. On some network file systems, and in some
 * sandboxes, flock succeeds and does nothing. */
static bool excludes(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool kept_out = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return kept_out;
}

/* lock.take(path) -> lock, sure; nil while another holds it. sure: it keeps everybody else out, as
 * a second try of ours has shown. Closable; gone with the process. The file is made and stays. */
static int l_take(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int *fd = lua_newuserdatauv(L, sizeof *fd, 0);
    *fd = -1;
    luaL_setmetatable(L, LOCK);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return raise_errno(L, "open", path);
    bool held = flock(*fd, LOCK_EX | LOCK_NB) == 0;
    if (!held && errno == EWOULDBLOCK) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushboolean(L, held && excludes(path));
    return 2;
}

static const luaL_Reg functions[] = {{"create", l_create}, {"take", l_take}, {NULL, NULL}};

int luaopen_nc_lock(lua_State *L)
{
    luaL_newmetatable(L, LOCK);
    lua_pushcfunction(L, lock_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, lock_close);
    lua_setfield(L, -2, "__close");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
