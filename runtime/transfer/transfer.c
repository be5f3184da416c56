#include "transfer/transfer.h"

#include "base/clock.h"
#include "base/limits.h"
#include "transfer/buffers.h"
#include "transfer/plan.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARALLEL_PER_CPU = 8,
    PARALLEL_LEAST = 16,
    PARALLEL_MOST = 1024,
    OPEN_FILES_LEAST = 4,
    OPEN_FILES_MOST = 64,
    PART_ATTEMPTS = 10,
    PART_GIVE_UP_MS = 120 * 1000,
    TRIES = 2,                /* a file whose bytes are wrong is fetched once more */
    DIGEST_BLOCK = 64 * 1024, /* stays in a core's cache */
    HANDS_MOST = 16, /* threads for local work: as many reads of a network file system at once */
};

static const uint64_t memory_per_slot = (uint64_t)12 << 20;

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

int transfer_new(struct transfer **out, const struct transfer_options *options, struct nc_err *err)
{
    struct transfer *t = calloc(1, sizeof *t);
    if (!t) {
        options->source->free(options->source);
        options->sink->free(options->sink);
        return nc_err_set(err, "ENOMEM", "starting a transfer: out of memory");
    }
    unsigned parallel = options->parallel ? options->parallel : PARALLEL_PER_CPU * limits_cpus();
    if (!options->parallel && parallel < PARALLEL_LEAST)
        parallel = PARALLEL_LEAST;
    t->parallel = parallel < 2 ? 2 : parallel > PARALLEL_MOST ? PARALLEL_MOST : parallel;
    uint64_t memory = options->memory;
    if (!memory) {
        memory = limits_memory() / 4;
        if (memory > t->parallel * memory_per_slot)
            memory = t->parallel * memory_per_slot;
    }
    t->pool = options->pool;
    t->source = options->source;
    t->sink = options->sink;
    t->ended = options->ended;
    t->arg = options->arg;
    t->part_size = options->part_size;
    t->stall_ms = options->stall_ms;
    t->open_most = t->parallel / 2;
    if (t->open_most < OPEN_FILES_LEAST)
        t->open_most = OPEN_FILES_LEAST;
    if (t->open_most > OPEN_FILES_MOST)
        t->open_most = OPEN_FILES_MOST;
    t->chores_end = &t->chores;
    t->over_end = &t->over;
    t->ready_end = &t->ready;
    t->moved_ms = clock_ms();
    buffers_init(&t->buffers, memory);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->rest, NULL);
    pthread_cond_init(&t->news, NULL);
    *out = t;
    return 0;
}

static void forget(struct transfer *t, struct file *f)
{
    if (f->source_data)
        t->source->forget(t->source, f);
    if (f->sink_data)
        t->sink->forget(t->sink, f);
}

static void free_file(struct transfer *t, struct file *f)
{
    forget(t, f);
    sha256_free(&f->hash);
    gitblob_free(&f->git);
    free(f->in_flight);
    free(f->digests);
    free(f->etags);
    free(f->upload_id);
    free(f->path);
    free(f);
}

static void release(struct transfer *t, struct part *p);

