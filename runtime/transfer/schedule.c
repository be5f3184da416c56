#include "transfer/schedule.h"

#include "base/clock.h"
#include "transfer/blocks.h"
#include "transfer/check.h"
#include "transfer/choose.h"
#include "transfer/fate.h"
#include "transfer/part.h"
#include "transfer/plan.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_MOST = 512,    /* files synced and finished together */
    READY_PER_HAND = 32, /* sixteenths of a slot: eight small files */
    PART_TRIES = 3,      /* of one whose digest is wrong */
    FILE_WORK = 65536,   /* what a file counts beside its bytes, when throughput is looked at */
};

static enum op do_chore(struct transfer *t, struct file *f, struct nc_err *err)
{
    if (f->state == FILE_OPENING)
        return t->sink->open(t->sink, f, err);
    if (f->state == FILE_FINISHING)
        return t->sink->finish(t->sink, f, err);
    return t->sink->leave(t->sink, f, err);
}

static void begin_fetch(struct transfer *t, struct part *p);
static void fetch_over(struct transfer *t, struct part *p, const struct nc_err *err);
static void block_written(struct transfer *t, struct part *p);
static void part_stored(struct transfer *t, struct part *p, const char *etag,
                        const struct nc_err *err);
static void file_ended(struct transfer *t, struct file *f, const struct nc_err *err);

static void op_begun(struct transfer *t, struct file *f)
{
    f->busy++;
    t->busy++;
}

static void op_over(struct transfer *t, struct file *f)
{
    f->busy--;
    t->busy--;
}

/* What a local sink does, the lock must not wait for. */
static void begin_chore(struct transfer *t, struct file *f)
{
    struct nc_err err;
    op_begun(t, f);
    if (t->sink->local)
        state_unlock(t);
    enum op op = do_chore(t, f, &err);
    if (t->sink->local)
        state_lock(t);
    if (op != OP_BEGUN)
        file_ended(t, f, op == OP_FAILED ? &err : NULL);
}

static void begin_store(struct transfer *t, struct part *p)
{
    struct nc_err err;
    p->storing = true;
    t->storing += part_weight(p);
    t->storers++;
    op_begun(t, p->file);
    if (t->sink->local)
        state_unlock(t);
    enum op op = p->direct ? t->sink->copy(t->sink, p, &err) : t->sink->store(t->sink, p, &err);
    if (t->sink->local)
        state_lock(t);
    t->storers--;
    if (op != OP_BEGUN)
        part_stored(t, p, "-", op == OP_FAILED ? &err : NULL);
}

static void begin_fetch(struct transfer *t, struct part *p)
{
    struct nc_err err;
    p->fetching = true;
    p->file->fetching++;
    t->fetching += part_weight(p);
    t->readers += t->source->local;
    op_begun(t, p->file);
    if (t->source->local)
        state_unlock(t);
    enum op op = t->source->fetch(t->source, p, &err);
    if (t->source->local)
        state_lock(t);
    t->readers -= t->source->local;
    if (op != OP_BEGUN)
        fetch_over(t, p, op == OP_FAILED ? &err : NULL);
}

static size_t take_finishes(struct transfer *t, struct file **batch)
{
    size_t n = 0;
    for (struct file *f; n < BATCH_MOST && (f = queue_take(&t->finishes));) {
        f->queued = false;
        if (f->failing) {
            fate_leave_when_idle(t, f);
            continue;
        }
        batch[n++] = f;
        op_begun(t, f);
    }
    return n;
}

/* Files that are whole become visible together: what makes them safe costs a disk little more for
 * many than for one. The first failure ends the batch; what comes after it is tried once more with
 * the next, unless the reason ends the job. */
static void finish_batch(struct transfer *t)
{
    struct file *batch[BATCH_MOST];
    struct nc_err err, unsafe;
    struct sink *sink = t->sink;
    size_t n = take_finishes(t, batch), done = 0;
    if (!n)
        return;
    t->finishing = true;
    state_unlock(t);
    bool failed = sink->sync(sink, batch, n, &err) != 0;
    while (!failed && done < n) {
        failed = sink->finish(sink, batch[done], &err) == OP_FAILED;
        done += !failed;
    }
    bool unsettled = done && sink->settle(sink, batch, done, &unsafe);
    state_lock(t);
    t->finishing = false;
    for (size_t i = 0; i < n; i++) {
        if (i <= done) {
            file_ended(t, batch[i], i < done ? (unsettled ? &unsafe : NULL) : &err);
        } else {
            op_over(t, batch[i]);
            fate_begin(t, batch[i], FILE_FINISHING);
        }
    }
}

/* What is ready is to be stored by one more hand. A small file is soon done: one hand for every
 * few, or all would stay at work and get into each other's way. called: hands that are on their
 * way. */
