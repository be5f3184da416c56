#include "transfer/schedule.h"

#include "transfer/check.h"
#include "transfer/fate.h"
#include "transfer/plan.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static bool skip_stored(struct file *f)
{
    while (f->next < f->parts && f->etags[f->next][0])
        f->next++;
    return f->next < f->parts;
}

/* Allocates what a file needs while it is open. */
static int begin_file(struct transfer *t, struct file *f)
{
    f->in_flight = calloc(f->parts, sizeof f->in_flight[0]);
    if (!f->in_flight || sha256_init(&f->hash) || (f->blob[0] && gitblob_init(&f->git, f->size))) {
        struct nc_err err;
        nc_err_set(&err, "ENOMEM", "%s: out of memory", f->path);
        fate_stop(t, &err);
        return -1;
    }
    fate_begin(t, f, FILE_OPENING);
    if (skip_stored(f))
        t->open[t->opened++] = f;
    return 0;
}

static struct file *next_file(struct transfer *t)
{
    struct file *f = t->again;
    if (f) {
        t->again = f->next_file;
        return f;
    }
    return t->next_waiting < t->count ? t->files[t->next_waiting++] : NULL;
}

/* The file whose turn it is, or NULL. */
static struct file *next_turn(struct transfer *t)
{
    while (t->opened < t->open_most) {
        struct file *f = next_file(t);
        if (!f)
            break;
        if (begin_file(t, f))
            return NULL;
        /* One with a single part leaves its place at once: no need to fill the others first. */
        if (f->parts == 1)
            return f;
    }
    return t->opened ? t->open[++t->turn % t->opened] : NULL;
}

static struct part *claim(struct transfer *t)
{
    unsigned most = t->sink->local ? t->parallel : t->parallel / 2;
    if (t->stopping || t->fetching >= most || !buffers_have(&t->buffers, t->largest_part))
        return NULL;
    struct file *f = next_turn(t);
    if (!f || !skip_stored(f))
        return NULL;
    size_t len = (size_t)plan_part_len(f->size, f->part_size, f->next);
    char *data = buffers_take(&t->buffers, len);
    struct part *p = data ? calloc(1, sizeof *p) : NULL;
    if (!p) {
        if (data)
            buffers_give(&t->buffers, data);
        if (!t->busy) { /* nobody will give anything back */
            struct nc_err err;
            nc_err_set(&err, "ENOMEM", "%s: out of memory for a part of %zu bytes", f->path, len);
            fate_stop(t, &err);
        }
        return NULL;
    }
    p->file = f;
    p->index = f->next++;
    p->offset = (uint64_t)p->index * f->part_size;
    p->len = len;
    p->data = data;
    p->fetching = true;
    f->in_flight[p->index] = p;
    p->live_next = t->live;
    if (t->live)
        t->live->live_prev = p;
    t->live = p;
    if (!skip_stored(f))
        fate_close_turn(t, f);
    t->fetching++;
    return p;
}

static struct part *next_ready(struct transfer *t)
{
    if (t->storing >= (t->parallel + 1) / 2 && !t->sink->local)
        return NULL;
    struct part *p = t->ready;
    if (p) {
        t->ready = p->next;
        if (!t->ready)
            t->ready_end = &t->ready;
        p->storing = true;
        t->storing++;
    }
    return p;
}

static struct file *next_chore(struct transfer *t)
{
    struct file *f;
    while ((f = t->chores)) {
        t->chores = f->next_file;
        if (!t->chores)
            t->chores_end = &t->chores;
        f->queued = false;
        if (!f->failing || f->state == FILE_LEAVING)
            return f;
        fate_leave_when_idle(t, f); /* it failed while it waited for this */
    }
    return NULL;
}

static enum op do_chore(struct transfer *t, struct file *f, struct nc_err *err)
{
    if (f->state == FILE_OPENING)
        return t->sink->open(t->sink, f, err);
    if (f->state == FILE_FINISHING)
        return t->sink->finish(t->sink, f, err);
    return t->sink->leave(t->sink, f, err);
}

