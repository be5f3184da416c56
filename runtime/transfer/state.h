/* What the files of the transfer engine share: the state of one transfer. Private to transfer/.
 *
 *   transfer.c  makes, fills, starts, watches and frees it
 *   schedule.c  chooses what to begin next, takes in what has ended, knows when all is over
 *   check.c     digests of parts and files
 *   fate.c      what becomes of a part or a file: queued, finished, failed, begun again
 *
 * The lock is held in all of schedule.h, check.h and fate.h unless a function says otherwise.
 */
#ifndef NC_TRANSFER_STATE_H
#define NC_TRANSFER_STATE_H

#include "transfer/buffers.h"
#include "transfer/transfer.h"

#include <pthread.h>

enum {
    OPEN_FILES_MOST = 32, /* and so many may have to be read back after a kill */
    HANDS_MOST = 16, /* threads for local work: as many reads of a network file system at once */
};

struct transfer {
    struct http_pool *pool;
    struct source *source;
    struct sink *sink;
    void (*ended)(void *);
    void *arg;
    unsigned parallel;
    uint64_t part_size;
    uint32_t stall_ms;
    _Atomic uint64_t bytes_in, bytes_out, retries;

    pthread_mutex_t lock; /* guards all below and every file and part */
    pthread_cond_t rest;  /* at_rest has become true */
    pthread_cond_t news;  /* for a hand: there may be something to do */
    pthread_t hands[HANDS_MOST];
    unsigned hands_count;
    struct buffers buffers;
    struct file **files; /* all, owned */
    size_t count, room;
    size_t next_waiting;
    struct file *again;                 /* to be fetched once more */
    struct file *open[OPEN_FILES_MOST]; /* begun, with parts to claim */
    unsigned opened, open_most, turn;
    struct file *chores, **chores_end; /* an open, finish or leave is to begin */
    struct file *over, **over_end;     /* ended, not yet taken by the caller */
    struct part *ready, **ready_end;   /* fetched and checked, to be stored */
    struct part *live;
    size_t largest_part;
    unsigned fetching, storing;
    unsigned busy;   /* operations begun and not ended */
    unsigned inside; /* threads at work in this struct */
    bool started, stopping, at_rest;
    struct nc_err fatal;
    uint64_t bytes_total, bytes_done, seen_bytes, moved_ms;
    uint64_t files_done, files_failed;
};

/* Lets go of the lock, for work that others must not wait for, and calls a hand to go on with the
 * rest meanwhile. */
static inline void state_unlock(struct transfer *t)
{
    pthread_cond_signal(&t->news);
    pthread_mutex_unlock(&t->lock);
}

static inline void state_lock(struct transfer *t)
{
    pthread_mutex_lock(&t->lock);
}

#endif
