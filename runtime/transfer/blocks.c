#include "transfer/blocks.h"

#include "transfer/fate.h"
#include "transfer/part.h"
#include "transfer/schedule.h"

#include <stdlib.h>

enum { UNWRITTEN_LEAST = 2 };

struct block {
    struct part *part;
    size_t at, len;
    char *data;
    struct block *next;
};

/* One for every two slots may wait to be written: one connection that runs ahead of the others
 * keeps all hands at work, and a source faster than the disk does not fill memory. */
static bool too_many(const struct transfer *t)
{
    unsigned most = t->climb.level / 2;
    return t->unwritten >= (most < UNWRITTEN_LEAST ? UNWRITTEN_LEAST : most);
}

/* A new block for the part. Waits until hands have written enough, and the budget has room. */
static int renew(struct transfer *t, struct part *p, struct nc_err *err)
{
    size_t need = part_need(p->file, p->len);
    t->renewing++; /* or parts that begin would take what this one gave, and its worker wait on */
    while (!t->stopping && (too_many(t) || !buffers_have(&t->buffers, need)))
        pthread_cond_wait(&t->written, &t->lock);
    t->renewing--;
    if (t->stopping)
        return nc_err_set(err, "Cancelled", "%s: the transfer has ended", p->file->path);
    p->data = buffers_take(&t->buffers, need);
    return p->data ? 0 : nc_err_set(err, "ENOMEM", "%s: out of memory", p->file->path);
}

int blocks_hand_over(struct part *p, size_t at, size_t len, struct nc_err *err)
{
    struct transfer *t = p->file->transfer;
    struct block *b = malloc(sizeof *b);
    if (!b)
        return nc_err_set(err, "ENOMEM", "%s: out of memory", p->file->path);
    *b = (struct block){p, at, len, p->data, NULL};
    pthread_mutex_lock(&t->lock);
    p->data = NULL;
    p->blocks++;
    t->unwritten++;
    *t->blocks_end = b;
    t->blocks_end = &b->next;
    schedule_call_hand(t);
    int rc = p->taken == p->len ? 0 : renew(t, p, err);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

int blocks_begin_again(struct part *p, struct nc_err *err)
{
    struct transfer *t = p->file->transfer;
    pthread_mutex_lock(&t->lock);
    /* One that is late would lie over what comes now. */
    while (p->blocks)
        pthread_cond_wait(&t->written, &t->lock);
    int rc = p->data ? 0 : renew(t, p, err);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

struct part *blocks_write_one(struct transfer *t)
{
    struct nc_err err;
    struct block *b = t->blocks;
    if (!b)
        return NULL;
    struct part *p = b->part;
    t->blocks = b->next;
    if (!t->blocks)
        t->blocks_end = &t->blocks;
    bool wanted = !t->stopping && !p->file->failing;
    int rc = 0;
    state_unlock(t);
    if (wanted)
        rc = t->sink->write(t->sink, p, b->at, b->data, b->len, &err);
    state_lock(t);
    buffers_give(&t->buffers, b->data);
    free(b);
    p->blocks--;
    t->unwritten--;
    pthread_cond_broadcast(&t->written);
    if (rc)
        fate_fail(t, p->file, &err);
    return p;
}