static void fetch_over(struct transfer *t, struct part *p, const struct nc_err *err);
static void part_stored(struct transfer *t, struct part *p, const char *etag,
                        const struct nc_err *err);
static void file_ended(struct transfer *t, struct file *f, const struct nc_err *err);

/* A local sink does its work at once, which the lock must not wait for. */
static void begin_in_sink(struct transfer *t, struct file *f, struct part *p)
{
    struct nc_err err;
    f->busy++;
    t->busy++;
    if (t->sink->local)
        state_unlock(t);
    enum op op = p ? t->sink->store(t->sink, p, &err) : do_chore(t, f, &err);
    if (t->sink->local)
        state_lock(t);
    if (op == OP_BEGUN)
        return;
    const struct nc_err *failed = op == OP_FAILED ? &err : NULL;
    if (p)
        part_stored(t, p, "-", failed);
    else
        file_ended(t, f, failed);
}

static void begin_fetch(struct transfer *t, struct part *p)
{
    struct nc_err err;
    p->file->busy++;
    t->busy++;
    if (t->source->local)
        state_unlock(t);
    enum op op = t->source->fetch(t->source, p, &err);
    if (t->source->local)
        state_lock(t);
    if (op != OP_BEGUN)
        fetch_over(t, p, op == OP_FAILED ? &err : NULL);
}

/* Begins the next operation; false when there is none to begin now. */
static bool step(struct transfer *t)
{
    struct file *f = t->stopping ? NULL : next_chore(t);
    struct part *p = f || t->stopping ? NULL : next_ready(t);
    if (f || p) {
        begin_in_sink(t, f ? f : p->file, p);
        return true;
    }
    p = claim(t);
    if (p)
        begin_fetch(t, p);
    return p || (t->chores && !t->stopping); /* a file was begun that has no part to fetch */
}

static bool all_over(const struct transfer *t)
{
    return t->files_done + t->files_failed == t->count;
}

void schedule_enter(struct transfer *t)
{
    pthread_mutex_lock(&t->lock);
    t->inside++;
}

void schedule_rest_when_over(struct transfer *t)
{
    t->inside--;
    if (!t->inside && !t->busy && !t->at_rest && (t->stopping || all_over(t))) {
        t->at_rest = true;
        if (t->ended)
            t->ended(t->arg);
        pthread_cond_broadcast(&t->rest);
        pthread_cond_broadcast(&t->news);
    }
}

/* Begins what can be begun, sees whether all is over, and lets go of the lock. */
void schedule_leave(struct transfer *t)
{
    while (step(t))
        ;
    schedule_rest_when_over(t);
    pthread_mutex_unlock(&t->lock);
}

/* A thread for local work. It misses none: what there is to do changes only under the lock, by
 * threads that then go on themselves until they find no more, and call another before they are
 * away. */
