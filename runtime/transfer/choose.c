#include "transfer/choose.h"

#include "transfer/fate.h"
#include "transfer/part.h"
#include "transfer/plan.h"

#include <stdlib.h>

enum { WHOLE = 16 /* sixteenths of a slot */ };

bool choose_skip(struct file *f)
{
    while (f->next < f->parts && (f->etags[f->next][0] || f->in_flight[f->next]))
        f->next++;
    return f->next < f->parts;
}

/* How the bytes of a file will go, which is known once it begins. */
static void plan_way(const struct transfer *t, struct file *f)
{
    f->hashes = !f->continued && !f->expected && (t->sha256 || f->sha256[0] || f->blob[0]);
    f->direct = t->sink->copy && !t->no_direct && !f->hashes && !f->expected &&
                (f->streamed || !t->sink->local) && !(t->paced && t->sink->local);
}

/* Allocates what a file needs while it is open. */
static int begin_file(struct transfer *t, struct file *f)
{
    f->begun_next = t->begun;
    f->begun_prev = NULL;
    if (t->begun)
        t->begun->begun_prev = f;
    t->begun = f;
    t->begun_count++;
    plan_way(t, f);
    f->in_flight = calloc(f->parts, sizeof f->in_flight[0]);
    if (!f->in_flight ||
        (f->hashes && (sha256_init(&f->hash) || (f->blob[0] && gitblob_init(&f->git, f->size))))) {
        struct nc_err err;
        nc_err_set(&err, "ENOMEM", "%s: out of memory", f->path);
        fate_stop(t, &err);
        return -1;
    }
    bool more = choose_skip(f);
    if (more && t->sink->local && t->sink->streamed && !f->streamed)
        f->state = FILE_OPEN; /* it is made when its bytes are there */
    else
        fate_begin(t, f, FILE_OPENING);
    if (more)
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
    if (t->next_waiting == t->admitted || t->begun_count >= t->begun_most)
        return NULL;
    f = t->waiting[t->next_waiting];
    t->waiting[t->next_waiting++] = NULL;
    return f;
}

/* Streamed bytes need somewhere to go, and a direct copy somewhere to copy to. */
static bool may_fetch(const struct file *f)
{
    return f->state == FILE_OPEN || (f->state == FILE_OPENING && !f->streamed && !f->direct);
}

/* The file to fetch a part of, or NULL: the one that has the fewest on their way, so that as many
 * bytes as can be come in the order in which they are hashed. */
static struct file *next_turn(struct transfer *t)
{
    while (t->opened < t->open_most) {
        struct file *f = next_file(t);
        if (!f || begin_file(t, f))
            break;
        /* One with a single part leaves its place at once: no need to fill the others first. */
        if (f->parts == 1 && may_fetch(f) && choose_skip(f))
            return f;
    }
    struct file *best = NULL;
    unsigned start = t->opened ? ++t->turn % t->opened : 0;
    for (unsigned i = 0; i < t->opened; i++) {
        struct file *f = t->open[(start + i) % t->opened];
        if (may_fetch(f) && (!best || f->fetching < best->fetching))
            best = f;
        if (best && !best->fetching)
            break;
    }
    return best;
}

static unsigned slots(const struct transfer *t)
{
    return t->climb.level * WHOLE;
}

/* Between two servers each direction has its half. */
static unsigned share(const struct transfer *t)
{
    return t->source->local || t->sink->local ? slots(t) : slots(t) / 2;
}

static bool slot_free(struct transfer *t)
{
    if (t->fetching < share(t) && t->ready_weight < slots(t))
        return true;
    climb_full(&t->climb);
    return false;
}

bool choose_may(const struct transfer *t)
{
    return t->fetching < share(t) && t->ready_weight < slots(t) &&
           buffers_have(&t->buffers, t->largest_part) &&
           (t->opened || t->again || t->next_waiting < t->admitted);
}

bool choose_is_small(const struct transfer *t)
{
    return !t->opened && !t->again && t->next_waiting < t->admitted &&
           part_is_small(t->waiting[t->next_waiting]->size);
}

unsigned choose_room(const struct transfer *t)
{
    return slots(t) - (t->ready_weight < slots(t) ? t->ready_weight : slots(t));
}

bool choose_is_low(const struct transfer *t)
{
    return choose_room(t) >= slots(t) / 2;
}

static void link_part(struct transfer *t, struct part *p)
{
    p->live_next = t->live;
    if (t->live)
        t->live->live_prev = p;
    t->live = p;
    p->file->in_flight[p->index] = p;
}

/* A part with its buffer, or NULL where none can be had now. */
static struct part *new_part(struct transfer *t, struct file *f, size_t len)
{
    size_t need = part_need(f, len);
    /* The sink may have wished for larger blocks; and one that gives its block away to be written
     * needs another, whatever the other parts do. */
    if (!buffers_have(&t->buffers, f->aside ? 2 * need : need))
        return NULL;
    char *data = need || !f->direct ? buffers_take(&t->buffers, need) : NULL;
    struct part *p = data || f->direct ? calloc(1, sizeof *p) : NULL;
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
    p->len = len;
    p->direct = f->direct;
    p->data = data;
    p->room = need;
    return p;
}

struct part *choose_part(struct transfer *t)
{
    if (t->stopping || t->renewing || !slot_free(t) || !buffers_have(&t->buffers, t->largest_part))
        return NULL;
    struct file *f = next_turn(t);
    if (!f || !choose_skip(f))
        return NULL;
    struct part *p = new_part(t, f, (size_t)plan_part_len(f->size, f->part_size, f->next));
    if (!p)
        return NULL;
    p->index = f->next++;
    p->offset = (uint64_t)p->index * f->part_size;
    link_part(t, p);
    if (!choose_skip(f))
        fate_close_turn(t, f);
    return p;
}

struct part *choose_ready(struct transfer *t)
{
    struct part *p = t->ready;
    unsigned most = p && p->direct ? slots(t) : share(t);
    if (!p || (t->storing >= most && !t->sink->local))
        return NULL;
    t->ready = p->next;
    if (!t->ready)
        t->ready_end = &t->ready;
    t->ready_weight -= part_weight(p);
    return p;
}

struct file *choose_chore(struct transfer *t)
{
    struct file *f;
    while ((f = queue_take(&t->chores))) {
        f->queued = false;
        if (!f->failing || f->state == FILE_LEAVING)
            return f;
        fate_leave_when_idle(t, f); /* it failed while it waited for this */
    }
    return NULL;
}
