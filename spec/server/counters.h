/* What the server did: totals by side and operation, and a log of the last requests, so that a
 * spec can prove what moved and what did not. Thread-safe. */
#ifndef NCDEV_COUNTERS_H
#define NCDEV_COUNTERS_H

#include "base/buf.h"
#include "faults.h"

#define COUNTERS_OPS 64
#define COUNTERS_LOG 100000

struct counters_entry {
    uint64_t number; /* of the request, from 1 */
    enum side side;
    const char *op; /* static */
    char method[8];
    char *path;            /* decoded, without the first slash; owned */
    char *range;           /* the Range header, or x-amz-copy-source-range; owned, NULL: none */
    char *upload;          /* uploadId; owned, NULL: none */
    unsigned part;         /* partNumber, 0: none */
    int status;            /* 0: no answer */
    uint64_t in, out;      /* bytes of the bodies */
    uint64_t start_ms, ms; /* since the server started; how long it took */
    bool aborted;          /* the connection ended before the answer did */
    bool faulted;          /* a rule acted */
};

struct counters_op {
    enum side side;
    const char *op;
    uint64_t requests, in, out, errors;
};

struct counters {
    pthread_mutex_t lock;
    struct counters_op ops[COUNTERS_OPS];
    size_t op_count;
    struct counters_entry *log; /* a ring */
    uint64_t logged;            /* entries ever; the newest is at (logged - 1) % COUNTERS_LOG */
    uint64_t connections[2];    /* main port, CDN port */
    uint64_t rejected_signatures;
    uint64_t auth_leaks; /* requests to the CDN with an Authorization header */
    uint64_t since_ms;
    uint64_t open; /* requests begun and not yet added */
    pthread_cond_t none_open;
    uint64_t from; /* requests with a lower number, begun before the reset, do not count */
};

void counters_init(struct counters *c);
void counters_free(struct counters *c);
void counters_reset(struct counters *c, uint64_t from); /* from: the number of the first to count */
void counters_begin(struct counters *c);                /* a request that counters_add will end */
void counters_add(struct counters *c, struct counters_entry *e); /* takes over e's strings */
/* Waits until nothing is open, for a moment at most: a client may have an answer's last byte before
 * the server knows that it has sent it. */
void counters_settle(struct counters *c);
void counters_count(struct counters *c, uint64_t *counter); /* one more, under the lock */
void counters_json(struct counters *c, struct buf *out);
void counters_log_json(struct counters *c, struct buf *out); /* oldest first */

#endif
