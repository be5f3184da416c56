/* What the files of the transfer engine share: the state of one transfer. Private to transfer/.
 *
 *   transfer.c  makes, fills, starts, watches and frees it
 *   choose.c    what is to be begun next: which part of which file
 *   schedule.c  begins it, takes in what has ended, knows when all is over
 *   part.c      a part's bytes on their way: into its buffer or into the sink, and its digests
 *   blocks.c    blocks that hands write while their part goes on coming
 *   check.c     digests of files, from parts that came before their turn
 *   fate.c      what becomes of a part or a file: queued, finished, failed, begun again
 *
 * The lock is held in all of schedule.h, check.h and fate.h unless a function says otherwise.
 */
#ifndef NC_TRANSFER_STATE_H
#define NC_TRANSFER_STATE_H

#include "transfer/buffers.h"
#include "transfer/climb.h"
#include "transfer/transfer.h"

#include <pthread.h>

enum {
    OPEN_FILES_MOST = 32, /* and so many may have to be read back after a kill */
    BEGUN_FILES_MOST = 1024,
    BEGUN_FILES_LEAST = 4,
    /* Descriptors that a begun file may hold: its source's, twice; its own, twice; its journal.
     * Each hand may hold one more, of a part that it reads. */
    FILES_EACH = 5,
    PARALLEL_MOST = 1024,
    HANDS_MOST = 16,    /* threads for local work: as many reads of a network file system at once */
    BLOCK = 128 * 1024, /* of a streamed part: larger writes were slow and erratic on ext4 */
    KEPT_MOST = 1024 * 1024, /* a file of one part and no more than this is never streamed */
};

/* A queue of files, by next_file. */
struct file_queue {
    struct file *first, **end;
};

struct transfer {
    struct http_pool *pool;
    struct source *source;
    struct sink *sink;
    void (*ended)(void *);
    void *arg;
    uint64_t part_size;
    uint32_t stall_ms;
    bool sha256, paced;
    struct pace pace_in, pace_out;
    _Atomic uint64_t bytes_in, bytes_out, retries, refusals;
    _Atomic uint64_t bytes_read; /* again, from the sink: nothing has moved, but it is alive */

    pthread_mutex_t lock;   /* guards all below and every file and part */
    pthread_cond_t rest;    /* at_rest has become true */
    pthread_cond_t news;    /* for a hand: there may be something to do */
    pthread_cond_t written; /* a block has been, or none will be any more */
    pthread_t hands[HANDS_MOST];
    unsigned hands_count, idle, called; /* idle: in wait for news, called ones among them */
    struct buffers buffers;
    struct climb climb;    /* how many slots there are */
    struct file **waiting; /* not begun yet, from next_waiting to count */
    size_t next_waiting, count, room;
    size_t admitted;    /* up to here they may begin; the caller is still at the others */
    struct file *begun; /* begun and not ended; doubly linked */
    unsigned begun_count, begun_most;
    struct file *again; /* to be fetched once more */
    /* Begun, with parts to claim; and those whose direct copies turn out to be none. */
    struct file *open[OPEN_FILES_MOST + PARALLEL_MOST];
    unsigned opened, open_most, turn;
    struct file_queue chores;   /* an open or leave (or a finish, without sync) is to begin */
    struct file_queue finishes; /* to be synced and finished together, a batch at a time */
    struct file_queue rereads;  /* stored parts are to be hashed */
    size_t largest_part;        /* buffer that a part may need */
    struct file_queue over;     /* ended, not yet taken by the caller */
    struct file *taken;         /* the last that was */
    struct block *blocks, **blocks_end; /* to be written by hands (blocks.h) */
    unsigned unwritten;                 /* those, and the ones that hands are writing */
    struct part *ready, **ready_end;    /* to be stored */
    unsigned ready_weight;
    unsigned readers, storers; /* hands that read or store a part now */
    unsigned renewing; /* parts on their way that wait for their next block: before any other */
    struct part *live;
    unsigned fetching, storing; /* in sixteenths of a slot */
    unsigned busy;              /* operations begun and not ended */
    unsigned inside;            /* threads at work in this struct */
    bool started, growing, stopping, at_rest, finishing, no_direct;
    struct nc_err fatal;
    uint64_t bytes_total, bytes_done, seen_bytes, moved_ms;
    uint64_t files_total, files_done, files_failed;
};

static inline void queue_init(struct file_queue *q)
{
    q->first = NULL;
    q->end = &q->first;
}

static inline void queue_add(struct file_queue *q, struct file *f)
{
    f->next_file = NULL;
    *q->end = f;
    q->end = &f->next_file;
}

static inline struct file *queue_take(struct file_queue *q)
{
    struct file *f = q->first;
    if (f) {
        q->first = f->next_file;
        if (!q->first)
            q->end = &q->first;
    }
    return f;
}

/* Lets go of the lock, for work that others must not wait for, and calls a hand where there is work
 * for one meanwhile. */
void state_unlock(struct transfer *t);

static inline void state_lock(struct transfer *t)
{
    pthread_mutex_lock(&t->lock);
}

#endif
