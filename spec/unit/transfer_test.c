/* The transfer engine between a source and a sink that are made up: their operations end on threads
 * of their own after short random times, and fail as each round's seed says. What they see of the
 * engine is checked: which calls it makes in which order, how many at a time, and every byte. */
#include "transfer/transfer.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "transfer/plan.h"
#include "unit.h"

enum {
    THREADS = 3,
    SMALL = 16, /* kinds of content: small ones, then those of several parts */
    LARGE = 8,
    KINDS = SMALL + LARGE,
    MOST_FILES = 24,
    ROUNDS = 200,
    ROUNDS_FOR_MS = 12000, /* no new round later than this */
    HANG_S = 30,
};

static const uint64_t MIB = 1024 * 1024, PART_SIZE = 5 * 1024 * 1024;

/* ---- content ---- */

/* Bytes whose period divides no part size, so that a part in a wrong place is found out. */
enum { PERIOD = 65521 };
static char base[2 * PERIOD];

struct kind {
    uint64_t size;
    char sha256[SHA256_HEX_SIZE], blob[SHA1_HEX_SIZE];
};
static struct kind kinds[KINDS];

static size_t chunk_at(unsigned kind, uint64_t offset, uint64_t left, const char **data)
{
    size_t at = (size_t)((offset + kind * 7919u) % PERIOD);
    *data = base + at;
    return left < PERIOD ? (size_t)left : PERIOD;
}

static void fill(char *out, unsigned kind, uint64_t offset, size_t len)
{
    const char *data;
    for (size_t at = 0, n; at < len; at += n) {
        n = chunk_at(kind, offset + at, len - at, &data);
        memcpy(out + at, data, n);
    }
}

static bool is_right(const char *got, unsigned kind, uint64_t offset, size_t len)
{
    const char *data;
    for (size_t at = 0, n; at < len; at += n) {
        n = chunk_at(kind, offset + at, len - at, &data);
        if (memcmp(got + at, data, n) != 0)
            return false;
    }
    return true;
}

static void make_kinds(void)
{
    static const uint64_t large[LARGE] = {5242881,  6 * 1048576, 10485760, 10485761,
                                          13000000, 15728639,    15728640, 22000000};
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof base; i++) {
        x = x * 1664525 + 1013904223;
        base[i] = i < PERIOD ? (char)(x >> 24) : base[i - PERIOD];
    }
    for (unsigned i = 0; i < KINDS; i++) {
        struct kind *k = &kinds[i];
        k->size = i < SMALL ? (uint64_t)i * i * 300 : large[i - SMALL];
        char *all = malloc(k->size + 1);
        struct gitblob git = {0};
        fill(all, i, 0, k->size);
        sha256_hex(all, k->size, k->sha256);
        gitblob_init(&git, k->size);
        gitblob_update(&git, all, k->size);
        gitblob_final_hex(&git, k->blob);
        gitblob_free(&git);
        free(all);
    }
}

/* ---- what must hold ---- */

enum rule {
    BYTES,
    ORDER,
    ONCE,
    BUDGET,
    SLOTS,
    STATS,
    OUTCOME,
    REASON,
    REPORTED,
    ENDED,
    RELEASED,
    CALLER,
    RULES,
};

static const char *const rules[RULES] = {
    [BYTES] = "a file is finished only with all its bytes in their places",
    [ORDER] = "calls come in order: open, store, then finish or leave, and nothing after that",
    [ONCE] = "no part is fetched or stored twice at a time, no file finished twice",
    [BUDGET] = "bytes in flight never exceed the budget",
    [SLOTS] = "parts in flight never exceed their share of the slots",
    [STATS] = "the numbers are right at the end",
    [OUTCOME] = "files that can't come are failed, all others are done",
    [REASON] = "a shared reason ends the job and is told",
    [REPORTED] = "every ended file is reported once",
    [ENDED] = "the end is told exactly once",
    [RELEASED] = "what an operation or a file held is released, and both ends are freed once",
    [CALLER] = "the caller's thread is never kept with local work",
};

static atomic_bool broken[RULES];
static uint64_t seed_now;
static pthread_t caller;

