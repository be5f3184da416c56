/* The process-wide state of ncdev: options, the store, keys, rules, counters, the hub. Made by
 * main before the first connection and freed after the last; its parts lock themselves. */
#ifndef NCDEV_SERVER_H
#define NCDEV_SERVER_H

#include "counters.h"
#include "faults.h"
#include "hub_repo.h"
#include "options.h"
#include "store.h"
#include "throttle.h"

#include <stdatomic.h>

struct keys {
    char access_key[129];
    char secret_key[129];
    char session_token[1025]; /* "" where none is wanted */
    unsigned char cdn[32];    /* signs CDN URLs; drawn at start */
};

struct server {
    struct options opt;
    struct store store;
    struct hub hub;
    struct faults faults;
    struct counters counters;
    struct throttle rate[SIDES][2]; /* 0: in, 1: out */
    pthread_mutex_t keys_lock;
    struct keys keys; /* take a copy with server_keys */
    uint16_t port, cdn_port;
    atomic_bool stopping;
    atomic_uint_fast64_t next_id; /* of requests */
};

void server_keys(struct server *s, struct keys *out);
int64_t server_now(const struct server *s); /* seconds since 1970, by the clock= option */

#endif