static void *lend_hand(void *arg)
{
    struct transfer *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->at_rest) {
        t->inside++;
        while (step(t))
            ;
        schedule_rest_when_over(t);
        if (!t->at_rest)
            pthread_cond_wait(&t->news, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* One will do; signals are the main thread's. */
void schedule_call_hands(struct transfer *t)
{
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (t->hands_count < HANDS_MOST && t->hands_count < t->parallel && rc == 0) {
        rc = pthread_create(&t->hands[t->hands_count], NULL, lend_hand, t);
        t->hands_count += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!t->hands_count) {
        struct nc_err err;
        nc_err_sys(&err, rc, "starting the threads of a transfer");
        fate_stop(t, &err);
    }
}

static void op_over(struct transfer *t, struct file *f)
{
    f->busy--;
    t->busy--;
}

/* ---- what sources and sinks report ---- */

/* A part that will not go on: its buffer is free, its file may be left. */
static void drop_part(struct transfer *t, struct part *p, const struct nc_err *err)
{
    struct file *f = p->file;
    fate_release(t, p);
    if (err)
        fate_fail(t, f, err);
    fate_leave_when_idle(t, f);
}

/* hashed: it went into the file's digest as it came. */
static void part_fetched(struct transfer *t, struct part *p, bool hashed, const struct nc_err *err)
{
    struct file *f = p->file;
    op_over(t, f);
    t->source->release(t->source, p);
    p->fetching = false;
    t->fetching--;
    if (err || f->failing || t->stopping) {
        drop_part(t, p, err);
        return;
    }
    p->fetched = true;
    if (f->parts > 1 || f->continued)
        fate_queue_part(t, p);
    if (hashed)
        check_hashed(t, p);
    check_in_order(t, f);
}

static void fetch_over(struct transfer *t, struct part *p, const struct nc_err *err)
{
    struct file *f = p->file;
    struct nc_err no_memory;
    bool wanted = !err && !f->failing && !t->stopping;
    bool its_turn = wanted && !f->continued && !f->hashing && f->hashed == p->index;
    if (wanted) {
        f->hashing |= its_turn;
        state_unlock(t);
        if (check_part(t, p, its_turn, &no_memory))
            err = &no_memory;
        state_lock(t);
        f->hashing &= !its_turn;
    }
    part_fetched(t, p, its_turn, err);
}

static void part_stored(struct transfer *t, struct part *p, const char *etag,
                        const struct nc_err *err)
{
    struct file *f = p->file;
    op_over(t, f);
    t->sink->release(t->sink, p);
    p->storing = false;
    t->storing--;
    if (err || f->failing) {
        /* A worker may be hashing the buffer: it goes with the file's others. */
        if (err)
            fate_fail(t, f, err);
        fate_leave_when_idle(t, f);
        return;
    }
    p->stored = true;
    memcpy(f->etags[p->index], etag, strlen(etag) + 1);
    f->stored++;
    t->bytes_done += p->len;
    if (p->hashed || f->continued)
        fate_release(t, p);
    fate_finish_when_whole(t, f);
}

static void file_opened(struct transfer *t, struct file *f)
{
    f->state = FILE_OPEN;
    for (struct part *p = f->parked, *next; p; p = next) {
        next = p->next;
        fate_ready(t, p);
    }
    f->parked = NULL;
    fate_finish_when_whole(t, f);
}

static void file_left(struct transfer *t, struct file *f)
{
    free(f->in_flight);
    f->in_flight = NULL;
    fate_forget_parts(t, f);
    if (f->again)
        fate_start_over(t, f);
    else
        fate_end(t, f, FILE_FAILED);
}

static void file_ended(struct transfer *t, struct file *f, const struct nc_err *err)
{
    op_over(t, f);
    if (f->state == FILE_LEAVING)
        file_left(t, f); /* whatever came of it */
    else if (err)
        fate_fail(t, f, err);
    else if (f->failing)
        fate_leave_when_idle(t, f);
    else if (f->state == FILE_OPENING)
        file_opened(t, f);
    else
        fate_end(t, f, FILE_DONE);
}

void transfer_part_fetched(struct part *p, const struct nc_err *err)
{
    struct transfer *t = p->file->transfer;
    schedule_enter(t);
    fetch_over(t, p, err);
    schedule_leave(t);
}

void transfer_part_stored(struct part *p, const char *etag, const struct nc_err *err)
{
    struct transfer *t = p->file->transfer;
    struct nc_err long_etag;
    if (!err && strlen(etag) >= sizeof p->file->etags[0]) {
        nc_err_set(&long_etag, "BadAnswer", "%s: the server's ETag is too long", p->file->path);
        err = &long_etag;
    }
    schedule_enter(t);
    part_stored(t, p, etag, err);
    schedule_leave(t);
}

void transfer_file_ended(struct file *f, const struct nc_err *err)
{
    struct transfer *t = f->transfer;
    schedule_enter(t);
    file_ended(t, f, err);
    schedule_leave(t);
}