static void hold(enum rule rule, bool condition, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void hold(enum rule rule, bool condition, const char *fmt, ...)
{
    if (condition || atomic_exchange(&broken[rule], true))
        return;
    va_list args;
    va_start(args, fmt);
    printf("# seed %llu: %s: ", (unsigned long long)seed_now, rules[rule]);
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

/* ---- a round ---- */

enum plan {
    WELL,
    SHORT_ONCE, /* a part comes short; fetching the file again helps, or not */
    SHORT_ALWAYS,
    WRONG_ONCE, /* a part has a wrong byte */
    WRONG_ALWAYS,
    STORE_ONCE, /* the sink refuses a part for good */
    STORE_ALWAYS,
    OPEN_ONCE,
    OPEN_NEVER,
    FINISH_ONCE,
    FINISH_ALWAYS,
    GONE, /* not found: not even tried again */
    PLANS,
    NO_ACCESS, /* ends the job */
};

/* What becomes of each plan, and the reason. */
static const struct fate {
    bool done;
    const char *code;
} fates[PLANS] = {
    [WELL] = {true, ""},
    [SHORT_ONCE] = {true, ""},
    [SHORT_ALWAYS] = {false, "ShortBody"},
    [WRONG_ONCE] = {true, ""},
    [WRONG_ALWAYS] = {false, "DigestMismatch"},
    [STORE_ONCE] = {true, ""},
    [STORE_ALWAYS] = {false, "InvalidPart"},
    [OPEN_ONCE] = {true, ""},
    [OPEN_NEVER] = {false, "KeyTooLongError"},
    [FINISH_ONCE] = {true, ""},
    [FINISH_ALWAYS] = {false, "NoSuchUpload"},
    [GONE] = {false, "EntryNotFound"},
};

enum stage { CLOSED, OPENING, OPENED, FINISHING, FINISHED, LEAVING };

struct thing {         /* the round's view of one file */
    struct file *file; /* NULL once it is freed */
    unsigned kind;
    uint32_t parts;
    enum file_state state; /* as last seen, with the two below */
    char sha256[SHA256_HEX_SIZE];
    char code[sizeof(((struct nc_err *)NULL)->code)];
    bool continued;
    enum plan plan;
    uint32_t bad_part;
    uint32_t fails_in; /* NO_ACCESS: 0 fetch, 1 store, 2 open, 3 finish */
    unsigned tries;    /* times the sink has left it */
    enum stage stage;
    unsigned stored, storing, fetching;
    bool has[16], busy_fetch[16], busy_store[16];
    char *data;
    unsigned reported;
};

enum what { FETCH, STORE, OPEN, FINISH, LEAVE };

struct event {
    enum what what;
    uint64_t due_us;
    struct part *part;
    struct file *file;
    bool cancelled;
    struct event *next;
};

/* The world of a round. Its lock is taken below the transfer's and never held around a call. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct event *events; /* by time */
    bool over;
    uint64_t random;
    struct thing things[MOST_FILES];
    unsigned count;
    bool source_local, sink_local, sink_digests;
    bool some_fail; /* then a buffer may come free unseen: in_flight counts too much */
    uint64_t memory, in_flight;
    unsigned parallel, fetching, storing;
    int held; /* operations and files that have something to release */
    int freed;
    unsigned slow_us;
    atomic_int ended;
    sem_t end;
} w = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t draw(uint64_t below)
{
    w.random += 0x9e3779b97f4a7c15u;
    uint64_t z = w.random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static void lock(void)
{
    pthread_mutex_lock(&w.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&w.lock);
}

/* By its path, "f<index>". */
static struct thing *thing_of(const struct file *f)
{
    return &w.things[strtoul(f->path + 1, NULL, 10)];
}

static struct event *add_event(enum what what, struct file *file, struct part *part)
{
    struct event *e = calloc(1, sizeof *e);
    e->what = what;
    e->file = file;
    e->part = part;
    lock();
    e->due_us = clock_us() + draw(w.slow_us);
    struct event **at = &w.events;
    while (*at && (*at)->due_us <= e->due_us)
        at = &(*at)->next;
    e->next = *at;
    *at = e;
    pthread_cond_broadcast(&w.changed);
    unlock();
    return e;
}

static void cancel_events(const struct file *file, const struct part *part)
{
    lock();
    for (struct event *e = w.events; e; e = e->next) {
        if (part ? e->part == part : e->file == file && !e->part)
            e->cancelled |= draw(4) != 0; /* some are too late to be stopped */
    }
    unlock();
}

/* A small part takes a quarter of a slot; in sixteenths. */
enum { WHOLE = 16 };
static unsigned weight(const struct part *p)
{
    return p->len <= MIB ? WHOLE / 4 : WHOLE;
}

/* Once, at the first try, or always. */
static bool fails(const struct thing *g, enum plan once, enum plan always)
{
    return (g->plan == once && g->tries == 0) || g->plan == always;
}

static int fail(struct nc_err *err, const char *code, const struct file *f)
{
    return nc_err_set(err, code, "%s: made to fail", f->path);
}

/* ---- the operations themselves, on whatever thread ---- */

/* The part's bytes, a wrong one among them where that is asked for, in pieces of any length. */
static int bring(struct part *p, const struct thing *g, bool wrong, struct nc_err *err)
{
    static const size_t pieces[] = {1000, 16384, 100000, 5000000};
    size_t piece = pieces[(g->kind + p->index) % 4];
    if (transfer_part_begin(p, err))
        return -1;
    for (size_t at = 0, n; at < p->len; at += n) {
        const char *data;
        n = chunk_at(g->kind, p->offset + at, p->len - at, &data);
        n = n < piece ? n : piece;
        if (wrong && at <= p->len / 2 && p->len / 2 < at + n) {
            char other = data[p->len / 2 - at] ^ 1;
            size_t before = p->len / 2 - at;
            if (transfer_part_take(p, data, before, err) || transfer_part_take(p, &other, 1, err) ||
                transfer_part_take(p, data + before + 1, n - before - 1, err))
                return -1;
        } else if (transfer_part_take(p, data, n, err)) {
            return -1;
        }
    }
    return 0;
}

static int do_fetch(struct part *p, struct nc_err *err)
{
    struct thing *g = thing_of(p->file);
    lock();
    bool here = p->index == g->bad_part;
    bool is_short = here && fails(g, SHORT_ONCE, SHORT_ALWAYS);
    bool wrong = here && fails(g, WRONG_ONCE, WRONG_ALWAYS);
    bool gone = here && g->plan == GONE;
    bool refused = here && g->plan == NO_ACCESS && g->fails_in == 0;
    unlock();
    if (is_short)
        return fail(err, "ShortBody", p->file);
    if (gone)
        return fail(err, "EntryNotFound", p->file);
    if (refused)
        return fail(err, "AccessDenied", p->file);
    return bring(p, g, wrong, err);
}

static void fetch_over(struct part *p, bool failed)
{
    struct thing *g = thing_of(p->file);
    lock();
    w.fetching -= weight(p);
    g->fetching--;
    g->busy_fetch[p->index] = false;
    if (failed)
        w.in_flight -= p->len;
    unlock();
}

static int do_store(struct part *p, struct nc_err *err)
{
    struct thing *g = thing_of(p->file);
    lock();
    bool here = p->index == g->bad_part;
    bool broken_part = here && fails(g, STORE_ONCE, STORE_ALWAYS);
    bool refused = here && g->plan == NO_ACCESS && g->fails_in == 1;
    unlock();
    if (broken_part)
        return fail(err, "InvalidPart", p->file);
    if (refused)
        return fail(err, "AccessDenied", p->file);
    memcpy(g->data + p->offset, p->data, p->len);
    return 0;
}

static void store_over(struct part *p, bool failed)
{
    struct thing *g = thing_of(p->file);
    lock();
    w.storing -= weight(p);
    w.in_flight -= p->len;
    g->storing--;
    g->busy_store[p->index] = false;
    if (!failed) {
        g->has[p->index] = true;
        g->stored++;
    }
    unlock();
}

static int do_open(struct file *f, struct nc_err *err)
{
    struct thing *g = thing_of(f);
    lock();
    const char *code = (g->plan == OPEN_ONCE && g->tries == 0)    ? "PreconditionFailed"
                       : g->plan == OPEN_NEVER                    ? "KeyTooLongError"
                       : g->plan == NO_ACCESS && g->fails_in == 2 ? "AccessDenied"
                                                                  : NULL;
    if (!code)
        g->stage = OPENED;
    unlock();
    return code ? fail(err, code, f) : 0;
}

static int do_finish(struct file *f, struct nc_err *err)
{
    struct thing *g = thing_of(f);
    lock();
    const char *code = fails(g, FINISH_ONCE, FINISH_ALWAYS)       ? "NoSuchUpload"
                       : g->plan == NO_ACCESS && g->fails_in == 3 ? "AccessDenied"
                                                                  : NULL;
    if (!code)
        g->stage = FINISHED;
    unlock();
    return code ? fail(err, code, f) : 0;
}

static int do_leave(struct file *f, struct nc_err *err)
{
    struct thing *g = thing_of(f);
    lock();
    g->tries++;
    g->stage = CLOSED;
    g->stored = 0;
    memset(g->has, 0, sizeof g->has);
    memset(g->data, 0, f->size);
    bool fine = draw(3) != 0;
    unlock();
    return fine ? 0 : fail(err, "InternalError", f); /* which nobody minds */
}

static int do_file(enum what what, struct file *f, struct nc_err *err)
{
    return what == OPEN ? do_open(f, err) : what == FINISH ? do_finish(f, err) : do_leave(f, err);
}

static void carry_out(struct event *e)
{
    struct nc_err err;
    int rc;
    if (e->cancelled)
        rc = fail(&err, "Cancelled", e->file);
    else
        rc = e->what == FETCH   ? do_fetch(e->part, &err)
             : e->what == STORE ? do_store(e->part, &err)
                                : do_file(e->what, e->file, &err);
    /* After it has told its end, part and file may be gone. */
    const struct nc_err *failed = rc ? &err : NULL;
    if (e->what == FETCH) {
        fetch_over(e->part, rc);
        transfer_part_fetched(e->part, failed);
    } else if (e->what == STORE) {
        store_over(e->part, rc);
        transfer_part_stored(e->part, "\"etag\"", failed);
    } else {
        transfer_file_ended(e->file, failed);
    }
    free(e);
}

static void *work(void *arg)
{
    (void)arg;
    lock();
    while (!w.over || w.events) {
        struct event *e = w.events;
        uint64_t now = clock_us(), due = e ? e->due_us : 0;
        if (!e) {
            pthread_cond_wait(&w.changed, &w.lock);
        } else if (due > now) {
            unlock();
            usleep((useconds_t)(due - now));
            lock();
        } else {
            w.events = e->next;
            unlock();
            carry_out(e);
            lock();
        }
    }
    unlock();
    return NULL;
}

/* ---- the vtables ---- */

static void begin_fetch(struct part *p)
{
    struct thing *g = thing_of(p->file);
    lock();
    unsigned most = w.sink_local ? w.parallel * WHOLE : w.parallel * WHOLE / 2;
    w.fetching += weight(p);
    hold(SLOTS, w.fetching < most + WHOLE, "fetches: %u sixteenths of %u", w.fetching, most);
    w.in_flight += p->len;
    hold(BUDGET, w.in_flight <= w.memory || w.some_fail, "%llu bytes",
         (unsigned long long)w.in_flight);
    hold(ONCE, !g->busy_fetch[p->index] && !g->has[p->index], "%s part %u is fetched again",
         p->file->path, p->index);
    hold(ORDER, g->stage < FINISHING, "%s part %u is fetched in stage %d", p->file->path, p->index,
         g->stage);
    hold(BYTES,
         p->len == plan_part_len(p->file->size, p->file->part_size, p->index) &&
             p->offset == p->index * p->file->part_size,
         "%s part %u is not the planned one", p->file->path, p->index);
    g->busy_fetch[p->index] = true;
    g->fetching++;
    w.held++;
    unlock();
}

static enum op fetch(struct source *self, struct part *p, struct nc_err *err)
{
    (void)self;
    begin_fetch(p);
    if (w.source_local) {
        hold(CALLER, !pthread_equal(pthread_self(), caller), "fetch of %s", p->file->path);
        int rc = do_fetch(p, err);
        fetch_over(p, rc);
        return rc ? OP_FAILED : OP_OVER;
    }
    p->op = add_event(FETCH, p->file, p);
    return OP_BEGUN;
}

static void cancel_fetch(struct source *self, struct part *p)
{
    (void)self;
    cancel_events(NULL, p);
}

static void release_fetch(struct source *self, struct part *p)
{
    (void)self;
    lock();
    w.held--;
    p->op = NULL;
    unlock();
}

static void forget_nothing(struct source *self, struct file *f)
{
    (void)self;
    (void)f;
}

static void free_source(struct source *self)
{
    lock();
    w.freed++;
    unlock();
    free(self);
}

static enum op begin_file(enum what what, struct file *f, struct nc_err *err)
{
    if (w.sink_local) {
        hold(CALLER, !pthread_equal(pthread_self(), caller), "call %d for %s", what, f->path);
        return do_file(what, f, err) ? OP_FAILED : OP_OVER;
    }
    add_event(what, f, NULL);
    return OP_BEGUN;
}

static enum op open_file(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)self;
    struct thing *g = thing_of(f);
    lock();
    hold(ORDER, g->stage == CLOSED, "%s is opened in stage %d", f->path, g->stage);
    g->stage = OPENING;
    if (!f->sink_data) {
        f->sink_data = malloc(1);
        w.held++;
    }
    unlock();
    return begin_file(OPEN, f, err);
}

static enum op store(struct sink *self, struct part *p, struct nc_err *err)
{
    (void)self;
    struct thing *g = thing_of(p->file);
    lock();
    unsigned most = w.parallel * WHOLE / 2;
    w.storing += weight(p);
    hold(SLOTS, w.sink_local || w.storing < most + WHOLE, "stores: %u sixteenths of %u", w.storing,
         most);
    hold(ORDER, g->stage == OPENED, "%s part %u is stored in stage %d", p->file->path, p->index,
         g->stage);
    hold(BYTES, !w.sink_digests == !p->sha256[0], "%s part %u: its digest for the sink",
         p->file->path, p->index);
    hold(ONCE, !g->has[p->index] && !g->busy_store[p->index] && !g->busy_fetch[p->index],
         "%s part %u is stored again", p->file->path, p->index);
    g->busy_store[p->index] = true;
    g->storing++;
    w.held++;
    unlock();
    if (w.sink_local) {
        hold(CALLER, !pthread_equal(pthread_self(), caller), "store of %s", p->file->path);
        int rc = do_store(p, err);
        store_over(p, rc);
        return rc ? OP_FAILED : OP_OVER;
    }
    p->op = add_event(STORE, p->file, p);
    return OP_BEGUN;
}

static enum op finish(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)self;
    struct thing *g = thing_of(f);
    lock();
    hold(ORDER, g->stage == OPENED, "%s is finished in stage %d", f->path, g->stage);
    hold(ORDER, !g->fetching && !g->storing, "%s is finished with parts in flight", f->path);
    hold(BYTES, g->stored == f->parts, "%s is finished with %u of %u parts", f->path, g->stored,
         f->parts);
    hold(BYTES, is_right(g->data, g->kind, 0, f->size), "%s", f->path);
    g->stage = FINISHING;
    unlock();
    return begin_file(FINISH, f, err);
}

