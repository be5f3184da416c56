/* One place where bytes go, written by a thread of its own behind a bounded buffer.
 *
 * Whoever gives bytes to a sink is never held up for long: one that takes nothing for a while
 * (a terminal that nobody reads, a network volume whose server is gone) loses what does not fit
 * any more and is written to again once it has caught up; one that can't be written (a full disk)
 * loses what it was given meanwhile. A line says where bytes are missing. One whose reader has
 * gone away takes everything and keeps nothing.
 *
 * Memory: SINK_BUFFER each. A sink outlives its owner for as long as its thread is stuck.
 */
#ifndef NC_RUN_SINK_H
#define NC_RUN_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SINK_BUFFER = 1 << 20 };

struct sink;

struct sink_state {
    uint64_t written; /* bytes that arrived */
    uint64_t lost;    /* bytes that did not */
    int error;        /* errno of the last write that failed, 0: none did since one that worked */
    bool closed;      /* nobody reads any more */
};

/* To a descriptor that stays open as long as the sink; it is not closed here. */
int sink_new_fd(struct sink **out, int fd, struct nc_err *err);
/* To the end of a file. Its thread makes the folders, then the file, at once; where that fails,
 * again with the next bytes. */
int sink_new_file(struct sink **out, const char *path, struct nc_err *err);
/* What it holds is still written as long as the process lives. Accepts NULL. */
void sink_free(struct sink *s);

/* Takes all bytes, or loses those it has no room for within a second. Any thread. */
void sink_feed(struct sink *s, const void *data, size_t len);
/* Takes what there is room for and returns how much that was; never waits. Any thread. */
size_t sink_put(struct sink *s, const void *data, size_t len);
/* Posts the token to the main loop once all that was put is written, or can't be. One at a time. */
void sink_when_empty(struct sink *s, uint64_t token);
/* Waits until all is written: at most total_ms, or idle_ms in which nothing moves. */
bool sink_flush(struct sink *s, uint64_t idle_ms, uint64_t total_ms);

struct sink_state sink_state(struct sink *s); /* any thread */

#endif
