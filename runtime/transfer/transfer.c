#include "transfer/transfer.h"

#include "base/clock.h"
#include "base/limits.h"
#include "transfer/fate.h"
#include "transfer/plan.h"
#include "transfer/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    PARALLEL_PER_CPU = 8,
    PARALLEL_LEAST = 16,
    CLIMB_MOST = 16, /* times the slots it starts with */
    OPEN_FILES_LEAST = 4,
    BLOCKS_LEAST = 8, /* larger ones than usual are taken where so many fit the budget */
    PART_ATTEMPTS = 10,
    PART_GIVE_UP_MS = 120 * 1000,
    PACE_STEP_US = 50 * 1000, /* how late the end of a job may be noticed */
};

static const uint64_t memory_per_slot = (uint64_t)12 << 20;

/* They may take three quarters of what the process may have open. */
static unsigned begun_most(void)
{
    struct rlimit limit;
    uint64_t most = BEGUN_FILES_MOST;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        uint64_t ours = limit.rlim_cur / 4 * 3;
        uint64_t files = ours > HANDS_MOST ? (ours - HANDS_MOST) / FILES_EACH : 0;
        most = files < most ? files : most;
    }
    return most < BEGUN_FILES_LEAST ? BEGUN_FILES_LEAST : (unsigned)most;
}

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
    parallel = parallel < 2 ? 2 : parallel > PARALLEL_MOST ? PARALLEL_MOST : parallel;
    unsigned most = options->parallel ? parallel : parallel * CLIMB_MOST;
    climb_init(&t->climb, parallel, options->parallel ? parallel : PARALLEL_LEAST / 4,
               most > PARALLEL_MOST ? PARALLEL_MOST : most);
    uint64_t memory = options->memory;
    if (!memory) {
        memory = limits_memory() / 4;
        if (memory > parallel * memory_per_slot)
            memory = parallel * memory_per_slot;
    }
    t->pool = options->pool;
    t->source = options->source;
    t->sink = options->sink;
    t->ended = options->ended;
    t->arg = options->arg;
    t->part_size = options->part_size;
    t->stall_ms = options->stall_ms;
    t->sha256 = options->sha256;
    t->paced = options->limit_rate > 0;
    pace_init(&t->pace_in, t->paced ? options->limit_rate : 1);
    pace_init(&t->pace_out, t->paced ? options->limit_rate : 1);
    t->growing = options->growing;
    t->open_most = t->sink->local ? parallel : parallel / 2;
    if (t->open_most < OPEN_FILES_LEAST)
        t->open_most = OPEN_FILES_LEAST;
    if (t->open_most > OPEN_FILES_MOST)
        t->open_most = OPEN_FILES_MOST;
    t->begun_most = begun_most();
    queue_init(&t->chores);
    queue_init(&t->finishes);
    queue_init(&t->rereads);
    queue_init(&t->over);
    t->blocks_end = &t->blocks;
    t->ready_end = &t->ready;
    t->moved_ms = clock_ms();
    buffers_init(&t->buffers, memory);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->rest, NULL);
    pthread_cond_init(&t->news, NULL);
    pthread_cond_init(&t->written, NULL);
    *out = t;
    return 0;
}

static void free_file(struct file *f)
{
    sha256_free(&f->hash);
    gitblob_free(&f->git);
    free(f->in_flight);
    free(f->digests);
    free(f->expected);
    free(f->etags);
    free(f->upload_id);
    free(f->version);
    free(f->etag);
    free(f->err);
    free(f->path);
    free(f);
}

static void free_list(struct file *f)
{
    for (struct file *next; f; f = next) {
        next = f->next_file;
        free_file(f);
    }
}

/* Reasons that lie in the disk: what was written is in the way. Any other run may go on with it. */
static bool keeps_parts(const struct transfer *t)
{
    static const char *const of_disk[] = {"ENOSPC", "EDQUOT", "EIO", "EFBIG", "EROFS"};
    for (size_t i = 0; i < sizeof of_disk / sizeof of_disk[0]; i++) {
        if (strcmp(t->fatal.code, of_disk[i]) == 0)
            return false;
    }
    return true;
}

static void free_files(struct transfer *t)
{
    for (struct file *f = t->begun, *next; f; f = next) {
        next = f->begun_next;
        fate_forget(t, f, keeps_parts(t));
        free_file(f);
    }
    for (size_t i = t->next_waiting; i < t->count; i++)
        free_file(t->waiting[i]);
    free_list(t->over.first);
    free_list(t->again);
    if (t->taken)
        free_file(t->taken);
    free(t->waiting);
}

