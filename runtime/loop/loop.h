/* The event loop: timers, descriptors, signals, and events posted by worker threads.
 *
 * The loop produces events and calls nobody: whoever owns it asks loop_wait for the next ones. An
 * event names the operation it belongs to by a token, a positive integer that is unique in the
 * process. Everything here belongs to the main thread, but for loop_token and loop_post, which any
 * thread may call while the loop exists. Timers and watches fire once.
 */
#ifndef NC_LOOP_LOOP_H
#define NC_LOOP_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct loop;

enum loop_kind { LOOP_POST, LOOP_TIMER, LOOP_FD, LOOP_SIGNAL };

struct loop_event {
    uint64_t token; /* 0 for a signal */
    enum loop_kind kind;
    int64_t value; /* what was posted; the signal's number; else 0 */
};

/* Blocks TERM, INT and HUP so that they arrive as events, ignores SIGPIPE and SIGXFSZ, and makes
 * children waitable. To be called before the first thread starts: threads inherit the mask. INT and
 * HUP that the parent had ignored (nohup, a background job) stay ignored. */
void loop_catch_signals(void);

/* The first loop made is the process's main one until it is freed. */
int loop_new(struct loop **out, struct nc_err *err);
void loop_free(struct loop *); /* accepts NULL; no thread may post any more */
struct loop *loop_main(void);  /* NULL before loop_new */

/* The loop gives no signals any more until it has them back: someone else (a supervisor) reads
 * them, from a signalfd of its own. Returns the set of those it had caught. */
const sigset_t *loop_release_signals(struct loop *);
void loop_reclaim_signals(struct loop *);

uint64_t loop_token(struct loop *);

/* Queues an event and wakes the loop. Events posted by one thread keep their order. Aborts when
 * memory runs out: a lost event would leave its task waiting for ever. */
void loop_post(struct loop *, uint64_t token, int64_t value);

/* Fires after_ms milliseconds from now. Equal times fire in the order of their tokens. */
int loop_timer(struct loop *, uint64_t token, uint64_t after_ms, struct nc_err *err);

/* Fires when fd is ready for `events` (EPOLLIN or EPOLLOUT), or has an error or a hang-up. The loop
 * watches a duplicate of its own: the caller may close fd at any time, and several watches may be
 * on one fd. */
int loop_watch(struct loop *, uint64_t token, int fd, uint32_t events, struct nc_err *err);

/* Forgets a timer or a watch; false where there is none with this token (any more). */
bool loop_cancel(struct loop *, uint64_t token);

/* Waits for at most timeout_ms (negative: for ever) and fills out[0..max). Returns how many events
 * there are; 0 when the time is over. What does not fit stays for the next call. */
size_t loop_wait(struct loop *, int64_t timeout_ms, struct loop_event *out, size_t max);

#endif