static enum op leave(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)self;
    struct thing *g = thing_of(f);
    lock();
    hold(ORDER, g->stage != FINISHED && g->stage != LEAVING, "%s is left in stage %d", f->path,
         g->stage);
    hold(ORDER, !g->fetching && !g->storing, "%s is left with parts in flight", f->path);
    g->stage = LEAVING;
    unlock();
    return begin_file(LEAVE, f, err);
}

static void cancel_in_sink(struct sink *self, struct file *f, struct part *p)
{
    (void)self;
    cancel_events(f, p);
}

static void release_store(struct sink *self, struct part *p)
{
    (void)self;
    lock();
    w.held--;
    p->op = NULL;
    unlock();
}

static void forget_file(struct sink *self, struct file *f, bool keep)
{
    (void)self;
    (void)keep;
    lock();
    w.held--;
    unlock();
    free(f->sink_data);
    f->sink_data = NULL;
}

static void free_sink(struct sink *self)
{
    lock();
    w.freed++;
    unlock();
    free(self);
}

static struct source *new_source(void)
{
    struct source *s = malloc(sizeof *s);
    *s = (struct source){
        .local = w.source_local,
        .fetch = fetch,
        .cancel = cancel_fetch,
        .release = release_fetch,
        .forget = forget_nothing,
        .free = free_source,
    };
    return s;
}

