/* nc.core.sys: what Lua's own library lacks of the machine, and the files inside this binary. */
#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <libxml/parser.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "base/build_id.h"
#include "base/clock.h"
#include "base/embed.h"
#include "bind/bind.h"

static int raise_errno(lua_State *L, int saved, const char *op, const char *path)
{
    struct nc_err err;
    nc_err_sys(&err, saved, "%s %s", op, path);
    return bind_raise(L, &err, op);
}

/* ---- the process ---- */

/* sys.pid() -> integer */
static int l_pid(lua_State *L)
{
    lua_pushinteger(L, getpid());
    return 1;
}

/* sys.hostname() -> string; in a pod that is its name */
static int l_hostname(lua_State *L)
{
    char name[HOST_NAME_MAX + 1];
    if (gethostname(name, sizeof name))
        return raise_errno(L, errno, "gethostname", "of this machine");
    lua_pushstring(L, name);
    return 1;
}

/* sys.now() -> seconds on the monotonic clock */
static int l_now(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)clock_us() / 1e6);
    return 1;
}

/* sys.started() -> when this program started, on the same clock */
static int l_started(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    return 1;
}

/* sys.time() -> seconds since 1970, with their fraction */
static int l_time(lua_State *L)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    lua_pushnumber(L, (lua_Number)ts.tv_sec + (lua_Number)ts.tv_nsec / 1e9);
    return 1;
}

/* sys.environ() -> { NAME = value } */
static int l_environ(lua_State *L)
{
    lua_newtable(L);
    for (char **e = environ; *e; e++) {
        const char *eq = strchr(*e, '=');
        if (!eq)
            continue;
        lua_pushlstring(L, *e, (size_t)(eq - *e));
        lua_pushstring(L, eq + 1);
        lua_rawset(L, -3);
    }
    return 1;
}

/* sys.setenv(name, value | nil): before any thread that may read the environment */
static int l_setenv(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    const char *value = luaL_optstring(L, 2, NULL);
    if (value ? setenv(name, value, 1) : unsetenv(name))
        return raise_errno(L, errno, "setenv", name);
    return 0;
}

/* sys.quit(code): at once, nothing is closed */
static int l_quit(lua_State *L)
{
    _exit((int)luaL_checkinteger(L, 1));
}

/* ---- the terminal ---- */

/* sys.isatty(fd) -> boolean */
static int l_isatty(lua_State *L)
{
    lua_pushboolean(L, isatty((int)luaL_checkinteger(L, 1)));
    return 1;
}

/* sys.columns(fd) -> the terminal's width, nil when fd is none */
static int l_columns(lua_State *L)
{
    struct winsize size;
    if (ioctl((int)luaL_checkinteger(L, 1), TIOCGWINSZ, &size) || size.ws_col == 0)
        return 0;
    lua_pushinteger(L, size.ws_col);
    return 1;
}

/* ---- streams ---- */

static const char *stream_name(int fd)
{
    static const char *const names[] = {"stdin", "stdout", "stderr"};
    return fd >= 0 && fd <= 2 ? names[fd] : "a stream";
}

/* sys.read(fd, most) -> what is there now of up to `most` bytes, "" at the end. Waits where nothing
 * is: loop.watch tells when it will not. */
static int l_read(lua_State *L)
{
    int fd = (int)luaL_checkinteger(L, 1);
    size_t most = (size_t)luaL_checkinteger(L, 2);
    luaL_Buffer b;
    char *data = luaL_buffinitsize(L, &b, most);
    ssize_t n;
    do
        n = read(fd, data, most);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return raise_errno(L, errno, "read from", stream_name(fd));
    luaL_pushresultsize(&b, (size_t)n);
    return 1;
}

/* sys.write(fd, data, from) -> the index of the first byte that did not fit; past the end when all
 * did. A pipe that says it can be written to takes this many bytes without waiting. */
static int l_write(lua_State *L)
{
    size_t len;
    int fd = (int)luaL_checkinteger(L, 1);
    const char *data = luaL_checklstring(L, 2, &len);
    size_t at = (size_t)luaL_checkinteger(L, 3) - 1;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    while (at < len && poll(&ready, 1, 0) > 0) {
        ssize_t n = write(fd, data + at, len - at < PIPE_BUF ? len - at : PIPE_BUF);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0 && errno != EINTR)
            return raise_errno(L, errno, "write to", stream_name(fd));
        at += n > 0 ? (size_t)n : 0;
    }
    lua_pushinteger(L, (lua_Integer)at + 1);
    return 1;
}

/* ---- files ---- */

/* sys.stat(path) -> { type=, size=, mtime=, id= }, nil when there is none; id names the same file
 * under any path. Follows symbolic links. */
static int l_stat(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct stat st;
    if (stat(path, &st)) {
        if (errno == ENOENT || errno == ENOTDIR)
            return 0;
        return raise_errno(L, errno, "stat", path);
    }
    lua_createtable(L, 0, 4);
    lua_pushfstring(L, "%I:%I", (lua_Integer)st.st_dev, (lua_Integer)st.st_ino);
    lua_setfield(L, -2, "id");
    lua_pushstring(L, S_ISREG(st.st_mode) ? "file" : S_ISDIR(st.st_mode) ? "directory" : "other");
    lua_setfield(L, -2, "type");
    lua_pushinteger(L, st.st_size);
    lua_setfield(L, -2, "size");
    lua_pushnumber(L, (lua_Number)st.st_mtim.tv_sec + (lua_Number)st.st_mtim.tv_nsec / 1e9);
    lua_setfield(L, -2, "mtime");
    return 1;
}

