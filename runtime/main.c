/* ncrun: starts, and hands over to lua/cli/main.lua in its one protected call. */
#include <fcntl.h>
#include <lualib.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/embed.h"
#include "base/null.h"
#include "bind/require.h"
#include "loop/loop.h"
#include "net/trust.h"

enum { FILES_ENOUGH = 65536 };

/* What escapes cli.main is a bug of ours: with its traceback. */
static int add_traceback(lua_State *L)
{
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
    return 1;
}

/* The whole Lua side, protected: argc and argv in, the exit code out. */
static int run(lua_State *L)
{
    int argc = (int)lua_tointeger(L, 1);
    char **argv = lua_touserdata(L, 2);
    luaL_checkversion(L);
    luaL_openlibs(L);
    bind_set_up_require(L);
    lua_settop(L, 0);
    luaL_checkstack(L, argc + 1, "too many arguments");
    if (!bind_load_embedded(L, "cli.main"))
        return luaL_error(L, "cli.main is not in this binary");
    for (int i = 1; i < argc; i++)
        lua_pushstring(L, argv[i]);
    lua_call(L, argc - 1, 1);
    return 1;
}

/* 0 to 2 must be open, or the next descriptor opened would become someone's stdout. */
static void open_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && (null_open(fd != 0) != fd || fcntl(fd, F_SETFD, 0)))
            abort();
    }
}

/* A thousand requests in flight are as many connections. Some programs that we start visit every
 * number up to the limit, and where it is a thousand million they are never seen again: not all of
 * it, then. */
static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= FILES_ENOUGH)
        return;
    files.rlim_cur = files.rlim_max < FILES_ENOUGH ? files.rlim_max : FILES_ENOUGH;
    setrlimit(RLIMIT_NOFILE, &files);
}

int main(int argc, char **argv)
{
    loop_catch_signals(); /* first of all: until then a PID 1 loses the TERM it is sent */
    /* An image's own openssl.cnf may name modules that are not here. */
    OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    open_standard_streams();
    raise_file_limit();
    prctl(PR_SET_DUMPABLE, 0); /* memory holds credentials: no core file, no /proc/PID/environ */
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a child leaves behind is ours to end, not init's */
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct embed_file *ca = embed_find("ca-certificates");
    if (ca)
        trust_offer(ca->start, (size_t)(ca->end - ca->start));

    struct nc_err err;
    struct loop *loop = NULL;
    int code = 1;
    lua_State *L = luaL_newstate();
    if (!L || loop_new(&loop, &err)) {
        fprintf(stderr, "ncrun: %s\n", L ? err.message : "out of memory");
        goto out;
    }
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, run);
    lua_pushinteger(L, argc);
    lua_pushlightuserdata(L, argv);
    if (lua_pcall(L, 2, 1, 1))
        fprintf(stderr, "ncrun: %s\n", lua_tostring(L, -1));
    else
        code = (int)lua_tointeger(L, -1);
out:
    if (L)
        lua_close(L);
    loop_free(loop);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "ncrun: standard output could not be written\n");
        code = code ? code : 1;
    }
    return code;
}
