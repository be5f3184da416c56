/* The transfer engine between a source and a sink that are made up: their operations end on threads
 * of their own after short random times, or at once, and fail as each round's seed says. What they
 * see of the engine is checked: which calls it makes in which order, how many at a time, and every
 * byte. */
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
    SMALL = 16, /* kinds of content: small ones, then large ones, most of them of several parts */
    LARGE = 12,
    KINDS = SMALL + LARGE,
    MOST_FILES = 32,
    MOST_PARTS = 8,
    ROUNDS = 300,
    ROUNDS_FOR_MS = 12000, /* no new round later than this */
    HANG_S = 30,
    WHOLE = 16, /* sixteenths of a slot */
    BLOCK = 128 * 1024,
    PART_TRIES = 3, /* of one whose digest is wrong */
};

static const uint64_t MIB = 1024 * 1024, PART_SIZE = 5 * 1024 * 1024;

/* ---- content ---- */

/* Bytes whose period divides no part size, so that a part in a wrong place is found out; every
 * third large kind has a hole, and a hole at its end. */
enum { PERIOD = 65521 };
static char base[2 * PERIOD], zeros[PERIOD];

struct kind {
    uint64_t size;
    uint64_t hole, hole_end, end; /* zeros from hole to hole_end, and from end on */
    char sha256[SHA256_HEX_SIZE], blob[SHA1_HEX_SIZE];
    char xxh3[MOST_PARTS][XXH3_HEX_SIZE]; /* of each part */
};
static struct kind kinds[KINDS];

static size_t least(uint64_t a, uint64_t b)
{
    return (size_t)(a < b ? a : b);
}