void transfer_stop(struct transfer *t)
{
    if (!t->started)
        return;
    transfer_cancel(t);
    pthread_mutex_lock(&t->lock);
    while (!t->at_rest)
        pthread_cond_wait(&t->rest, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

const struct file *transfer_next_unfinished(struct transfer *t, const struct file *before)
{
    pthread_mutex_lock(&t->lock);
    const struct file *f = before ? before->begun_next : t->begun;
    while (f && !f->upload_id)
        f = f->begun_next;
    pthread_mutex_unlock(&t->lock);
    return f;
}

void transfer_free(struct transfer *t)
{
    if (!t)
        return;
    if (t->started) {
        transfer_stop(t);
        for (unsigned i = 0; i < t->hands_count; i++)
            pthread_join(t->hands[i], NULL);
    }
    while (t->live)
        fate_release(t, t->live);
    free_files(t);
    t->source->free(t->source);
    t->sink->free(t->sink);
    buffers_free(&t->buffers);
    pthread_cond_destroy(&t->rest);
    pthread_cond_destroy(&t->news);
    pthread_cond_destroy(&t->written);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* A copy of text, or NULL for none; *failed is set without memory. */
static char *copy_of(const char *text, bool *failed)
{
    char *copy = text ? strdup(text) : NULL;
    *failed |= text && !copy;
    return copy;
}

static bool is_streamed(const struct transfer *t, uint64_t size, uint64_t part_size)
{
    return t->sink->streamed && (size > part_size || size > KEPT_MOST);
}

/* Bytes of buffer that its largest part needs. */
static uint64_t largest_need(const struct transfer *t, uint64_t size, uint64_t part_size)
{
    if (is_streamed(t, size, part_size))
        return BLOCK;
    return size < part_size ? size : part_size;
}

static struct file *new_file(const struct transfer *t, const struct transfer_file *wanted,
                             uint64_t part_size)
{
    struct file *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    bool failed = false;
    f->size = wanted->size;
    f->part_size = part_size;
    f->parts = plan_parts(wanted->size, part_size);
    f->streamed = is_streamed(t, f->size, part_size);
    f->block = BLOCK;
    f->path = copy_of(wanted->path, &failed);
    f->version = copy_of(wanted->version, &failed);
    f->etag = copy_of(wanted->etag, &failed);
    f->digests = calloc(f->parts, sizeof f->digests[0]);
    f->etags = calloc(f->parts, sizeof f->etags[0]);
    if (failed || !f->digests || !f->etags) {
        free_file(f);
        return NULL;
    }
    const char *sha256 = wanted->sha256, *blob = wanted->blob;
    if (sha256 && strlen(sha256) == SHA256_HEX_SIZE - 1)
        memcpy(f->sha256, sha256, SHA256_HEX_SIZE);
    f->wanted_sha256 = f->sha256[0];
    if (blob && strlen(blob) == SHA1_HEX_SIZE - 1)
        memcpy(f->blob, blob, SHA1_HEX_SIZE);
    return f;
}

/* Room for one file more among those that wait. */
static int grow_waiting(struct transfer *t)
{
    if (t->next_waiting > t->count / 2) {
        t->count -= t->next_waiting;
        t->admitted -= t->next_waiting;
        memmove(t->waiting, t->waiting + t->next_waiting, t->count * sizeof t->waiting[0]);
        t->next_waiting = 0;
    }
    if (t->count < t->room)
        return 0;
    size_t room = t->room ? t->room * 2 : 64;
    struct file **files = realloc(t->waiting, room * sizeof files[0]);
    if (!files)
        return -1;
    t->waiting = files;
    t->room = room;
    return 0;
}

static int plan_file(const struct transfer *t, const struct transfer_file *wanted,
                     uint64_t *part_size, struct nc_err *err)
{
    if (plan_part_size(wanted->size, wanted->part_size ? wanted->part_size : t->part_size,
                       part_size, err)) {
        struct nc_err why = *err;
        return nc_err_set(err, why.code, "%s: %s", wanted->path, why.message);
    }
    uint64_t largest = largest_need(t, wanted->size, *part_size);
    if (largest > t->buffers.budget)
        return nc_err_set(err, "Usage",
                          "%s: a buffer of %" PRIu64
                          " bytes does not fit the memory budget of %" PRIu64
                          " bytes; raise memory= or lower part_size=",
                          wanted->path, largest, t->buffers.budget);
    return 0;
}

struct file *transfer_add(struct transfer *t, const struct transfer_file *wanted,
                          struct nc_err *err)
{
    uint64_t part_size;
    if (plan_file(t, wanted, &part_size, err))
        return NULL;
    struct file *f = new_file(t, wanted, part_size);
    if (!f) {
        nc_err_set(err, "ENOMEM", "%s: out of memory", wanted->path);
        return NULL;
    }
    f->transfer = t;
    pthread_mutex_lock(&t->lock);
    bool failed = grow_waiting(t) != 0;
    if (!failed) {
        t->waiting[t->count++] = f;
        t->files_total++;
        t->bytes_total += f->size;
        uint64_t largest = largest_need(t, f->size, part_size);
        if (largest > t->largest_part)
            t->largest_part = (size_t)largest;
    }
    pthread_mutex_unlock(&t->lock);
    if (!failed)
        return f;
    free_file(f);
    nc_err_set(err, "ENOMEM", "%s: out of memory", wanted->path);
    return NULL;
}

bool transfer_larger_blocks(struct file *f, size_t block)
{
    if (block > f->transfer->buffers.budget / BLOCKS_LEAST)
        return false;
    f->block = block;
    return true;
}

int transfer_expect(struct file *f, uint32_t index, const char *xxh3, struct nc_err *err)
{
    if (!f->expected && !(f->expected = calloc(f->parts, sizeof f->expected[0])))
        return nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
    if (index >= f->parts || strlen(xxh3) != XXH3_HEX_SIZE - 1)
        return nc_err_set(err, "Usage", "%s: part %u has no digest like %s", f->path,
                          (unsigned)index + 1, xxh3);
    memcpy(f->expected[index], xxh3, XXH3_HEX_SIZE);
    return 0;
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
    pthread_mutex_lock(&f->transfer->lock);
    f->transfer->bytes_done += plan_part_len(f->size, f->part_size, index);
    pthread_mutex_unlock(&f->transfer->lock);
    return 0;
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
    schedule_enter(t);
    /* Large ones first: a large file begun last would be all that is left at the end. */
    if (t->count)
        qsort(t->waiting, t->count, sizeof t->waiting[0], by_size);
    t->admitted = t->count;
    t->started = true;
    t->moved_ms = clock_ms();
    if ((t->source->local || t->sink->local) && (t->count || t->growing))
        schedule_call_hands(t);
    schedule_leave(t);
}

void transfer_go_on(struct transfer *t)
{
    schedule_enter(t);
    t->admitted = t->count;
    schedule_leave(t);
}

void transfer_no_more(struct transfer *t)
{
    schedule_enter(t);
    t->admitted = t->count;
    t->growing = false;
    schedule_leave(t);
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
    uint64_t seen = in + written + atomic_load(&t->bytes_read) + t->bytes_done + t->files_done;
    if (seen != t->seen_bytes) {
        t->seen_bytes = seen;
        t->moved_ms = clock_ms();
    }
    *out = (struct transfer_stats){
        .bytes_total = t->bytes_total,
        .bytes_done = t->bytes_done,
        .bytes_in = in,
        .bytes_out = written,
        .files_total = t->files_total,
        .files_waiting = t->count - t->next_waiting,
        .files_done = t->files_done,
        .files_failed = t->files_failed,
        .retries = atomic_load(&t->retries),
        .moved_ms = t->moved_ms,
        .memory = t->buffers.budget,
        .parallel = t->climb.level,
    };
    pthread_mutex_unlock(&t->lock);
}

struct file *transfer_next_ended(struct transfer *t)
{
    pthread_mutex_lock(&t->lock);
    struct file *before = t->taken;
    struct file *f = t->taken = queue_take(&t->over);
    pthread_mutex_unlock(&t->lock);
    if (before)
        free_file(before);
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
    r->cut_late = r->take != NULL;
    if (t->paced)
        r->pace = r->take ? &t->pace_in : &t->pace_out;
}

void transfer_keep_pace(struct transfer *t, size_t bytes)
{
    if (!t->paced || !t->source->local || !t->sink->local)
        return;
    uint64_t wait_us = pace_book(&t->pace_in, bytes, clock_us());
    pthread_mutex_lock(&t->lock);
    while (wait_us && !t->stopping) {
        uint64_t step = wait_us < PACE_STEP_US ? wait_us : PACE_STEP_US;
        pthread_mutex_unlock(&t->lock);
        usleep((useconds_t)step);
        wait_us -= step;
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
}

void transfer_note(struct transfer *t, const struct http_request *r)
{
    if (r->attempts + r->late_cuts > 1)
        atomic_fetch_add(&t->retries, r->attempts + r->late_cuts - 1);
    if (r->refusals)
        atomic_fetch_add(&t->refusals, r->refusals);
}