void transfer_free(struct transfer *t)
{
    if (!t)
        return;
    if (t->started) {
        transfer_cancel(t);
        pthread_mutex_lock(&t->lock);
        while (!t->at_rest)
            pthread_cond_wait(&t->rest, &t->lock);
        pthread_mutex_unlock(&t->lock);
        for (unsigned i = 0; i < t->hands_count; i++)
            pthread_join(t->hands[i], NULL);
    }
    while (t->live)
        release(t, t->live);
    for (size_t i = 0; i < t->count; i++)
        free_file(t, t->files[i]);
    free(t->files);
    t->source->free(t->source);
    t->sink->free(t->sink);
    buffers_free(&t->buffers);
    pthread_cond_destroy(&t->rest);
    pthread_cond_destroy(&t->news);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

struct file *transfer_add(struct transfer *t, const char *path, uint64_t size, const char *sha256,
                          const char *blob, uint64_t part_size, struct nc_err *err)
{
    if (plan_part_size(size, part_size ? part_size : t->part_size, &part_size, err)) {
        char why[sizeof err->message];
        memcpy(why, err->message, sizeof why);
        char code[sizeof err->code];
        memcpy(code, err->code, sizeof code);
        nc_err_set(err, code, "%s: %s", path, why);
        return NULL;
    }
    uint64_t largest = size < part_size ? size : part_size;
    if (largest > t->buffers.budget) {
        nc_err_set(err, "Usage",
                   "%s: a part of %" PRIu64 " bytes does not fit the memory budget of %" PRIu64
                   " bytes; raise memory= or lower part_size=",
                   path, largest, t->buffers.budget);
        return NULL;
    }
    if (t->count == t->room) {
        size_t room = t->room ? t->room * 2 : 64;
        struct file **files = realloc(t->files, room * sizeof files[0]);
        if (!files)
            goto no_memory;
        t->files = files;
        t->room = room;
    }
    struct file *f = calloc(1, sizeof *f);
    if (!f)
        goto no_memory;
    f->transfer = t;
    f->size = size;
    f->part_size = part_size;
    f->parts = plan_parts(size, part_size);
    f->path = strdup(path);
    f->digests = calloc(f->parts, sizeof f->digests[0]);
    f->etags = calloc(f->parts, sizeof f->etags[0]);
    if (!f->path || !f->digests || !f->etags) {
        free_file(t, f);
        goto no_memory;
    }
    if (sha256 && strlen(sha256) == SHA256_HEX_SIZE - 1)
        memcpy(f->sha256, sha256, SHA256_HEX_SIZE);
    if (blob && strlen(blob) == SHA1_HEX_SIZE - 1)
        memcpy(f->blob, blob, SHA1_HEX_SIZE);
    t->files[t->count++] = f;
    t->bytes_total += size;
    if (largest > t->largest_part)
        t->largest_part = (size_t)largest;
    return f;
no_memory:
    nc_err_set(err, "ENOMEM", "%s: out of memory", path);
    return NULL;
}

int transfer_continue(struct file *file, const char *upload_id, struct nc_err *err)
{
    file->upload_id = strdup(upload_id);
    if (!file->upload_id)
        return nc_err_set(err, "ENOMEM", "%s: out of memory", file->path);
    return 0;
}

int transfer_has_part(struct file *f, uint32_t index, const char *etag)
{
    if (index >= f->parts || !*etag || strlen(etag) >= sizeof f->etags[0] || f->etags[index][0])
        return -1;
    memcpy(f->etags[index], etag, strlen(etag) + 1);
    f->stored++;
    f->continued = true;
    f->transfer->bytes_done += plan_part_len(f->size, f->part_size, index);
    return 0;
}

/* Lets go of the lock for slow work. Whatever else there is to do, another hand may see to. */
static void step_out(struct transfer *t)
{
    pthread_cond_signal(&t->news);
    pthread_mutex_unlock(&t->lock);
}

static void step_in(struct transfer *t)
{
    pthread_mutex_lock(&t->lock);
}

/* ---- lists; the lock is held in all that follows unless it says otherwise ---- */

static void add_chore(struct transfer *t, struct file *f, enum file_state state)
{
    f->state = state;
    f->queued = true;
    f->next_file = NULL;
    *t->chores_end = f;
    t->chores_end = &f->next_file;
}

static void end_file(struct transfer *t, struct file *f, enum file_state state)
{
    f->state = state;
    if (state == FILE_DONE)
        t->files_done++;
    else
        t->files_failed++;
    free(f->in_flight);
    f->in_flight = NULL;
    sha256_free(&f->hash);
    gitblob_free(&f->git);
    f->next_file = NULL;
    *t->over_end = f;
    t->over_end = &f->next_file;
}

static void add_ready(struct transfer *t, struct part *p)
{
    p->next = NULL;
    *t->ready_end = p;
    t->ready_end = &p->next;
}

static void close_turn(struct transfer *t, struct file *f)
{
    for (unsigned i = 0; i < t->opened; i++) {
        if (t->open[i] == f) {
            t->open[i] = t->open[--t->opened];
            return;
        }
    }
}

static void release(struct transfer *t, struct part *p)
{
    if (p->file->in_flight)
        p->file->in_flight[p->index] = NULL;
    if (p->live_prev)
        p->live_prev->live_next = p->live_next;
    else
        t->live = p->live_next;
    if (p->live_next)
        p->live_next->live_prev = p->live_prev;
    buffers_give(&t->buffers, p->data);
    free(p);
}

/* ---- failing ---- */

static void cancel_part(struct transfer *t, struct part *p)
{
    if (p->fetching)
        t->source->cancel(t->source, p);
    else if (p->storing)
        t->sink->cancel(t->sink, p->file, p);
}

static void stop(struct transfer *t, const struct nc_err *why)
{
    if (t->stopping)
        return;
    t->stopping = true;
    t->fatal = *why;
    for (struct part *p = t->live; p; p = p->live_next)
        cancel_part(t, p);
    for (size_t i = 0; i < t->count; i++) {
        if (t->files[i]->busy)
            t->sink->cancel(t->sink, t->files[i], NULL);
    }
}

/* Reasons that lie in one file (any other would meet every file), and whether fetching the file
 * once more may help. */
static const struct own_reason {
    const char *code;
    bool again;
} own_reasons[] = {
    {"DigestMismatch", true},     {"BadRange", true},        {"LongBody", true},
    {"ShortBody", true},          {"NoSuchUpload", true},    {"InvalidPart", true},
    {"InvalidPartOrder", true},   {"Changed", true},         {"SizeMismatch", true},
    {"PreconditionFailed", true}, {"NotCompleted", true},    {"EntryNotFound", false},
    {"NoSuchKey", false},         {"NotFound", false},       {"ENOENT", false},
    {"EntityTooLarge", false},    {"EntityTooSmall", false}, {"KeyTooLongError", false},
    {"ENAMETOOLONG", false},
};

static const struct own_reason *own_reason(const char *code)
{
    for (size_t i = 0; i < sizeof own_reasons / sizeof own_reasons[0]; i++) {
        if (strcmp(code, own_reasons[i].code) == 0)
            return &own_reasons[i];
    }
    return NULL;
}

/* Gives back every buffer of a file that has nothing in flight. */
static void drop_parts(struct transfer *t, const struct file *f)
{
    t->ready_end = &t->ready;
    for (struct part *p = t->ready; p; p = p->next) {
        if (p->file != f) {
            *t->ready_end = p;
            t->ready_end = &p->next;
        }
    }
    *t->ready_end = NULL;
    for (struct part *p = t->live, *next; p; p = next) {
        next = p->live_next;
        if (p->file == f)
            release(t, p);
    }
}

/* Once nothing of a failing file is in flight, the sink may leave it. */
static void leave_when_idle(struct transfer *t, struct file *f)
{
    if (f->failing && !f->busy && !f->hashing && !f->queued && f->state < FILE_LEAVING) {
        f->parked = NULL;
        drop_parts(t, f);
        add_chore(t, f, FILE_LEAVING);
    }
}

static void fail_file(struct transfer *t, struct file *f, const struct nc_err *why)
{
    if (t->stopping || f->failing)
        return;
    const struct own_reason *own = own_reason(why->code);
    if (!own) {
        stop(t, why);
        return;
    }
    f->failing = true;
    f->err = *why;
    f->again = ++f->tries < TRIES && own->again;
    close_turn(t, f);
    for (struct part *p = t->live; p; p = p->live_next) {
        if (p->file == f)
            cancel_part(t, p);
    }
    leave_when_idle(t, f);
}

/* The sink has removed what it had: those bytes are not done. */
static void forget_parts(struct transfer *t, struct file *f)
{
    for (uint32_t i = 0; i < f->parts; i++) {
        if (f->etags[i][0])
            t->bytes_done -= plan_part_len(f->size, f->part_size, i);
        f->etags[i][0] = f->digests[i][0] = '\0';
    }
}

/* Everything as before the first part, to fetch the file once more. */
static void start_over(struct transfer *t, struct file *f)
{
    free(f->upload_id);
    f->upload_id = NULL;
    forget(t, f);
    f->next = f->hashed = f->stored = 0;
    f->continued = f->failing = f->again = false;
    f->state = FILE_WAITING;
    f->next_file = t->again;
    t->again = f;
}

/* ---- hashing ---- */

static bool digest_fits(struct file *f, struct nc_err *err)
{
    char got[SHA256_HEX_SIZE];
    char git[SHA1_HEX_SIZE];
    sha256_final_hex(&f->hash, got);
    if (f->sha256[0] && strcmp(got, f->sha256) != 0) {
        nc_err_set(err, "DigestMismatch",
                   "%s: its SHA-256 is %s where %s is expected: the bytes are not the published "
                   "ones",
                   f->path, got, f->sha256);
        return false;
    }
    if (f->blob[0]) {
        gitblob_final_hex(&f->git, git);
        if (strcmp(git, f->blob) != 0) {
            nc_err_set(err, "DigestMismatch",
                       "%s: its git blob name is %s where %s is expected: the bytes are not the "
                       "published ones",
                       f->path, git, f->blob);
            return false;
        }
    }
    memcpy(f->sha256, got, sizeof got);
    return true;
}

static bool is_whole(const struct file *f)
{
    return f->stored == f->parts && (f->continued || f->hashed == f->parts);
}

static void finish_when_whole(struct transfer *t, struct file *f)
{
    if (f->state == FILE_OPEN && is_whole(f) && !f->failing && !f->queued && !f->hashing)
        add_chore(t, f, FILE_FINISHING);
}

/* To the sink, or aside until the sink is ready for the file. */
static void queue_part(struct transfer *t, struct part *p)
{
    struct file *f = p->file;
    if (f->state == FILE_OPEN) {
        add_ready(t, p);
    } else {
        p->next = f->parked;
        f->parked = p;
    }
}

static void add_to_file(struct file *f, const char *data, size_t len)
{
    sha256_update(&f->hash, data, len);
    if (f->blob[0])
        gitblob_update(&f->git, data, len);
}

/* All digests of a part that has come, block by block, so that its bytes come from memory only
 * once: its own, the sink's, and the file's where it is this part's turn. Without the lock. */
static int digest_part(struct transfer *t, struct part *p, bool its_turn, struct nc_err *err)
{
    struct file *f = p->file;
    struct xxh3 own = {0};
    struct sha256 sent = {0};
    int rc = xxh3_init(&own) || (t->sink->digests && sha256_init(&sent)) ? -1 : 0;
    for (size_t at = 0, len; rc == 0 && at < p->len; at += len) {
        len = p->len - at < DIGEST_BLOCK ? p->len - at : DIGEST_BLOCK;
        xxh3_update(&own, p->data + at, len);
        if (t->sink->digests)
            sha256_update(&sent, p->data + at, len);
        if (its_turn)
            add_to_file(f, p->data + at, len);
    }
    if (rc == 0)
        xxh3_final_hex(&own, f->digests[p->index]);
    else
        nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
    if (rc == 0 && t->sink->digests)
        sha256_final_hex(&sent, p->sha256);
    xxh3_free(&own);
    sha256_free(&sent);
    return rc;
}

/* The next part of its file has gone into the file's digest. */
static void part_hashed(struct transfer *t, struct part *p)
{
    struct file *f = p->file;
    struct nc_err err;
    p->hashed = true;
    f->hashed++;
    if (f->hashed == f->parts && !digest_fits(f, &err))
        fail_file(t, f, &err);
    else if (p->stored)
        release(t, p);
    else if (f->parts == 1)
        queue_part(t, p); /* now that it is known to be right */
}

/* Hashes what has come before its turn; one worker a file, without the lock while it computes. */
static void hash_in_order(struct transfer *t, struct file *f)
{
    if (f->hashing || f->continued)
        return;
    f->hashing = true;
    while (f->hashed < f->parts && !f->failing && !t->stopping) {
        struct part *p = f->in_flight[f->hashed];
        if (!p || !p->fetched)
            break;
        step_out(t);
        add_to_file(f, p->data, p->len);
        step_in(t);
        part_hashed(t, p);
    }
    f->hashing = false;
    finish_when_whole(t, f);
    leave_when_idle(t, f);
}

/* ---- choosing what to do next ---- */

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
        stop(t, &err);
        return -1;
    }
    add_chore(t, f, FILE_OPENING);
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
            stop(t, &err);
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
        close_turn(t, f);
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
        leave_when_idle(t, f); /* it failed while it waited for this */
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
        step_out(t);
    enum op op = p ? t->sink->store(t->sink, p, &err) : do_chore(t, f, &err);
    if (t->sink->local)
        step_in(t);
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
        step_out(t);
    enum op op = t->source->fetch(t->source, p, &err);
    if (t->source->local)
        step_in(t);
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