/* A stretch of content at offset, of at most `left` bytes. */
static size_t chunk_at(unsigned kind, uint64_t offset, uint64_t left, const char **data)
{
    const struct kind *k = &kinds[kind];
    size_t at = (size_t)((offset + kind * 7919u) % PERIOD);
    size_t most = least(left, PERIOD);
    *data = zeros;
    if (offset >= k->end)
        return most;
    if (offset >= k->hole && offset < k->hole_end)
        return least(most, k->hole_end - offset);
    *data = base + at;
    return least(most, (offset < k->hole ? k->hole : k->end) - offset);
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

static void digest_kind(unsigned kind)
{
    struct kind *k = &kinds[kind];
    char *all = malloc(k->size + 1);
    struct gitblob git = {0};
    fill(all, kind, 0, k->size);
    sha256_hex(all, k->size, k->sha256);
    gitblob_init(&git, k->size);
    gitblob_update(&git, all, k->size);
    gitblob_final_hex(&git, k->blob);
    gitblob_free(&git);
    for (uint32_t i = 0; i < plan_parts(k->size, PART_SIZE); i++)
        xxh3_hex(all + i * PART_SIZE, (size_t)plan_part_len(k->size, PART_SIZE, i), k->xxh3[i]);
    free(all);
}

static void make_kinds(void)
{
    static const uint64_t large[LARGE] = {5242881,  6291456,  10485760, 10485761,
                                          13000000, 15728639, 15728640, 22000000,
                                          1048576,  1048577,  2000000,  5242880};
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof base; i++) {
        x = x * 1664525 + 1013904223;
        base[i] = i < PERIOD ? (char)(x >> 24) : base[i - PERIOD];
    }
    for (unsigned i = 0; i < KINDS; i++) {
        struct kind *k = &kinds[i];
        k->size = i < SMALL ? (uint64_t)i * i * 300 : large[i - SMALL];
        k->hole = k->hole_end = k->end = k->size;
        if (i >= SMALL && i % 3 == 0) {
            k->hole = k->size / 4 + 77;
            k->hole_end = k->size / 2 + 12345;
            k->end = k->size - k->size / 8;
        }
        digest_kind(i);
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
    BLOCKS,
    READ_BACK,
    SAFE,
    COPIED,
    AGAIN,
    DIGESTS,
    MOVED,
    GROWN,
    KEPT,
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
    [BLOCKS] = "streamed parts come in blocks, from the first on, anew with every attempt",
    [READ_BACK] = "only what is stored is read back, and only to hash it",
    [SAFE] = "files are synced before they are finished, and settled before they are reported",
    [COPIED] = "only what has nothing to be checked is copied unread",
    [AGAIN] = "a part of a wrong digest is fetched again alone, three times at most",
    [DIGESTS] = "the digests of all parts and of every file that was to be hashed are told",
    [MOVED] = "what moved in this run is told",
    [GROWN] = "files that are added later begin when they are let go",
    [KEPT] = "what is half-way is kept for another run, unless the disk is the reason",
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
    STORE_ONCE, /* the sink refuses a part, or a block of it, for good */
    STORE_ALWAYS,
    READ_ONCE, /* what is stored can't be read back, where it has to be */
    OPEN_ONCE,
    OPEN_NEVER,
    FINISH_ONCE,
    FINISH_ALWAYS,
    GONE,       /* not found: not even tried again */
    PART_AGAIN, /* a part whose digest is known is wrong, but not at its last try */
    PLANS,
    ENDS_JOB,
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
    [READ_ONCE] = {true, ""},
    [OPEN_ONCE] = {true, ""},
    [OPEN_NEVER] = {false, "KeyTooLongError"},
    [FINISH_ONCE] = {true, ""},
    [FINISH_ALWAYS] = {false, "NoSuchUpload"},
    [GONE] = {false, "EntryNotFound"},
    [PART_AGAIN] = {true, ""},
};

/* Where one with the plan ENDS_JOB fails. */
enum where { IN_FETCH, IN_STORE, IN_OPEN, IN_FINISH, IN_SYNC, IN_SETTLE };

enum known { BY_SHA256, BY_BLOB, BY_PARTS, BY_NOTHING };

enum stage { CLOSED, OPENING, OPENED, FINISHING, FINISHED, SETTLED, LEAVING };

struct thing { /* the round's view of one file */
    unsigned kind;
    uint32_t parts;
    bool streamed;
    enum known known;
    enum plan plan;
    uint32_t bad_part;
    enum where where;
    bool in_write;      /* STORE_*: a block is refused */
    bool aside;         /* hands write its blocks, */
    bool large_blocks;  /* twice as long ones */
    bool clones;        /* the sink makes it by itself */
    unsigned earlier;   /* bits: parts that the sink finds when it is first opened */
    unsigned wrong_for; /* PART_AGAIN: times that the part is wrong */
    unsigned tries;     /* times the sink has left it */
    enum stage stage;
    bool let_go; /* it may begin */
    bool synced;
    unsigned stored, storing, fetching;
    bool has[MOST_PARTS], busy_fetch[MOST_PARTS], busy_store[MOST_PARTS];
    bool copied[MOST_PARTS]; /* unread */
    unsigned fetches[MOST_PARTS];
    size_t written[MOST_PARTS]; /* up to here, by the attempt at hand */
    size_t held[MOST_PARTS];    /* in buffers */
    char *data;
    uint64_t had; /* bytes stored before this run */
    /* As it was reported. */
    unsigned reported;
    enum file_state state;
    bool continued;
    char code[sizeof(((struct nc_err *)NULL)->code)];
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
    uint64_t random, choices;
    struct thing things[MOST_FILES];
    unsigned count;
    bool source_local, sink_local, sink_digests, streamed, syncs, copies, hashes_all, grows;
    const char *shared_reason;
    int copies_left; /* then the sink finds that it can't */
    bool some_fail;  /* then a buffer may come free unseen: in_flight counts too much */
    bool freeing, keeps;
    uint64_t memory, in_flight;
    unsigned parallel, fetching, storing; /* the last two in sixteenths */
    int held;                             /* operations and files that have something to release */
    int freed;
    unsigned slow_us;
    atomic_int ended;
    sem_t end;
} w = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t draw_from(uint64_t *state, uint64_t below)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* For what happens on the way, with the lock. */
static uint64_t draw(uint64_t below)
{
    return draw_from(&w.random, below);
}

/* For what a round is, the same at each run of it; the caller's thread. */
static uint64_t choose(uint64_t below)
{
    return draw_from(&w.choices, below);
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

/* Made when its part is stored: where a local sink takes blocks, what is small needs no open. */
static bool is_unopened(const struct thing *g)
{
    return w.sink_local && w.streamed && !g->streamed;
}

/* Its file has something to release from here on. With the lock. */
static void take_in(struct file *f)
{
    if (!f->sink_data) {
        f->sink_data = malloc(1);
        w.held++;
    }
}

/* A small part takes a quarter of a slot. */
static unsigned weight(const struct part *p)
{
    return p->len <= MIB ? WHOLE / 4 : WHOLE;
}

/* Between two servers each direction has its half. */
static unsigned share(void)
{
    return w.parallel * WHOLE / (w.source_local || w.sink_local ? 1 : 2);
}

static bool is_direct(const struct part *p)
{
    return p->direct;
}

static size_t buffered(const struct part *p)
{
    return is_direct(p) ? 0 : p->file->streamed ? least(p->len, p->file->block) : p->len;
}

/* Once, at the first try, or always. */
static bool fails(const struct thing *g, enum plan once, enum plan always)
{
    return (g->plan == once && g->tries == 0) || g->plan == always;
}

static bool ends_job(const struct thing *g, enum where where)
{
    return g->plan == ENDS_JOB && g->where == where;
}

static bool is_wrong(const struct thing *g)
{
    return g->plan == PART_AGAIN ? g->fetches[g->bad_part] <= g->wrong_for
                                 : fails(g, WRONG_ONCE, WRONG_ALWAYS);
}

static int fail(struct nc_err *err, const char *code, const struct file *f)
{
    return nc_err_set(err, code, "%s: made to fail", f->path);
}

static void keep_off_caller(const char *what, const struct file *f)
{
    hold(CALLER, !pthread_equal(pthread_self(), caller), "%s of %s", what, f->path);
}

/* ---- a part's bytes ---- */

struct bringing {
    struct part *part;
    size_t piece;
    bool wrong;   /* in the middle */
    bool skips;   /* zeros are told as holes */
    bool by_room; /* instead of take */
};

static int give(const struct bringing *b, const char *data, size_t n, struct nc_err *err)
{
    if (data == zeros && b->skips)
        return transfer_part_skip(b->part, n, err);
    if (!b->by_room)
        return transfer_part_take(b->part, data, n, err);
    for (size_t at = 0, room; at < n; at += room) {
        char *to = transfer_part_room(b->part, &room);
        room = least(room, n - at);
        memcpy(to, data + at, room);
        if (transfer_part_took(b->part, room, err))
            return -1;
    }
    return 0;
}

/* Up to `until` within the part, after a beginning. */
static int bring(const struct bringing *b, size_t until, struct nc_err *err)
{
    const struct part *p = b->part;
    unsigned kind = thing_of(p->file)->kind;
    size_t middle = p->len / 2;
    if (transfer_part_begin(b->part, err))
        return -1;
    for (size_t at = 0, n; at < until; at += n) {
        const char *data;
        n = least(chunk_at(kind, p->offset + at, until - at, &data), b->piece);
        if (b->wrong && at < middle && middle < at + n)
            n = middle - at;
        bool flips = b->wrong && at == middle;
        char other = data[0] ^ 1;
        n = flips ? 1 : n;
        if (give(b, flips ? &other : data, n, err))
            return -1;
    }
    return 0;
}

/* Some break off and begin again within one fetch, and what came before was not the part's. */
static int bring_all(struct part *p, bool wrong, bool is_short, struct nc_err *err)
{
    static const size_t pieces[] = {1000, 16384, 100000, 5000000};
    lock();
    struct bringing b = {p, pieces[draw(4)], true, draw(2), draw(2)};
    bool breaks = draw(4) == 0, silently = draw(2);
    size_t until = (size_t)draw(p->len + 1);
    unlock();
    if (breaks && bring(&b, until, err))
        return -1;
    b.wrong = wrong;
    if (bring(&b, is_short ? p->len / 2 : p->len, err))
        return -1;
    return is_short && (!silently || !p->len) ? fail(err, "ShortBody", p->file) : 0;
}

static int do_fetch(struct part *p, struct nc_err *err)
{
    struct thing *g = thing_of(p->file);
    lock();
    bool here = p->index == g->bad_part;
    bool is_short = here && fails(g, SHORT_ONCE, SHORT_ALWAYS);
    bool wrong = here && is_wrong(g);
    bool gone = here && g->plan == GONE;
    bool refused = here && ends_job(g, IN_FETCH);
    unlock();
    if (gone)
        return fail(err, "EntryNotFound", p->file);
    if (refused)
        return fail(err, w.shared_reason, p->file);
    return bring_all(p, wrong, is_short, err);
}

static void release_bytes(struct thing *g, const struct part *p)
{
    w.in_flight -= g->held[p->index];
    g->held[p->index] = 0;
}

static void fetch_over(struct part *p, bool failed)
{
    struct thing *g = thing_of(p->file);
    lock();
    w.fetching -= weight(p);
    g->fetching--;
    g->busy_fetch[p->index] = false;
    if (failed)
        release_bytes(g, p);
    unlock();
}

/* ---- the operations themselves, on whatever thread ---- */

static const char *why_not_stored(const struct thing *g, const struct part *p)
{
    if (p->index != g->bad_part)
        return NULL;
    if (fails(g, STORE_ONCE, STORE_ALWAYS))
        return "InvalidPart"; /* also where a block was to be refused and there was none */
    if (ends_job(g, IN_STORE))
        return w.shared_reason;
    if (!is_direct(p))
        return NULL;
    /* What a fetch would have met. */
    return fails(g, SHORT_ONCE, SHORT_ALWAYS) ? "ShortBody"
           : g->plan == GONE                  ? "EntryNotFound"
           : ends_job(g, IN_FETCH)            ? w.shared_reason
                                              : NULL;
}

static int do_store(struct part *p, struct nc_err *err)
{
    struct thing *g = thing_of(p->file);
    lock();
    const char *code = why_not_stored(g, p);
    if (!code && is_direct(p) && w.copies_left-- <= 0)
        code = "NoDirectCopy";
    unlock();
    if (code)
        return fail(err, code, p->file);
    if (is_direct(p))
        fill(g->data + p->offset, g->kind, p->offset, p->len);
    else if (g->streamed && !w.sink_local) /* by itself */
        fill(g->data + p->offset, g->kind, p->offset, p->len);
    else if (!g->streamed)
        memcpy(g->data + p->offset, p->data, p->len);
    return 0;
}

static void store_over(struct part *p, bool failed)
{
    struct thing *g = thing_of(p->file);
    lock();
    w.storing -= weight(p);
    release_bytes(g, p);
    g->storing--;
    g->busy_store[p->index] = false;
    if (!failed) {
        g->has[p->index] = true;
        g->copied[p->index] = is_direct(p);
        g->stored++;
    }
    unlock();
}

/* What an earlier run has left, or all, without a byte. */
static void find_parts(struct file *f, struct thing *g)
{
    unsigned found = g->clones ? ~0u : g->tries ? 0 : g->earlier;
    for (uint32_t i = 0; i < f->parts; i++) {
        size_t len = (size_t)plan_part_len(f->size, f->part_size, i);
        if (!(found >> i & 1) || g->has[i])
            continue;
        fill(g->data + i * f->part_size, g->kind, i * f->part_size, len);
        lock();
        g->has[i] = true;
        g->copied[i] = g->clones;
        g->stored++;
        g->had += len;
        unlock();
        if (!g->clones)
            transfer_keep_part(f, i, kinds[g->kind].xxh3[i]);
    }
    if (g->clones)
        transfer_cloned(f);
}

static int do_open(struct file *f, struct nc_err *err)
{
    struct thing *g = thing_of(f);
    lock();
    const char *code = (g->plan == OPEN_ONCE && g->tries == 0) ? "PreconditionFailed"
                       : g->plan == OPEN_NEVER                 ? "KeyTooLongError"
                       : ends_job(g, IN_OPEN)                  ? w.shared_reason
                                                               : NULL;
    if (!code)
        g->stage = OPENED;
    unlock();
    if (code)
        return fail(err, code, f);
    if (g->aside) {
        f->aside = true;
        f->block = g->large_blocks ? 2 * BLOCK : BLOCK;
    }
    if (g->clones || g->earlier)
        find_parts(f, g);
    return 0;
}

static int do_finish(struct file *f, struct nc_err *err)
{
    struct thing *g = thing_of(f);
    lock();
    const char *code = fails(g, FINISH_ONCE, FINISH_ALWAYS) ? "NoSuchUpload"
                       : ends_job(g, IN_FINISH)             ? w.shared_reason
                                                            : NULL;
    if (!code)
        g->stage = w.syncs ? FINISHED : SETTLED;
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
    g->had = 0;
    g->synced = false;
    memset(g->has, 0, sizeof g->has);
    memset(g->copied, 0, sizeof g->copied);
    memset(g->fetches, 0, sizeof g->fetches);
    memset(g->data, 0, f->size);
    for (uint32_t i = 0; i < f->parts; i++) {
        w.in_flight -= g->held[i];
        g->held[i] = 0;
    }
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

/* ---- the source ---- */

static void begin_fetch(struct part *p)
{
    struct thing *g = thing_of(p->file);
    const struct file *f = p->file;
    lock();
    unsigned most = share();
    w.fetching += weight(p);
    hold(SLOTS, w.fetching < most + WHOLE, "fetches: %u sixteenths of %u", w.fetching, most);
    if (!g->held[p->index])
        w.in_flight += g->held[p->index] = buffered(p);
    hold(BUDGET, w.in_flight <= w.memory || w.some_fail, "%llu bytes",
         (unsigned long long)w.in_flight);
    hold(ONCE, !g->busy_fetch[p->index] && !g->has[p->index] && !g->busy_store[p->index],
         "%s part %u is fetched again", f->path, p->index);
    hold(ORDER, g->stage == OPENED || (g->stage < OPENED && !f->streamed),
         "%s part %u is fetched in stage %d", f->path, p->index, g->stage);
    hold(BYTES,
         p->len == plan_part_len(f->size, f->part_size, p->index) &&
             p->offset == p->index * f->part_size,
         "%s part %u is not the planned one", f->path, p->index);
    hold(GROWN, g->let_go, "%s is fetched", f->path);
    g->fetches[p->index]++;
    unsigned times = p->index == g->bad_part && g->known == BY_PARTS ? PART_TRIES : 1;
    hold(AGAIN, g->fetches[p->index] <= times, "%s part %u: %u times", f->path, p->index,
         g->fetches[p->index]);
    hold(AGAIN, g->fetches[p->index] == 1 || is_wrong(g) || g->plan == PART_AGAIN,
         "%s part %u was right", f->path, p->index);
    g->written[p->index] = 0;
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
        keep_off_caller("fetch", p->file);
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

static void release_part(struct part *p)
{
    lock();
    w.held--;
    p->op = NULL;
    unlock();
}

static void release_fetch(struct source *self, struct part *p)
{
    (void)self;
    release_part(p);
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

/* ---- the sink ---- */

static enum op begin_file(enum what what, struct file *f, struct nc_err *err)
{
    if (w.sink_local) {
        keep_off_caller("open, finish or leave", f);
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
    hold(GROWN, g->let_go, "%s is opened", f->path);
    g->stage = OPENING;
    take_in(f);
    unlock();
    return begin_file(OPEN, f, err);
}

static int write_block(struct sink *self, struct part *p, size_t at, const char *data, size_t len,
                       struct nc_err *err)
{
    (void)self;
    struct thing *g = thing_of(p->file);
    lock();
    size_t *written = &g->written[p->index];
    bool late =
        g->aside && !w.source_local; /* the fetch may be over, and blocks come in any order */
    hold(BLOCKS, g->streamed && g->stage == OPENED && (late || g->busy_fetch[p->index]),
         "%s part %u is written in stage %d", p->file->path, p->index, g->stage);
    hold(BLOCKS, len && len <= p->file->block && at + len <= p->len, "%s part %u: %zu bytes at %zu",
         p->file->path, p->index, len, at);
    hold(BLOCKS, late || at == 0 || at >= *written, "%s part %u: at %zu again", p->file->path,
         p->index, at);
    *written = at + len;
    bool refused = p->index == g->bad_part && g->in_write && fails(g, STORE_ONCE, STORE_ALWAYS);
    unlock();
    if (refused)
        return fail(err, "InvalidPart", p->file);
    memcpy(g->data + p->offset + at, data, len);
    return 0;
}

static int read_block(struct sink *self, struct file *f, uint64_t offset, char *data, size_t len,
                      struct nc_err *err)
{
    (void)self;
    struct thing *g = thing_of(f);
    keep_off_caller("reading back", f);
    lock();
    hold(READ_BACK, g->stage == OPENED, "%s is read in stage %d", f->path, g->stage);
    hold(READ_BACK, f->hashes, "%s is read for nothing", f->path);
    hold(READ_BACK, g->has[offset / f->part_size] && g->has[(offset + len - 1) / f->part_size],
         "%s: nothing is stored at %llu", f->path, (unsigned long long)offset);
    bool refused = fails(g, READ_ONCE, PLANS);
    unlock();
    if (refused)
        return fail(err, "BadRange", f);
    memcpy(data, g->data + offset, len);
    return 0;
}

static void begin_store(struct part *p, unsigned slots)
{
    struct thing *g = thing_of(p->file);
    lock();
    w.storing += weight(p);
    hold(SLOTS, w.sink_local || w.storing < slots + WHOLE, "stores: %u sixteenths of %u", w.storing,
         slots);
    if (g->stage == CLOSED && is_unopened(g)) {
        g->stage = OPENED;
        take_in(p->file);
    }
    hold(ORDER, g->stage == OPENED, "%s part %u is stored in stage %d", p->file->path, p->index,
         g->stage);
    hold(ONCE, !g->has[p->index] && !g->busy_store[p->index] && !g->busy_fetch[p->index],
         "%s part %u is stored again", p->file->path, p->index);
    hold(GROWN, g->let_go, "%s is stored", p->file->path);
    g->busy_store[p->index] = true;
    g->storing++;
    w.held++;
    unlock();
}

static enum op move(struct part *p, struct nc_err *err)
{
    if (w.sink_local) {
        keep_off_caller("store or copy", p->file);
        int rc = do_store(p, err);
        store_over(p, rc);
        return rc ? OP_FAILED : OP_OVER;
    }
    p->op = add_event(STORE, p->file, p);
    return OP_BEGUN;
}

static enum op store(struct sink *self, struct part *p, struct nc_err *err)
{
    (void)self;
    const struct thing *g = thing_of(p->file);
    begin_store(p, share());
    hold(BYTES, p->data || p->file->streamed, "%s part %u is stored without its bytes",
         p->file->path, p->index);
    hold(DIGESTS, !w.sink_digests == !p->sha256[0], "%s part %u: its digest for the sink",
         p->file->path, p->index);
    if (g->streamed && w.sink_local && g->known == BY_PARTS)
        hold(BYTES, is_right(g->data + p->offset, g->kind, p->offset, p->len),
             "%s part %u is stored with wrong bytes", p->file->path, p->index);
    return move(p, err);
}

static enum op copy(struct sink *self, struct part *p, struct nc_err *err)
{
    (void)self;
    const struct file *f = p->file;
    begin_store(p, w.parallel * WHOLE);
    hold(COPIED, f->continued || (!f->wanted_sha256 && !f->blob[0] && !w.hashes_all), "%s",
         f->path);
    hold(COPIED, !f->expected && is_direct(p), "%s part %u", f->path, p->index);
    return move(p, err);
}

static int sync_files(struct sink *self, struct file *const *files, size_t n, struct nc_err *err)
{
    (void)self;
    hold(SAFE, n > 0, "none are synced");
    for (size_t i = 0; i < n; i++) {
        struct thing *g = thing_of(files[i]);
        keep_off_caller("sync", files[i]);
        lock();
        hold(SAFE, g->stage == OPENED && g->stored == files[i]->parts, "%s is synced in stage %d",
             files[i]->path, g->stage);
        g->synced = true;
        bool refused = ends_job(g, IN_SYNC);
        unlock();
        if (refused)
            return fail(err, w.shared_reason, files[i]);
    }
    return 0;
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
    hold(SAFE, g->synced || !w.syncs, "%s is finished before it is synced", f->path);
    g->stage = FINISHING;
    unlock();
    return begin_file(FINISH, f, err);
}

static int settle(struct sink *self, struct file *const *files, size_t n, struct nc_err *err)
{
    (void)self;
    hold(SAFE, n > 0, "none are settled");
    for (size_t i = 0; i < n; i++) {
        struct thing *g = thing_of(files[i]);
        keep_off_caller("settle", files[i]);
        lock();
        hold(SAFE, g->stage == FINISHED, "%s is settled in stage %d", files[i]->path, g->stage);
        bool refused = ends_job(g, IN_SETTLE);
        unlock();
        if (refused)
            return fail(err, w.shared_reason, files[i]);
    }
    lock();
    for (size_t i = 0; i < n; i++)
        thing_of(files[i])->stage = SETTLED;
    unlock();
    return 0;
}

static enum op leave(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)self;
    struct thing *g = thing_of(f);
    lock();
    hold(ORDER, g->stage < FINISHED, "%s is left in stage %d", f->path, g->stage);
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
    release_part(p);
}

static void forget_file(struct sink *self, struct file *f, bool keep)
{
    (void)self;
    lock();
    bool over = f->state == FILE_DONE || f->state == FILE_FAILED;
    hold(KEPT, f->state == FILE_LEAVING || keep == (!over && w.freeing && w.keeps),
         "%s in state %d is %s", f->path, f->state, keep ? "kept" : "dropped");
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
        .streamed = w.streamed,
        .open = open_file,
        .write = w.sink_local ? write_block : NULL,
        .read = read_block,
        .store = store,
        .copy = w.copies ? copy : NULL,
        .sync = w.syncs ? sync_files : NULL,
        .finish = finish,
        .settle = w.syncs ? settle : NULL,
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
static void continue_file(struct file *f, struct thing *g)
{
    struct nc_err err;
    bool all = choose(3) == 0;
    hold(ORDER, transfer_continue(f, "earlier", &err) == 0, "transfer_continue");
    for (uint32_t i = 0; i < f->parts; i++) {
        size_t len = (size_t)plan_part_len(f->size, f->part_size, i);
        if (!all && choose(2))
            continue;
        hold(ORDER, transfer_has_part(f, i, "\"old\"") == 0, "transfer_has_part");
        hold(ORDER, transfer_has_part(f, i, "\"old\"") != 0, "a part is given twice");
        fill(g->data + i * f->part_size, g->kind, i * f->part_size, len);
        g->has[i] = true;
        g->copied[i] = true;
        g->had += len;
        g->stored++;
    }
    /* Its bytes are not hashed here, and it may have none left to fetch or store. */
    if (g->stored && g->plan != FINISH_ONCE && g->plan != FINISH_ALWAYS)
        g->plan = WELL;
}

static void choose_plan(struct thing *g, bool job_ends)
{
    g->plan = w.some_fail && choose(3) == 0 ? (enum plan)choose(PLANS) : WELL;
    if (job_ends && choose(6) == 0)
        g->plan = ENDS_JOB;
    g->bad_part = (uint32_t)choose(g->parts);
    g->where = (enum where)choose(w.syncs ? IN_SETTLE + 1 : IN_SYNC);
    if (is_unopened(g) && (g->plan == OPEN_ONCE || g->plan == OPEN_NEVER))
        g->plan = WELL;
    if (is_unopened(g) && g->where == IN_OPEN)
        g->where = IN_STORE;
    g->in_write = choose(2);
    g->wrong_for = 1 + (unsigned)choose(PART_TRIES - 1);
    bool can_be_wrong =
        g->known != BY_NOTHING && plan_part_len(kinds[g->kind].size, PART_SIZE, g->bad_part);
    /* What the sink reads by itself is what is there, whatever the source has read. */
    if (g->streamed && !w.sink_local && g->known != BY_PARTS)
        can_be_wrong = false;
    if ((g->plan == WRONG_ONCE || g->plan == WRONG_ALWAYS) && !can_be_wrong)
        g->plan = WELL;
    if (g->plan == WRONG_ONCE && g->known == BY_PARTS) /* three times alone: that was it */
        g->plan = WRONG_ALWAYS;
    if (g->plan == PART_AGAIN && (g->known != BY_PARTS || !can_be_wrong))
        g->plan = WELL;
}

/* What the sink has of it, or can make. Never the part that is to fail. */
static void choose_finds(struct thing *g)
{
    bool no_part_fails = g->plan == WELL || g->plan == OPEN_ONCE || g->plan == OPEN_NEVER ||
                         g->plan == FINISH_ONCE || g->plan == FINISH_ALWAYS;
    g->clones = no_part_fails && choose(6) == 0;
    g->earlier = g->clones || choose(3) ? 0 : (unsigned)choose(1u << g->parts);
    if (!no_part_fails)
        g->earlier &= ~(1u << g->bad_part);
}

static void add_thing(struct transfer *t, unsigned kind, bool job_ends)
{
    struct nc_err err;
    struct thing *g = &w.things[w.count];
    const struct kind *k = &kinds[kind];
    char path[32];
    *g = (struct thing){.kind = kind, .known = (enum known)choose(4)};
    if (w.copies && choose(2))
        g->known = BY_NOTHING;
    g->parts = plan_parts(k->size, PART_SIZE);
    g->streamed = w.streamed && k->size > MIB;
    choose_plan(g, job_ends);
    g->aside = g->streamed && w.sink_local && choose(2);
    g->large_blocks = g->aside && choose(2);
    g->data = calloc(1, k->size + 1);
    snprintf(path, sizeof path, "f%u", w.count);
    bool sha256 = g->known == BY_SHA256 || (g->known == BY_PARTS && choose(2));
    struct transfer_file wanted = {.path = path,
                                   .size = k->size,
                                   .sha256 = sha256 ? k->sha256 : NULL,
                                   .blob = g->known == BY_BLOB ? k->blob : NULL};
    struct file *f = transfer_add(t, &wanted, &err);
    w.count++;
    for (uint32_t i = 0; g->known == BY_PARTS && i < g->parts; i++)
        transfer_expect(f, i, k->xxh3[i], &err);
    hold(BLOCKS, f->streamed == g->streamed, "%s of %llu bytes", path, (unsigned long long)f->size);
    if (choose(4) == 0)
        continue_file(f, g);
    else if (g->streamed)
        choose_finds(g);
}

static void add_things(struct transfer *t, unsigned small, unsigned large, bool job_ends)
{
    while (small--)
        add_thing(t, (unsigned)choose(SMALL), job_ends);
    while (large--)
        add_thing(t, SMALL + (unsigned)choose(LARGE), job_ends);
}

static void let_go(void)
{
    lock();
    for (unsigned i = 0; i < w.count; i++)
        w.things[i].let_go = true;
    unlock();
}

static bool was_hashed(const struct file *f)
{
    return !f->continued && !f->cloned && !f->expected &&
           (w.hashes_all || f->wanted_sha256 || f->blob[0]);
}

/* A file that is done, as the caller sees it. */
static void check_done(const struct file *f, const struct thing *g)
{
    const struct kind *k = &kinds[g->kind];
    const char *sha256 = was_hashed(f) || f->wanted_sha256 ? k->sha256 : "";
    hold(DIGESTS, strcmp(f->sha256, sha256) == 0, "%s: SHA-256 %s", f->path, f->sha256);
    for (uint32_t i = 0; i < f->parts; i++)
        hold(DIGESTS, strcmp(f->digests[i], g->copied[i] ? "" : k->xxh3[i]) == 0,
             "%s part %u: XXH3 %s, %scopied, plan %d", f->path, i, f->digests[i],
             g->copied[i] ? "" : "not ", g->plan);
    if (g->plan == WELL)
        hold(MOVED, f->moved == f->size - g->had, "%s: %llu bytes of %llu", f->path,
             (unsigned long long)f->moved, (unsigned long long)(f->size - g->had));
    if (g->plan == PART_AGAIN)
        hold(AGAIN, g->fetches[g->bad_part] == g->wrong_for + 1, "%s part %u: %u times", f->path,
             g->bad_part, g->fetches[g->bad_part]);
}

static void look_at_ended(struct transfer *t)
{
    struct file *f;
    while ((f = transfer_next_ended(t))) {
        struct thing *g = thing_of(f);
        lock();
        g->reported++;
        hold(REPORTED, f->state == FILE_DONE || f->state == FILE_FAILED, "%s in state %d", f->path,
             f->state);
        hold(RELEASED, !f->sink_data && !f->in_flight, "%s still has its memory", f->path);
        g->state = f->state;
        g->continued = f->continued;
        snprintf(g->code, sizeof g->code, "%s", f->err ? f->err->code : "");
        if (f->state == FILE_DONE)
            check_done(f, g);
        unlock();
    }
}

static void check_files(bool cut_short)
{
    for (unsigned i = 0; i < w.count; i++) {
        struct thing *g = &w.things[i];
        bool done = g->state == FILE_DONE;
        hold(REPORTED, g->reported <= 1, "f%u was reported %u times", i, g->reported);
        hold(OUTCOME, done == (g->stage == SETTLED), "f%u: state %d, stage %d", i, g->state,
             g->stage);
        if (done)
            hold(BYTES, is_right(g->data, g->kind, 0, kinds[g->kind].size), "f%u", i);
        if (cut_short)
            continue;
        hold(REPORTED, g->reported == 1, "f%u was not reported", i);
        hold(OUTCOME, done == fates[g->plan].done, "f%u: plan %d, state %d", i, g->plan, g->state);
        hold(OUTCOME, strcmp(g->code, fates[g->plan].code) == 0, "f%u: plan %d, %s", i, g->plan,
             g->code);
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

static void make_world(uint64_t seed)
{
    seed_now = seed;
    w.random = w.choices = seed * 7919;
    w.count = 0;
    w.source_local = seed % 4 & 1;
    w.sink_local = seed % 4 & 2;
    w.sink_digests = seed % 8 >= 4;
    w.in_flight = 0;
    w.fetching = w.storing = 0;
    w.held = w.freed = 0;
    w.freeing = false;
    atomic_store(&w.ended, 0);
    w.some_fail = choose(3) != 0;
    w.streamed = (w.sink_local || w.source_local) && choose(3) != 0;
    w.syncs = w.sink_local && choose(2);
    w.copies = choose(3) == 0;
    w.copies_left = choose(3) ? (int)choose(8) : 1000;
    w.hashes_all = choose(w.copies ? 6 : 3) == 0;
    w.grows = choose(3) == 0;
    w.shared_reason = choose(2) ? "AccessDenied" : "ENOSPC";
    w.parallel = 2 + (unsigned)choose(10);
    /* The least that goes, or more: a buffer for the largest part. */
    w.memory = w.streamed ? MIB + choose(4) * BLOCK : (5 + choose(5) * 4) * MIB;
    w.slow_us = 1 + (unsigned)choose(400);
}

static struct transfer *new_transfer(void)
{
    struct nc_err err;
    struct transfer *t;
    struct transfer_options options = {
        .source = new_source(),
        .sink = new_sink(),
        .memory = w.memory,
        .parallel = w.parallel,
        .part_size = PART_SIZE,
        .sha256 = w.hashes_all,
        .growing = w.grows,
        .ended = ended,
    };
    if (transfer_new(&t, &options, &err))
        abort();
    return t;
}

/* Files come in while others are on their way, or have ended. */
static void grow(struct transfer *t, bool job_ends)
{
    for (unsigned times = (unsigned)choose(4); times--;) {
        add_things(t, (unsigned)choose(4), (unsigned)choose(2), job_ends);
        useconds_t after = (useconds_t)choose(1000);
        usleep(after / 2);
        let_go();
        transfer_go_on(t);
        usleep(after / 2);
        look_at_ended(t);
    }
}

static void check_reason(struct transfer *t, bool cancelled)
{
    struct nc_err why = {0};
    bool cut_short = transfer_failed(t, &why), meant = false;
    for (unsigned i = 0; i < w.count; i++)
        meant = meant || w.things[i].plan == ENDS_JOB;
    if (cut_short && strcmp(why.code, "Cancelled") == 0)
        hold(REASON, cancelled, "cancelled by nobody");
    else if (cut_short)
        hold(REASON, meant && strcmp(why.code, w.shared_reason) == 0, "%s: %s", why.code,
             why.message);
    else
        hold(REASON, cancelled || !meant, "%s unnoticed", w.shared_reason);
    check_files(cut_short);
    check_stats(t, cut_short);
}

enum way { TO_THE_END, CANCEL, FREE };

static void run_round(uint64_t seed)
{
    make_world(seed);
    bool job_ends = choose(4) == 0;
    enum way way = choose(3) ? TO_THE_END : choose(2) ? CANCEL : FREE;
    useconds_t after = (useconds_t)choose(8000);
    bool all_there = way == TO_THE_END || choose(2);
    if (way == FREE) /* or the disk may be full at any time until then */
        w.shared_reason = "AccessDenied";
    struct transfer *t = new_transfer();

    add_things(t, (unsigned)choose(16), (unsigned)choose(4), job_ends);
    let_go();
    transfer_start(t);
    if (w.grows)
        grow(t, job_ends);
    if (w.grows && all_there)
        transfer_no_more(t);
    if (way != TO_THE_END) {
        usleep(after);
        look_at_ended(t);
    }
    if (way == CANCEL)
        transfer_cancel(t);
    if (way != FREE) {
        wait_for_end();
        look_at_ended(t);
        check_reason(t, way == CANCEL);
        transfer_cancel(t); /* after the end it is nothing */
    }
    struct nc_err why;
    transfer_failed(t, &why);
    lock();
    w.freeing = true;
    w.keeps = strcmp(why.code, "ENOSPC") != 0;
    unlock();
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

static struct file *add(struct transfer *t, const char *path, uint64_t size, struct nc_err *err)
{
    return transfer_add(t, &(struct transfer_file){.path = path, .size = size}, err);
}

static void test_alone(void)
{
    struct nc_err err;
    struct transfer *t;
    struct transfer_stats s;
    struct transfer_options options = {.memory = 6 * MIB, .parallel = 1, .ended = ended};
    make_world(0);
    options.source = new_source();
    options.sink = new_sink();
    CHECK(transfer_new(&t, &options, &err) == 0, "a transfer is made");
    CHECK(!add(t, "big", 7 * MIB, &err) && strcmp(err.code, "Usage") == 0,
          "a part that does not fit the budget is refused");
    CHECK(add(t, "big", 6 * MIB, &err) != NULL, "one that does is not");
    CHECK(!add(t, "huge", (5ull << 40) + 1, &err) && strncmp(err.message, "huge: ", 6) == 0,
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

static void test_small_memory(void)
{
    struct nc_err err;
    struct transfer *t;
    make_world(2);
    w.streamed = true;
    struct transfer_options options = {
        .memory = BLOCK, .source = new_source(), .sink = new_sink(), .ended = ended};
    if (transfer_new(&t, &options, &err))
        abort();
    CHECK(add(t, "f0", 7 * MIB, &err) != NULL, "a streamed file needs a block of memory");
    CHECK(!add(t, "f1", BLOCK + 1, &err) && strcmp(err.code, "Usage") == 0,
          "a small one needs all of its own");
    transfer_free(t);
    options.memory = BLOCK - 1;
    options.source = new_source();
    options.sink = new_sink();
    if (transfer_new(&t, &options, &err))
        abort();
    CHECK(!add(t, "f0", 7 * MIB, &err) && strcmp(err.code, "Usage") == 0,
          "less than a block is refused, not waited for");
    transfer_free(t);
}

static void test_expected(void)
{
    struct nc_err err;
    struct transfer *t;
    make_world(0);
    struct transfer_options options = {.memory = 16 * MIB,
                                       .part_size = PART_SIZE,
                                       .source = new_source(),
                                       .sink = new_sink(),
                                       .ended = ended};
    if (transfer_new(&t, &options, &err))
        abort();
    struct file *f = add(t, "f0", 2 * PART_SIZE, &err);
    CHECK(transfer_expect(f, 1, kinds[0].xxh3[0], &err) == 0, "a part's digest may be expected");
    CHECK(transfer_expect(f, 2, kinds[0].xxh3[0], &err) && strcmp(err.code, "Usage") == 0,
          "not that of a part which it has not");
    CHECK(transfer_expect(f, 0, "abc", &err) && strcmp(err.code, "Usage") == 0,
          "and nothing of another length");
    transfer_free(t);
}

/* A run that was killed between the last part and the end of its only file. */
static void test_nothing_left_to_fetch(void)
{
    struct nc_err err;
    make_world(0);
    w.copies = w.grows = false;
    w.memory = 16 * MIB;
    struct transfer *t = new_transfer();
    struct thing *g = &w.things[0];
    *g = (struct thing){.kind = SMALL + 3, .parts = 3, .let_go = true};
    w.count = 1;
    struct file *f = add(t, "f0", kinds[g->kind].size, &err);
    g->data = calloc(1, f->size);
    fill(g->data, g->kind, 0, f->size);
    transfer_continue(f, "earlier", &err);
    for (uint32_t i = 0; i < f->parts; i++) {
        transfer_has_part(f, i, "\"old\"");
        g->stored++;
    }
    transfer_start(t);
    wait_for_end();
    CHECK(transfer_next_ended(t) == f && f->state == FILE_DONE,
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
    test_small_memory();
    test_expected();
    test_nothing_left_to_fetch();
    uint64_t rounds = 0, until_ms = clock_ms() + ROUNDS_FOR_MS;
    const char *only = getenv("SEED"), *from = getenv("FROM");
    if (only)
        run_round(strtoull(only, NULL, 10));
    for (uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
         !only && rounds < ROUNDS && clock_ms() < until_ms; seed++, rounds++)
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