static bool store_wanted(const struct transfer *t, unsigned called)
{
    if (!t->ready)
        return false;
    unsigned hands = called + (part_is_small(t->ready->len) ? t->storers : 0);
    return t->ready_weight > READY_PER_HAND * hands;
}

/* A part is to be read by one more hand; of small files likewise. */
static bool read_wanted(const struct transfer *t, unsigned called)
{
    if (!choose_may(t))
        return false;
    return !choose_is_small(t) || choose_room(t) > READY_PER_HAND * (t->readers + called);
}

/* Begins the next operation; false when there is none that this thread may begin now. Local work is
 * done by hands, so that neither a worker nor the caller is kept by a slow disk. */
static bool step(struct transfer *t, bool hand)
{
    struct file *f;
    struct part *p = hand ? blocks_write_one(t) : NULL;
    if (p) {
        block_written(t, p);
        return true;
    }
    if (t->stopping)
        return false;
    if (!t->sink->local || hand) {
        if ((f = choose_chore(t))) {
            begin_chore(t, f);
            return true;
        }
        if ((!t->sink->local || store_wanted(t, 0)) && (p = choose_ready(t))) {
            begin_store(t, p);
            return true;
        }
    }
    if (hand && t->finishes.first && !t->finishing) {
        finish_batch(t);
        return true;
    }
    if (hand && (f = queue_take(&t->rereads))) {
        check_reread(t, f);
        return true;
    }
    if (t->source->local && (!hand || !read_wanted(t, 0)))
        return false;
    p = choose_part(t);
    if (p && p->direct)
        fate_ready(t, p);
    else if (p)
        begin_fetch(t, p);
    return p || (t->chores.first && (!t->sink->local || hand)); /* an empty file was begun */
}

/* There is something that only a hand may begin, and those at work will not soon come to it. */
static bool hand_wanted(const struct transfer *t)
{
    unsigned at_work = t->hands_count - t->idle + t->called;
    if (t->blocks || t->stopping)
        return t->blocks != NULL;
    if (t->rereads.first || (t->finishes.first && !t->finishing && at_work < 2))
        return true;
    if (t->sink->local && (t->chores.first || store_wanted(t, t->called)))
        return true;
    return t->source->local && choose_is_low(t) && read_wanted(t, t->called);
}

static bool takes_hand(struct transfer *t)
{
    bool calls = t->idle > t->called && hand_wanted(t);
    t->called += calls;
    return calls;
}

/* A hand that is called while the lock is held wakes only to wait for that. */
void schedule_call_hand(struct transfer *t)
{
    if (takes_hand(t)) {
        pthread_mutex_unlock(&t->lock);
        pthread_cond_signal(&t->news);
        pthread_mutex_lock(&t->lock);
    }
}

void state_unlock(struct transfer *t)
{
    bool calls = takes_hand(t);
    pthread_mutex_unlock(&t->lock);
    if (calls)
        pthread_cond_signal(&t->news);
}

static bool all_over(const struct transfer *t)
{
    return !t->growing && t->files_done + t->files_failed == t->files_total;
}

void schedule_enter(struct transfer *t)
{
    pthread_mutex_lock(&t->lock);
    t->inside++;
}

static void rest_when_over(struct transfer *t)
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

static void look_at_speed(struct transfer *t)
{
    uint64_t work = atomic_load(&t->bytes_in) + atomic_load(&t->bytes_out) +
                    (t->files_done + t->files_failed) * FILE_WORK;
    climb_look(&t->climb, clock_ms(), work, atomic_load(&t->refusals));
}

void schedule_leave(struct transfer *t)
{
    look_at_speed(t);
    while (step(t, false))
        ;
    schedule_call_hand(t);
    rest_when_over(t); /* from here on it may be freed as soon as the lock is */
    pthread_mutex_unlock(&t->lock);
}

/* A thread for local work. It misses none: what there is to do changes only under the lock, by
 * threads that then go on themselves until they find no more, or call a hand. */
