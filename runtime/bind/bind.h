/* What the bindings share. These files alone include <lua.h>: a binding checks its arguments, makes
 * one call, pushes the result. */
#ifndef NC_BIND_BIND_H
#define NC_BIND_BIND_H

#include <lauxlib.h>
#include <lua.h>

#include "base/err.h"

/* Metatable of error objects in the registry; lua/nc/errors.lua gives it its methods. */
#define BIND_ERROR "nc.error"

/* An error object with err's code, message, status and retryable, and the operation's name.
 * [-0, +1, m] */
void bind_push_error(lua_State *L, const struct nc_err *err, const char *op);

/* Raises that object: release every resource first, it does not return. [-0, +0, v] */
int bind_raise(lua_State *L, const struct nc_err *err, const char *op);

/* A NULL-terminated array of the list's strings, which stay owned by the list. The array is a
 * userdata, so that it is freed whatever is raised. [-0, +1, v] */
char **bind_check_strings(lua_State *L, int index, const char *what);

/* The modules, each `nc.core.<area>`, opened by luaopen_nc_<area>. [-0, +1, m] */
#define BIND_AREAS(X)                                                                              \
    X(afar)                                                                                        \
    X(archive)                                                                                     \
    X(disk)                                                                                        \
    X(heartbeat)                                                                                   \
    X(http)                                                                                        \
    X(hub)                                                                                         \
    X(json)                                                                                        \
    X(lock)                                                                                        \
    X(loop)                                                                                        \
    X(proc)                                                                                        \
    X(run)                                                                                         \
    X(s3)                                                                                          \
    X(s3xml)                                                                                       \
    X(sys)                                                                                         \
    X(text)                                                                                        \
    X(transfer)                                                                                    \
    X(yaml)
#define BIND_DECLARE(area) int luaopen_nc_##area(lua_State *L);
BIND_AREAS(BIND_DECLARE)

#endif