/* sys.mkdir(path): with its parents; content when it is there already */
static int l_mkdir(lua_State *L)
{
    char path[PATH_MAX];
    const char *want = luaL_checkstring(L, 1);
    if ((size_t)snprintf(path, sizeof path, "%s", want) >= sizeof path)
        return raise_errno(L, ENAMETOOLONG, "mkdir", want);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) && errno != EEXIST)
            return raise_errno(L, errno, "mkdir", path);
        *slash = '/';
    }
    struct stat st;
    if (mkdir(path, 0777) && (errno != EEXIST || stat(path, &st) || !S_ISDIR(st.st_mode)))
        return raise_errno(L, errno, "mkdir", want);
    return 0;
}

/* sys.mkdtemp(prefix | nil) -> a new folder of our own, <prefix>.<6 letters>; the prefix is "ncrun"
 * under TMPDIR or /tmp where none is given */
static int l_mkdtemp(lua_State *L)
{
    const char *tmp = getenv("TMPDIR");
    char path[PATH_MAX];
    int len = lua_isnoneornil(L, 1)
                  ? snprintf(path, sizeof path, "%s/ncrun.XXXXXX", tmp && *tmp ? tmp : "/tmp")
                  : snprintf(path, sizeof path, "%s.XXXXXX", luaL_checkstring(L, 1));
    if ((size_t)len >= sizeof path)
        return raise_errno(L, ENAMETOOLONG, "mkdtemp", path);
    if (!mkdtemp(path))
        return raise_errno(L, errno, "mkdtemp", path);
    lua_pushstring(L, path);
    return 1;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

/* sys.readdir(path) -> sorted list of names */
static int l_readdir(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct dirent **entries;
    int n = scandir(path, &entries, not_dots, by_name);
    if (n < 0)
        return raise_errno(L, errno, "readdir", path);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushstring(L, entries[i]->d_name);
        lua_rawseti(L, -2, i + 1);
        free(entries[i]);
    }
    free(entries);
    return 1;
}

/* ---- this binary ---- */

/* sys.embedded(name) -> the text of "nc.task" or "recipes/serve.lua", or nil */
static int l_embedded(lua_State *L)
{
    const struct embed_file *f = embed_find(luaL_checkstring(L, 1));
    if (!f)
        return 0;
    lua_pushlstring(L, f->start, (size_t)(f->end - f->start));
    return 1;
}

/* sys.embedded_names() -> list, in the order of the build: sorted by path */
static int l_embedded_names(lua_State *L)
{
    lua_createtable(L, (int)embed_count, 0);
    for (uint64_t i = 0; i < embed_count; i++) {
        lua_pushstring(L, embed_files[i].name);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* sys.build_id() -> the digest of this build in hex, as `file` prints it */
static int l_build_id(lua_State *L)
{
    lua_pushstring(L, build_id());
    return 1;
}

static void add_version(lua_State *L, const char *what, const char *version)
{
    lua_pushfstring(L, "%s %s", what, version);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

/* sys.versions() -> list of "name version": ours, then the libraries' */
static int l_versions(lua_State *L)
{
    long xml = strtol(xmlParserVersion, NULL, 10); /* 20914 is 2.9.14 */
    lua_newtable(L);
    add_version(L, "ncrun", NC_VERSION);
    add_version(L, "Lua", LUA_VERSION_MAJOR "." LUA_VERSION_MINOR "." LUA_VERSION_RELEASE);
    const curl_version_info_data *curl = curl_version_info(CURLVERSION_NOW);
    add_version(L, "libcurl", curl->version);
    if (curl->ares)
        add_version(L, "c-ares", curl->ares);
    add_version(L, "OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING));
    char dotted[40];
    snprintf(dotted, sizeof dotted, "%ld.%ld.%ld", xml / 10000, xml / 100 % 100, xml % 100);
    add_version(L, "libxml2", dotted);
    add_version(L, "libyaml", yaml_get_version_string());
    add_version(L, "jansson", jansson_version_str());
    add_version(L, "glibc", gnu_get_libc_version());
    return 1;
}

/* sys.error_metatable() -> the one bind_push_error gives to error objects */
static int l_error_metatable(lua_State *L)
{
    luaL_newmetatable(L, BIND_ERROR);
    return 1;
}

static const luaL_Reg functions[] = {
    {"pid", l_pid},
    {"hostname", l_hostname},
    {"now", l_now},
    {"time", l_time},
    {"environ", l_environ},
    {"setenv", l_setenv},
    {"quit", l_quit},
    {"isatty", l_isatty},
    {"columns", l_columns},
    {"read", l_read},
    {"write", l_write},
    {"stat", l_stat},
    {"mkdir", l_mkdir},
    {"mkdtemp", l_mkdtemp},
    {"readdir", l_readdir},
    {"embedded", l_embedded},
    {"embedded_names", l_embedded_names},
    {"build_id", l_build_id},
    {"versions", l_versions},
    {"error_metatable", l_error_metatable},
    {NULL, NULL},
};

int luaopen_nc_sys(lua_State *L)
{
    luaL_newlib(L, functions);
    lua_pushnumber(L, (lua_Number)clock_us() / 1e6);
    lua_pushcclosure(L, l_started, 1);
    lua_setfield(L, -2, "started");
    return 1;
}
