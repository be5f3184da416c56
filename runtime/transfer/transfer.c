#include "transfer/transfer.h"

#include "base/clock.h"
#include "base/limits.h"
#include "transfer/fate.h"
#include "transfer/plan.h"
#include "transfer/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARALLEL_PER_CPU = 8,
    PARALLEL_LEAST = 16,
    PARALLEL_MOST = 1024,
    OPEN_FILES_LEAST = 4,
    PART_ATTEMPTS = 10,
    PART_GIVE_UP_MS = 120 * 1000,
};

static const uint64_t memory_per_slot = (uint64_t)12 << 20;

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

static void free_file(struct transfer *t, struct file *f)
{
    fate_forget(t, f);
    sha256_free(&f->hash);
    gitblob_free(&f->git);
    free(f->in_flight);
    free(f->digests);
    free(f->etags);
    free(f->upload_id);
    free(f->path);
    free(f);
}

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
        fate_release(t, t->live);
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
static int by_size(const void *a, const void *b)
{
    const struct file *x = *(struct file *const *)a, *y = *(struct file *const *)b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return strcmp(x->path, y->path);
}

void transfer_start(struct transfer *t)
{
    schedule_enter(t);
    /* Large ones first: a large file begun last would be all that is left at the end. */
    if (t->count)
        qsort(t->files, t->count, sizeof t->files[0], by_size);
    t->started = true;
    t->moved_ms = clock_ms();
    if (!t->source->local && !t->sink->local) {
        schedule_leave(t);
        return;
    }
    if (t->count)
        schedule_call_hands(t);
    schedule_rest_when_over(t);
    pthread_mutex_unlock(&t->lock);
}

void transfer_cancel(struct transfer *t)
{
    schedule_enter(t);
    struct nc_err err;
    nc_err_set(&err, "Cancelled", "the transfer was cancelled");
    if (!t->at_rest)
        fate_stop(t, &err);
    schedule_leave(t);
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
