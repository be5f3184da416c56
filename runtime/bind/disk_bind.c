/* nc.core.disk: what a copy in a folder needs beside plain io. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "bind/bind.h"

static int raise_errno(lua_State *L, const char *what, const char *path)
{
    struct nc_err err;
    nc_err_sys(&err, errno, "%s %s", what, path);
    return bind_raise(L, &err, what);
}

/* disk.space(path) -> bytes that may still be written there; nil where the file system does not
 * say (some FUSE mounts give 0 blocks in all) */
static int l_space(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct statvfs st;
    if (statvfs(path, &st))
        return raise_errno(L, "look at", path);
    if (!st.f_blocks)
        return 0;
    lua_pushinteger(L, (lua_Integer)((uint64_t)st.f_bavail * st.f_frsize));
    return 1;
}

/* disk.remove(path) -> whether it was there */
static int l_remove(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    if (unlink(path) && errno != ENOENT)
        return raise_errno(L, "remove", path);
    lua_pushboolean(L, errno != ENOENT);
    return 1;
}

static int write_all(int fd, const char *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = write(fd, data + at, len - at);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return -1;
    }
    return fsync(fd);
}

static int sync_folder_of(const char *path)
{
    char *folder = strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        *slash = '\0';
    int fd = slash ? open(slash == folder ? "/" : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int rc = fd < 0 || (fsync(fd) && errno != EINVAL) ? -1 : 0;
    if (fd >= 0)
        close(fd);
    free(folder);
    return rc;
}

/* disk.replace(path, text): the file holds text, whole and on the disk, or what it held before */
static int l_replace(lua_State *L)
{
    size_t len;
    const char *path = luaL_checkstring(L, 1);
    const char *text = luaL_checklstring(L, 2, &len);
    const char *temp = lua_pushfstring(L, "%s.%d.part", path, (int)getpid());
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int rc = fd < 0 || write_all(fd, text, len) ? -1 : 0;
    int saved = errno;
    if (fd >= 0 && close(fd) && rc == 0) {
        rc = -1;
        saved = errno;
    }
    if (rc == 0 && (rename(temp, path) || sync_folder_of(path))) {
        rc = -1;
        saved = errno;
    }
    if (rc) {
        unlink(temp);
        errno = saved;
        return raise_errno(L, "write", path);
    }
    return 0;
}

/* disk.clock(folder) -> seconds since 1970 by the clock of whoever keeps the folder (an NFS server,
 * say): the time it gives to a new file */
static int l_clock(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1);
    const char *pattern = lua_pushfstring(L, "%s/.clock.XXXXXX", folder);
    char *path = strdup(pattern);
    struct stat st;
    int fd = path ? mkstemp(path) : -1;
    int rc = fd < 0 || write(fd, "x", 1) != 1 || fstat(fd, &st) ? -1 : 0;
    int saved = errno;
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    free(path);
    errno = saved;
    if (rc)
        return raise_errno(L, "write a file into", folder);
    lua_pushnumber(L, (lua_Number)st.st_mtim.tv_sec + (lua_Number)st.st_mtim.tv_nsec / 1e9);
    return 1;
}

/* disk.look(path) -> { size=, allocated=, stamp= } of a plain file, or nil: bytes, bytes on the
 * disk, and a text that is another one whenever its content has been written or replaced */
static int l_look(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct stat st;
    if (stat(path, &st)) {
        if (errno == ENOENT || errno == ENOTDIR)
            return 0;
        return raise_errno(L, "look at", path);
    }
    if (!S_ISREG(st.st_mode))
        return 0;
    char stamp[96];
    snprintf(stamp, sizeof stamp, "%lld.%09ld %lld.%09ld", (long long)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, (lua_Integer)st.st_size);
    lua_setfield(L, -2, "size");
    lua_pushinteger(L, (lua_Integer)st.st_blocks * 512);
    lua_setfield(L, -2, "allocated");
    lua_pushstring(L, stamp);
    lua_setfield(L, -2, "stamp");
    return 1;
}

static const luaL_Reg functions[] = {
    {"clock", l_clock},     {"look", l_look},   {"remove", l_remove},
    {"replace", l_replace}, {"space", l_space}, {NULL, NULL},
};

int luaopen_nc_disk(lua_State *L)
{
    luaL_newlib(L, functions);
    return 1;
}
