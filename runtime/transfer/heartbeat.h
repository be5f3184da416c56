/* The `.staging` heartbeat of a staged copy, written from a thread of its own, so that neither a
 * busy script nor a stuck disk can stop it or be stopped by it.
 *
 * Every interval_ms, and sooner when asked, but never twice within a second, it writes the text it
 * was given last, with the running transfer's numbers added. It stops by itself when that transfer
 * has moved nothing for stall_ms, so that nobody waits for a stage that is dead. A write that fails
 * is tried again at the next beat; the first is reported to the caller.
 */
#ifndef NC_TRANSFER_HEARTBEAT_H
#define NC_TRANSFER_HEARTBEAT_H

#include "s3/s3.h"
#include "transfer/transfer.h"

struct heartbeat;

struct heartbeat_options {
    struct http_pool *pool;
    struct s3_client *client; /* borrowed; with key ... */
    const char *key;
    const char *file;     /* ... or this file, replaced by rename */
    bool begun;           /* the caller has just written it: the first write is one interval away */
    uint32_t interval_ms; /* 0: 60,000 */
    uint32_t stall_ms;    /* 0: 600,000 */
    void (*written)(void *arg, bool ok); /* after the first write; on the heartbeat's thread */
    void *arg;
};

/* text: a JSON object without its closing brace. */
int heartbeat_start(struct heartbeat **out, const struct heartbeat_options *options,
                    const char *text, struct nc_err *err);
/* Another text. With now, it is written as soon as a second has passed since the last write. */
int heartbeat_set(struct heartbeat *h, const char *text, bool now);
/* Whose numbers to add; NULL: none. Must not be freed before another call has replaced it. */
void heartbeat_watch(struct heartbeat *h, struct transfer *t);
/* The error of the last write, if it failed. */
bool heartbeat_failed(struct heartbeat *h, struct nc_err *err);
/* Stops; no write is under way when it returns. With last, the text is written once more. */
void heartbeat_stop(struct heartbeat *h, bool last);
void heartbeat_free(struct heartbeat *h); /* NULL is allowed */

#endif