static void *lend_hand(void *arg)
{
    struct transfer *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->at_rest) {
        t->inside++;
        look_at_speed(t);
        while (step(t, true))
            ;
        rest_when_over(t);
        t->idle++;
        while (!t->called && !t->at_rest)
            pthread_cond_wait(&t->news, &t->lock);
        t->idle--;
        t->called -= t->called > 0;
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
    while (t->hands_count < HANDS_MOST && t->hands_count < t->climb.most && rc == 0) {
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

static void part_fetched(struct transfer *t, struct part *p, const struct nc_err *err)
{
    struct file *f = p->file;
    bool well = !err && !f->failing && !t->stopping;
    op_over(t, f);
    t->source->release(t->source, p);
    p->fetching = false;
    f->fetching--;
    t->fetching -= part_weight(p);
    if (!well) {
        check_turn_over(t, p, false);
        drop_part(t, p, err);
        return;
    }
    p->fetched = true;
    f->moved += p->len;
    if (f->parts > 1 || !f->hashes || f->streamed)
        fate_queue_part(t, p);
    check_turn_over(t, p, true);
    check_in_order(t, f);
}

/* Wrong bytes of one part: only that one is to come again. */
static bool may_come_again(const struct transfer *t, const struct part *p, const struct nc_err *err)
{
    return err && p->file->expected && strcmp(err->code, "DigestMismatch") == 0 &&
           p->tries + 1 < PART_TRIES && !p->file->failing && !t->stopping;
}

/* The fetch has ended while blocks of the part are being written: the last of them goes on here. */
static void wait_for_blocks(struct transfer *t, struct part *p, const struct nc_err *err)
{
    p->come = true;
    free(p->fetch_err);
    p->fetch_err = err ? malloc(sizeof *err) : NULL;
    if (p->fetch_err)
        *p->fetch_err = *err;
    else if (err)
        fate_stop(t, err);
}

static void fetch_over(struct transfer *t, struct part *p, const struct nc_err *err)
{
    struct nc_err wrong;
    if (p->blocks) {
        wait_for_blocks(t, p, err);
        return;
    }
    if (!err) {
        state_unlock(t);
        err = part_end(p, &wrong);
        state_lock(t);
    }
    if (!may_come_again(t, p, err)) {
        part_fetched(t, p, err);
        return;
    }
    op_over(t, p->file);
    t->source->release(t->source, p);
    p->file->fetching--;
    t->fetching -= part_weight(p);
    p->tries++;
    atomic_fetch_add(&t->retries, 1);
    begin_fetch(t, p);
}

static void block_written(struct transfer *t, struct part *p)
{
    if (p->blocks || !p->come)
        return;
    p->come = false;
    struct nc_err *err = p->fetch_err;
    p->fetch_err = NULL;
    fetch_over(t, p, err);
    free(err);
}

/* It has to come by way of us after all, and so has every file that begins from now on. */
static void fetch_instead(struct transfer *t, struct part *p)
{
    struct file *f = p->file;
    uint32_t index = p->index;
    f->direct = false;
    t->no_direct = true;
    fate_release(t, p);
    if (f->next > index)
        f->next = index;
    for (unsigned i = 0; i < t->opened; i++) {
        if (t->open[i] == f)
            return;
    }
    t->open[t->opened++] = f;
}

static void part_stored(struct transfer *t, struct part *p, const char *etag,
                        const struct nc_err *err)
{
    struct file *f = p->file;
    op_over(t, f);
    t->sink->release(t->sink, p);
    p->storing = false;
    t->storing -= part_weight(p);
    if (err && strcmp(err->code, "NoDirectCopy") == 0 && !f->failing && !t->stopping) {
        fetch_instead(t, p);
        return;
    }
    if (err || f->failing) {
        /* A worker may be hashing the buffer: it goes with the file's others. */
        if (err)
            fate_fail(t, f, err);
        fate_leave_when_idle(t, f);
        return;
    }
    p->stored = true;
    f->moved += p->direct ? p->len : 0;
    memcpy(f->etags[p->index], etag, strlen(etag) + 1);
    f->stored++;
    t->bytes_done += p->len;
    if (p->hashed || !f->hashes || f->streamed)
        fate_release(t, p);
    check_in_order(t, f);
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
    /* The sink may have found parts of an earlier run, or all. */
    if (!choose_skip(f))
        fate_close_turn(t, f);
    check_in_order(t, f);
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
    char kept[sizeof p->file->etags[0]] = ""; /* the sink's own may go with its operation */
    if ((size_t)snprintf(kept, sizeof kept, "%s", etag) >= sizeof kept && !err) {
        nc_err_set(&long_etag, "BadAnswer", "%s: the server's ETag is too long", p->file->path);
        err = &long_etag;
    }
    schedule_enter(t);
    part_stored(t, p, kept, err);
    schedule_leave(t);
}

void transfer_cloned(struct file *f)
{
    struct transfer *t = f->transfer;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < f->parts; i++)
        memcpy(f->etags[i], "-", 2);
    f->stored = f->parts;
    f->cloned = true;
    f->hashes = false;
    t->bytes_done += f->size;
    pthread_mutex_unlock(&t->lock);
}

void transfer_keep_part(struct file *f, uint32_t index, const char *xxh3)
{
    struct transfer *t = f->transfer;
    pthread_mutex_lock(&t->lock);
    memcpy(f->etags[index], "-", 2);
    memcpy(f->digests[index], xxh3, strlen(xxh3) + 1);
    f->stored++;
    t->bytes_done += plan_part_len(f->size, f->part_size, index);
    pthread_mutex_unlock(&t->lock);
}

void transfer_file_ended(struct file *f, const struct nc_err *err)
{
    struct transfer *t = f->transfer;
    schedule_enter(t);
    file_ended(t, f, err);
    schedule_leave(t);
}