static void enter(struct transfer *t)
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

/* Begins what can be begun, sees whether all is over, and lets go of the lock. */
static void leave(struct transfer *t)
{
    while (step(t))
        ;
    rest_when_over(t);
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
        rest_when_over(t);
        if (!t->at_rest)
            pthread_cond_wait(&t->news, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* One will do; signals are the main thread's. */
static void call_hands(struct transfer *t)
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
        stop(t, &err);
    }
}

static void op_over(struct transfer *t, struct file *f)
{
    f->busy--;
    t->busy--;
}

static int by_size(const void *a, const void *b)
{
    const struct file *x = *(struct file *const *)a, *y = *(struct file *const *)b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return strcmp(x->path, y->path);
}

void transfer_start(struct transfer *t)
{
    enter(t);
    /* Large ones first: a large file begun last would be all that is left at the end. */
    if (t->count)
        qsort(t->files, t->count, sizeof t->files[0], by_size);
    t->started = true;
    t->moved_ms = clock_ms();
    if (!t->source->local && !t->sink->local) {
        leave(t);
        return;
    }
    if (t->count)
        call_hands(t);
    rest_when_over(t);
    pthread_mutex_unlock(&t->lock);
}

void transfer_cancel(struct transfer *t)
{
    enter(t);
    struct nc_err err;
    nc_err_set(&err, "Cancelled", "the transfer was cancelled");
    if (!t->at_rest)
        stop(t, &err);
    leave(t);
}

