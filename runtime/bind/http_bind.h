/* What the bindings of net/, s3/, hub/ and transfer/ share: the process's one HTTP pool, and calls
 * (one request each, whose end is an event of the loop). */
#ifndef NC_BIND_HTTP_BIND_H
#define NC_BIND_HTTP_BIND_H

#include "bind/bind.h"
#include "hub/hub.h"
#include "s3/s3.h"
#include "transfer/transfer.h"

#include <pthread.h>

/* Started at first use; ends with the Lua state. Raises. [-0, +0, v] */
struct http_pool *bind_pool(lua_State *L);

/* One request. Lua owns it; a collected or closed call cancels what is in flight and waits for its
 * end, so whatever it borrows (kept as its user values 1 to 3) lives long enough. */
struct call {
    union {
        struct http_request http;
        struct s3_request s3;
        struct hub_request hub;
    } u;
    struct http_request *http;
    void (*free_request)(struct call *c); /* NULL before the request was initialised */
    struct http_pool *pool;
    uint64_t token;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool started, over;
    char *url;  /* of a plain request */
    char *what; /* for messages, where the request does not make its own */
    char *path;
    char *ca_file;
    struct buf headers; /* of a plain request */
    struct hub_location location;
};

/* Pushes a new call. [-0, +1, m] */
struct call *bind_call_new(lua_State *L);
/* Takes body, max_body, attempts, timeout and stall from the options table at index; keeps the body
 * alive with the call, which is on top. [-0, +0, v] */
void bind_call_options(lua_State *L, struct call *c, int index);
/* Begins it; it is on top of the stack and stays there. [-0, +0, m] */
void bind_call_start(struct call *c);
/* For the done hook of whatever was started: the call's end. */
void bind_call_over(struct call *c);

/* A field of the table at index as a string or NULL; borrowed from the table. [-0, +0, v] */
const char *bind_string(lua_State *L, int index, const char *name);
/* Likewise a string that must be there. */
const char *bind_need_string(lua_State *L, int index, const char *name);
lua_Integer bind_integer(lua_State *L, int index, const char *name, lua_Integer absent);
bool bind_bool(lua_State *L, int index, const char *name);
/* Calls add(arg, name, value) for each { name, value } pair of the list in field `name`. */
void bind_each_pair(lua_State *L, int index, const char *name,
                    void (*add)(void *arg, const char *name, const char *value), void *arg);

struct s3_client *bind_check_s3(lua_State *L, int index);
struct hub *bind_check_hub(lua_State *L, int index);
/* NULL where it is nil, or closed. */
struct transfer *bind_opt_transfer(lua_State *L, int index);

#endif
