/* `require` in a Lua state of ours: the modules in C, and the Lua files that are inside the binary.
 */
#ifndef NC_BIND_REQUIRE_H
#define NC_BIND_REQUIRE_H

#include <lauxlib.h>
#include <lua.h>

/* `require` then looks inside the binary only: with empty paths the searchers that come after ours
 * find nothing, until `ncrun test` sets them for busted. The standard libraries are open. [-0, +0,
 * e]
 */
void bind_set_up_require(lua_State *L);

/* Pushes the chunk of an embedded module, named by its path; false, and nothing pushed, when there
 * is none. [-0, +(0|1), e] */
int bind_load_embedded(lua_State *L, const char *name);

#endif