/* ---- what sources and sinks report ---- */

/* A part that will not go on: its buffer is free, its file may be left. */
static void drop_part(struct transfer *t, struct part *p, const struct nc_err *err)
{
    struct file *f = p->file;
    release(t, p);
    if (err)
        fail_file(t, f, err);
    leave_when_idle(t, f);
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
        queue_part(t, p);
    if (hashed)
        part_hashed(t, p);
    hash_in_order(t, f);
}

static void fetch_over(struct transfer *t, struct part *p, const struct nc_err *err)
{
    struct file *f = p->file;
    struct nc_err no_memory;
    bool wanted = !err && !f->failing && !t->stopping;
    bool its_turn = wanted && !f->continued && !f->hashing && f->hashed == p->index;
    if (wanted) {
        f->hashing |= its_turn;
        step_out(t);
        if (digest_part(t, p, its_turn, &no_memory))
            err = &no_memory;
        step_in(t);
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
            fail_file(t, f, err);
        leave_when_idle(t, f);
        return;
    }
    p->stored = true;
    memcpy(f->etags[p->index], etag, strlen(etag) + 1);
    f->stored++;
    t->bytes_done += p->len;
    if (p->hashed || f->continued)
        release(t, p);
    finish_when_whole(t, f);
}

static void file_opened(struct transfer *t, struct file *f)
{
    f->state = FILE_OPEN;
    for (struct part *p = f->parked, *next; p; p = next) {
        next = p->next;
        add_ready(t, p);
    }
    f->parked = NULL;
    finish_when_whole(t, f);
}