static struct sink *new_sink(void)
{
    struct sink *s = malloc(sizeof *s);
    *s = (struct sink){
        .local = w.sink_local,
        .digests = w.sink_digests,
        .open = open_file,
        .store = store,
        .finish = finish,
        .leave = leave,
        .cancel = cancel_in_sink,
        .release = release_store,
        .forget = forget_file,
        .free = free_sink,
    };
    return s;
}

static void ended(void *arg)
{
    (void)arg;
    atomic_fetch_add(&w.ended, 1);
    sem_post(&w.end);
}

/* ---- rounds ---- */

/* Parts that an earlier run has stored: some, or all. */
static void continue_file(struct thing *g)
{
    struct nc_err err;
    struct file *f = g->file;
    bool all = draw(3) == 0;
    hold(ORDER, transfer_continue(f, "earlier", &err) == 0, "transfer_continue");
    for (uint32_t i = 0; i < f->parts; i++) {
        if (!all && draw(2))
            continue;
        hold(ORDER, transfer_has_part(f, i, "\"old\"") == 0, "transfer_has_part");
        hold(ORDER, transfer_has_part(f, i, "\"old\"") != 0, "a part is given twice");
        fill(g->data + i * f->part_size, g->kind, i * f->part_size,
             (size_t)plan_part_len(f->size, f->part_size, i));
        g->has[i] = true;
        g->stored++;
    }
    /* Its bytes are not hashed here, and it may have none left to fetch or store. */
    if (g->stored && g->plan != FINISH_ONCE && g->plan != FINISH_ALWAYS)
        g->plan = WELL;
}

