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

/* Each opens one module, `nc.core.<area>`. [-0, +1, m] */
int luaopen_nc_json(lua_State *L);
int luaopen_nc_loop(lua_State *L);
int luaopen_nc_proc(lua_State *L);
int luaopen_nc_s3xml(lua_State *L);
int luaopen_nc_sys(lua_State *L);
int luaopen_nc_text(lua_State *L);

#endif