static void file_left(struct transfer *t, struct file *f)
{
    free(f->in_flight);
    f->in_flight = NULL;
    forget_parts(t, f);
    if (f->again)
        start_over(t, f);
    else
        end_file(t, f, FILE_FAILED);
}

static void file_ended(struct transfer *t, struct file *f, const struct nc_err *err)
{
    op_over(t, f);
    if (f->state == FILE_LEAVING)
        file_left(t, f); /* whatever came of it */
    else if (err)
        fail_file(t, f, err);
    else if (f->failing)
        leave_when_idle(t, f);
    else if (f->state == FILE_OPENING)
        file_opened(t, f);
    else
        end_file(t, f, FILE_DONE);
}

void transfer_part_fetched(struct part *p, const struct nc_err *err)
{
    struct transfer *t = p->file->transfer;
    enter(t);
    fetch_over(t, p, err);
    leave(t);
}

void transfer_part_stored(struct part *p, const char *etag, const struct nc_err *err)
{
    struct transfer *t = p->file->transfer;
    struct nc_err long_etag;
    if (!err && strlen(etag) >= sizeof p->file->etags[0]) {
        nc_err_set(&long_etag, "BadAnswer", "%s: the server's ETag is too long", p->file->path);
        err = &long_etag;
    }
    enter(t);
    part_stored(t, p, etag, err);
    leave(t);
}