static void add_thing(struct transfer *t, unsigned kind, bool ends_job)
{
    struct nc_err err;
    struct thing *g = &w.things[w.count];
    const struct kind *k = &kinds[kind];
    char path[32];
    *g = (struct thing){.kind = kind};
    g->plan = w.some_fail && draw(3) == 0 ? (enum plan)draw(PLANS) : WELL;
    if (ends_job && draw(6) == 0)
        g->plan = NO_ACCESS;
    if (!k->size && (g->plan == WRONG_ONCE || g->plan == WRONG_ALWAYS))
        g->plan = WELL;
    snprintf(path, sizeof path, "f%u", w.count);
    bool git = draw(4) == 0; /* then git's name tells, as for the hub's small files */
    struct transfer_file wanted = {.path = path,
                                   .size = k->size,
                                   .sha256 = git ? NULL : k->sha256,
                                   .blob = git ? k->blob : NULL};
    g->file = transfer_add(t, &wanted, &err);
    g->parts = g->file->parts;
    w.count++;
    g->bad_part = (uint32_t)draw(g->file->parts);
    g->fails_in = (uint32_t)draw(4);
    g->data = calloc(1, k->size + 1);
    if (draw(4) == 0)
        continue_file(g);
}

static void look_at_ended(struct transfer *t)
{
    struct file *f;
    while ((f = transfer_next_ended(t))) {
        struct thing *g = thing_of(f);
        g->reported++;
        hold(REPORTED, f->state == FILE_DONE || f->state == FILE_FAILED, "%s in state %d", f->path,
             f->state);
        g->state = f->state;
        memcpy(g->sha256, f->sha256, sizeof g->sha256);
        snprintf(g->code, sizeof g->code, "%s", f->err ? f->err->code : "");
        g->continued = f->continued;
    }
}

