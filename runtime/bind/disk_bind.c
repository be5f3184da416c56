/* nc.core.disk: what a copy in a folder needs beside plain io. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "bind/bind.h"
#include "disk/afar.h"

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
    double seconds;
    struct nc_err err;
    if (afar_clock(luaL_checkstring(L, 1), &seconds, &err))
        return bind_raise(L, &err, "clock");
    lua_pushnumber(L, seconds);
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

/* ---- folders ---- */

struct entry {
    char *name; /* a folder's ends with '/' */
    struct stat st;
    int why; /* errno of its stat, where that failed */
};

struct entries {
    struct entry *v;
    size_t count, room;
};

static void entries_free(struct entries *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->v[i].name);
    free(e->v);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Looks at one name, through symbolic links. */
static int add_entry(struct entries *e, int dir, const char *name)
{
    if (e->count == e->room) {
        size_t room = e->room ? e->room * 2 : 64;
        struct entry *v = realloc(e->v, room * sizeof *v);
        if (!v)
            return -1;
        e->v = v;
        e->room = room;
    }
    struct entry *n = &e->v[e->count];
    *n = (struct entry){0};
    size_t len = strlen(name);
    n->name = malloc(len + 2);
    if (!n->name)
        return -1;
    memcpy(n->name, name, len + 1);
    e->count++;
    n->why = fstatat(dir, name, &n->st, 0) ? errno : 0;
    if (!n->why && S_ISDIR(n->st.st_mode))
        memcpy(n->name + len, "/", 2);
    return 0;
}

static int read_folder(const char *path, struct entries *out)
{
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    errno = 0;
    for (struct dirent *d; (d = readdir(dir)); errno = 0) {
        bool dots = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0;
        if (!dots && add_entry(out, dirfd(dir), d->d_name))
            break;
    }
    int saved = errno; /* 0 where the folder was at its end */
    closedir(dir);
    errno = saved;
    return saved ? -1 : 0;
}

static const char *kind_of(const struct entry *e)
{
    if (e->why == ENOENT || e->why == ELOOP)
        return "a link that leads nowhere";
    if (e->why)
        return strerror(e->why);
    return S_ISSOCK(e->st.st_mode) ? "a socket" : S_ISFIFO(e->st.st_mode) ? "a pipe" : "a device";
}

/* The three values of one entry, at the end of the list on top. */
static void push_entry(lua_State *L, const struct entry *e, lua_Integer at)
{
    lua_pushstring(L, e->name);
    lua_rawseti(L, -2, at);
    if (!e->why && S_ISREG(e->st.st_mode)) {
        lua_pushinteger(L, e->st.st_size);
        lua_rawseti(L, -2, at + 1);
        lua_pushnumber(L,
                       (lua_Number)e->st.st_mtim.tv_sec + (lua_Number)e->st.st_mtim.tv_nsec / 1e9);
    } else {
        lua_pushboolean(L, false);
        lua_rawseti(L, -2, at + 1);
        if (!e->why && S_ISDIR(e->st.st_mode))
            lua_pushfstring(L, "%I:%I", (lua_Integer)e->st.st_dev, (lua_Integer)e->st.st_ino);
        else
            lua_pushstring(L, kind_of(e));
    }
    lua_rawseti(L, -2, at + 2);
}

/* disk.scan(path) -> { name, size, mtime, ... }: three values for each entry of a folder, so that a
 * large one makes no table each. A folder in it is "name/", false, its identity as in
 * sys.stat; what is neither is name, false, what it is. In the order of the names' bytes, which is
 * that in which a bucket lists keys. Symbolic links are followed. */
static int l_scan(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct entries e = {0};
    if (read_folder(path, &e)) {
        int saved = errno;
        entries_free(&e);
        errno = saved;
        return raise_errno(L, "list", path);
    }
    if (e.count)
        qsort(e.v, e.count, sizeof *e.v, by_name);
    lua_createtable(L, (int)e.count * 3, 0);
    for (size_t i = 0; i < e.count; i++)
        push_entry(L, &e.v[i], (lua_Integer)i * 3 + 1);
    entries_free(&e);
    return 1;
}

/* disk.alias(path, at): `at` becomes another name (a symbolic link) of the file at path */
static int l_alias(lua_State *L)
{
    char whole[PATH_MAX];
    const char *path = luaL_checkstring(L, 1);
    if (!realpath(path, whole) || symlink(whole, luaL_checkstring(L, 2)))
        return raise_errno(L, "open", path);
    return 0;
}

/* disk.rename(from, to): in place of what `to` named before; on the disk when it returns */
static int l_rename(lua_State *L)
{
    const char *from = luaL_checkstring(L, 1), *to = luaL_checkstring(L, 2);
    if (rename(from, to) || sync_folder_of(to))
        return raise_errno(L, "rename a file to", to);
    return 0;
}

/* disk.is_written(path) -> whether somebody has the file open for writing; nil where the file
 * system can't say. A read lease is granted only where nobody has; it is given back at once. */
static int l_is_written(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return raise_errno(L, "open", path);
    fcntl(fd, F_SETSIG,
          SIGURG); /* which is ignored; SIGIO would end us, should a writer come now */
    int rc = fcntl(fd, F_SETLEASE, F_RDLCK);
    int why = rc ? errno : 0;
    if (rc == 0)
        fcntl(fd, F_SETLEASE, F_UNLCK);
    close(fd);
    if (why && why != EAGAIN)
        return 0;
    lua_pushboolean(L, why);
    return 1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path) && errno != ENOENT ? -1 : 0;
}

/* disk.remove_tree(path): the folder and all that is in it; links are removed, not followed */
static int l_remove_tree(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    if (nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) && errno != ENOENT)
        return raise_errno(L, "remove", path);
    return 0;
}

static const luaL_Reg functions[] = {
    {"alias", l_alias},   {"clock", l_clock},     {"is_written", l_is_written},
    {"look", l_look},     {"remove", l_remove},   {"remove_tree", l_remove_tree},
    {"rename", l_rename}, {"replace", l_replace}, {"scan", l_scan},
    {"space", l_space},   {NULL, NULL},
};

int luaopen_nc_disk(lua_State *L)
{
    luaL_newlib(L, functions);
    return 1;
}