void transfer_file_ended(struct file *f, const struct nc_err *err)
{
    struct transfer *t = f->transfer;
    enter(t);
    file_ended(t, f, err);
    leave(t);
}

/* ---- what the caller reads ---- */

void transfer_stats(struct transfer *t, struct transfer_stats *out)
{
    pthread_mutex_lock(&t->lock);
    uint64_t in = atomic_load(&t->bytes_in), written = atomic_load(&t->bytes_out);
    if (in + written + t->files_done != t->seen_bytes) {
        t->seen_bytes = in + written + t->files_done;
        t->moved_ms = clock_ms();
    }
    *out = (struct transfer_stats){
        .bytes_total = t->bytes_total,
        .bytes_done = t->bytes_done,
        .bytes_in = in,
        .bytes_out = written,
        .files_total = t->count,
        .files_done = t->files_done,
        .files_failed = t->files_failed,
        .retries = atomic_load(&t->retries),
        .moved_ms = t->moved_ms,
        .memory = t->buffers.budget,
        .parallel = t->parallel,
    };
    pthread_mutex_unlock(&t->lock);
}

struct file *transfer_next_ended(struct transfer *t)
{
    pthread_mutex_lock(&t->lock);
    struct file *f = t->over;
    if (f) {
        t->over = f->next_file;
        if (!t->over)
            t->over_end = &t->over;
    }
    pthread_mutex_unlock(&t->lock);
    return f;
}

bool transfer_failed(struct transfer *t, struct nc_err *err)
{
    pthread_mutex_lock(&t->lock);
    bool failed = t->fatal.code[0] != '\0';
    *err = t->fatal;
    pthread_mutex_unlock(&t->lock);
    return failed;
}

_Atomic uint64_t *transfer_bytes_in(struct transfer *t)
{
    return &t->bytes_in;
}

_Atomic uint64_t *transfer_bytes_out(struct transfer *t)
{
    return &t->bytes_out;
}

struct http_pool *transfer_pool(struct transfer *t)
{
    return t->pool;
}

void transfer_bound(struct transfer *t, struct http_request *r)
{
    if (!r->attempts_max) /* else AWS_MAX_ATTEMPTS says */
        r->attempts_max = PART_ATTEMPTS;
    r->give_up_ms = PART_GIVE_UP_MS;
    r->stall_ms = t->stall_ms;
}

void transfer_note_retries(struct transfer *t, unsigned attempts)
{
    if (attempts > 1)
        atomic_fetch_add(&t->retries, attempts - 1);
}