static void check_files(bool cut_short)
{
    for (unsigned i = 0; i < w.count; i++) {
        struct thing *g = &w.things[i];
        bool done = g->state == FILE_DONE;
        hold(REPORTED, g->reported <= 1, "f%u was reported %u times", i, g->reported);
        hold(OUTCOME, done == (g->stage == FINISHED), "f%u: state %d, stage %d", i, g->state,
             g->stage);
        if (done)
            hold(BYTES, is_right(g->data, g->kind, 0, kinds[g->kind].size), "f%u", i);
        if (cut_short)
            continue;
        hold(REPORTED, g->reported == 1, "f%u was not reported", i);
        hold(OUTCOME, done == fates[g->plan].done, "f%u: plan %d, state %d", i, g->plan, g->state);
        hold(OUTCOME, strcmp(g->code, fates[g->plan].code) == 0, "f%u: plan %d, %s", i, g->plan,
             g->code);
        if (done && !g->continued)
            hold(OUTCOME, strcmp(g->sha256, kinds[g->kind].sha256) == 0, "f%u: SHA-256 %s", i,
                 g->sha256);
    }
}

static void check_stats(struct transfer *t, bool cut_short)
{
    struct transfer_stats s;
    uint64_t total = 0, done = 0, failed = 0, bytes = 0;
    for (unsigned i = 0; i < w.count; i++) {
        const struct thing *g = &w.things[i];
        uint64_t size = kinds[g->kind].size;
        total += size;
        done += g->state == FILE_DONE;
        failed += g->state == FILE_FAILED;
        for (uint32_t p = 0; p < g->parts; p++)
            bytes += g->has[p] ? plan_part_len(size, PART_SIZE, p) : 0;
    }
    transfer_stats(t, &s);
    hold(STATS, s.bytes_total == total && s.files_total == w.count, "totals");
    hold(STATS, s.files_done == done && s.files_failed == failed, "%llu done, %llu failed",
         (unsigned long long)s.files_done, (unsigned long long)s.files_failed);
    hold(STATS, cut_short || s.files_done + s.files_failed == w.count, "some have not ended");
    /* Where a job was cut short a part may lie in the sink though its file was failing. */
    hold(STATS, cut_short ? s.bytes_done <= bytes : s.bytes_done == bytes, "%llu bytes of %llu",
         (unsigned long long)s.bytes_done, (unsigned long long)bytes);
}

