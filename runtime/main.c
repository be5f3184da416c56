/* ncrun: starts, and hands over to lua/cli/main.lua in its one protected call. */
#include <fcntl.h>
#include <lualib.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/embed.h"
#include "bind/bind.h"
#include "loop/loop.h"

#define MODULE(area) {"nc.core." #area, luaopen_nc_##area},
static const luaL_Reg core_modules[] = {BIND_AREAS(MODULE){NULL, NULL}};

/* Pushes the chunk of an embedded module, named by its path; false when there is none. */
static int load_embedded(lua_State *L, const char *name)
{
    for (uint64_t i = 0; i < embed_count; i++) {
        const struct embed_file *f = &embed_files[i];
        if (strcmp(f->name, name) == 0) {
            const char *path = luaL_gsub(L, name, ".", "/");
            lua_pushfstring(L, "@lua/%s.lua", path);
            if (luaL_loadbufferx(L, f->start, (size_t)(f->end - f->start), lua_tostring(L, -1),
                                 "t"))
                return lua_error(L);
            lua_rotate(L, -3, 1);
            lua_pop(L, 2);
            return 1;
        }
    }
    return 0;
}

static int search_embedded(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    if (!load_embedded(L, name)) {
        lua_pushfstring(L, "no module '%s' in this binary", name);
        return 1;
    }
    lua_pushliteral(L, ":embedded:");
    return 2;
}

/* `require` looks inside the binary only: with empty paths the searchers that come after ours find
 * nothing, until `ncrun test` sets them for busted. */
static void set_up_require(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    luaL_setfuncs(L, core_modules, 0);
    lua_getglobal(L, "package");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "path");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "cpath");
    lua_getfield(L, -1, "searchers");
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, -1); i >= 2; i--) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushcfunction(L, search_embedded);
    lua_rawseti(L, -2, 2);
    lua_pop(L, 3);
}

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
    set_up_require(L);
    lua_settop(L, 0);
    luaL_checkstack(L, argc + 1, "too many arguments");
    if (!load_embedded(L, "cli.main"))
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
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            abort();
    }
}

int main(int argc, char **argv)
{
    /* First of all: an image's own openssl.cnf may name modules that are not here. */
    OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    open_standard_streams();
    loop_catch_signals();
    prctl(PR_SET_DUMPABLE, 0); /* memory holds credentials: no core file, no /proc/PID/environ */
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a child leaves behind is ours to end, not init's */
    setvbuf(stdout, NULL, _IOLBF, 0);

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