static void wait_for_end(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_S;
    while (sem_timedwait(&w.end, &until)) {
        if (errno == EINTR)
            continue;
        printf("not ok - seed %llu: no end within %d s\n", (unsigned long long)seed_now, HANG_S);
        fflush(stdout);
        abort();
    }
}

static struct transfer *new_transfer(bool ends_job)
{
    struct nc_err err;
    struct transfer *t;
    w.parallel = 2 + (unsigned)draw(10);
    w.memory = (5 + draw(5) * 4) * MIB;
    w.slow_us = 1 + (unsigned)draw(400);
    struct transfer_options options = {
        .source = new_source(),
        .sink = new_sink(),
        .memory = w.memory,
        .parallel = w.parallel,
        .part_size = PART_SIZE,
        .ended = ended,
    };
    if (transfer_new(&t, &options, &err))
        abort();
    unsigned small = (unsigned)draw(16), large = (unsigned)draw(4);
    for (unsigned i = 0; i < small; i++)
        add_thing(t, (unsigned)draw(SMALL), ends_job);
    for (unsigned i = 0; i < large; i++)
        add_thing(t, SMALL + (unsigned)draw(LARGE), ends_job);
    return t;
}

enum way { TO_THE_END, CANCEL, FREE };

static void run_round(uint64_t seed)
{
    seed_now = seed;
    w.random = seed * 7919;
    w.count = 0;
    w.source_local = seed % 4 & 1;
    w.sink_local = seed % 4 & 2;
    w.sink_digests = seed % 8 >= 4;
    w.in_flight = 0;
    w.fetching = w.storing = 0;
    w.held = w.freed = 0;
    atomic_store(&w.ended, 0);
    w.some_fail = draw(3) != 0;
    bool ends_job = draw(4) == 0;
    enum way way = draw(3) ? TO_THE_END : draw(2) ? CANCEL : FREE;
    struct transfer *t = new_transfer(ends_job);
    useconds_t after = (useconds_t)draw(8000);
    struct nc_err why = {0};

    transfer_start(t);
    if (way != TO_THE_END) {
        usleep(after);
        look_at_ended(t);
    }
    if (way == CANCEL)
        transfer_cancel(t);
    if (way != FREE) {
        wait_for_end();
        look_at_ended(t);
        bool cut_short = transfer_failed(t, &why);
        if (cut_short && strcmp(why.code, "Cancelled") != 0) {
            bool meant = false;
            for (unsigned i = 0; i < w.count; i++)
                meant = meant || w.things[i].plan == NO_ACCESS;
            hold(REASON, meant && strcmp(why.code, "AccessDenied") == 0, "%s: %s", why.code,
                 why.message);
        } else if (cut_short) {
            hold(REASON, way == CANCEL, "cancelled by nobody");
        }
        for (unsigned i = 0; i < w.count && way == TO_THE_END; i++)
            hold(REASON, w.things[i].plan != NO_ACCESS || cut_short, "access refused unnoticed");
        check_files(cut_short);
        check_stats(t, cut_short);
        transfer_cancel(t); /* after the end it is nothing */
    }
    transfer_free(t);
    hold(ENDED, atomic_load(&w.ended) == 1, "%d times", atomic_load(&w.ended));
    lock();
    hold(RELEASED, !w.events && w.held == 0 && w.freed == 2, "%d held, %d freed", w.held, w.freed);
    unlock();
    if (way == FREE)
        wait_for_end();
    for (unsigned i = 0; i < w.count; i++)
        free(w.things[i].data);
}

/* ---- what has one answer ---- */

static void test_alone(void)
{
    struct nc_err err;
    struct transfer *t;
    struct transfer_stats s;
    struct transfer_options options = {.memory = 6 * MIB, .parallel = 1, .ended = ended};
    seed_now = 0;
    w.count = 0;
    w.source_local = w.sink_local = false;
    options.source = new_source();
    options.sink = new_sink();
    CHECK(transfer_new(&t, &options, &err) == 0, "a transfer is made");
    CHECK(!transfer_add(t, &(struct transfer_file){"big", .size = 7 * MIB}, &err) &&
              strcmp(err.code, "Usage") == 0,
          "a part that does not fit the budget is refused");
    CHECK(transfer_add(t, &(struct transfer_file){"big", .size = 6 * MIB}, &err) != NULL,
          "one that does is not");
    CHECK(!transfer_add(t, &(struct transfer_file){"huge", .size = (5ull << 40) + 1}, &err) &&
              strncmp(err.message, "huge: ", 6) == 0,
          "a file over 5 TiB is refused by its name");
    transfer_stats(t, &s);
    CHECK(s.parallel == 2 && s.memory == 6 * MIB, "one slot is made two, one for each direction");
    CHECK(s.files_total == 1 && s.bytes_total == 6 * MIB, "what was refused is not counted");
    transfer_free(t);
    CHECK(atomic_load(&w.ended) == 0, "one that never started has no end");
    transfer_free(NULL);

    options.source = new_source();
    options.sink = new_sink();
    CHECK(transfer_new(&t, &options, &err) == 0, "another is made");
    transfer_start(t);
    wait_for_end();
    CHECK(!transfer_next_ended(t) && !transfer_failed(t, &err), "no files: the end comes at once");
    transfer_free(t);
    CHECK(atomic_load(&w.ended) == 1, "and once");
}

/* A run that was killed between the last part and the end of its only file. */
static void test_nothing_left_to_fetch(void)
{
    struct nc_err err;
    struct transfer *t;
    struct transfer_options options = {
        .memory = 16 * MIB, .parallel = 4, .part_size = PART_SIZE, .ended = ended};
    w.random = 1;
    w.slow_us = 10;
    w.memory = options.memory;
    w.parallel = 4;
    options.source = new_source();
    options.sink = new_sink();
    if (transfer_new(&t, &options, &err))
        abort();
    struct thing *g = &w.things[0];
    *g = (struct thing){.kind = SMALL + 3};
    w.count = 1;
    g->file = transfer_add(t, &(struct transfer_file){"f0", .size = kinds[g->kind].size}, &err);
    g->data = calloc(1, g->file->size);
    fill(g->data, g->kind, 0, g->file->size);
    transfer_continue(g->file, "earlier", &err);
    for (uint32_t i = 0; i < g->file->parts; i++) {
        transfer_has_part(g->file, i, "\"old\"");
        g->stored++;
    }
    transfer_start(t);
    wait_for_end();
    CHECK(transfer_next_ended(t) == g->file && g->file->state == FILE_DONE,
          "a continued file whose parts are all there is finished");
    transfer_free(t);
    free(g->data);
}

int main(void)
{
    pthread_t threads[THREADS];
    alarm(150);
    caller = pthread_self();
    sem_init(&w.end, 0, 0);
    make_kinds();
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    test_alone();
    test_nothing_left_to_fetch();
    uint64_t rounds = 0, until_ms = clock_ms() + ROUNDS_FOR_MS;
    const char *only = getenv("SEED");
    if (only)
        run_round(strtoull(only, NULL, 10));
    for (uint64_t seed = 1; !only && seed <= ROUNDS && clock_ms() < until_ms; seed++, rounds++)
        run_round(seed);
    printf("# %llu rounds\n", (unsigned long long)rounds);
    lock();
    w.over = true;
    pthread_cond_broadcast(&w.changed);
    unlock();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < RULES; i++)
        CHECK(!atomic_load(&broken[i]), rules[i]);
    return unit_done();
}
