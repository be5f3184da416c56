#include "transfer/fate.h"

#include "transfer/part.h"
#include "transfer/plan.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 2 }; /* a file whose bytes are wrong is fetched once more */

void fate_forget(struct transfer *t, struct file *f, bool keep)
{
    if (f->source_data)
        t->source->forget(t->source, f);
    if (f->sink_data)
        t->sink->forget(t->sink, f, keep);
}

void fate_begin(struct transfer *t, struct file *f, enum file_state state)
{
    f->state = state;
    f->queued = true;
    queue_add(state == FILE_FINISHING && t->sink->sync ? &t->finishes : &t->chores, f);
}

static void free_working_memory(struct file *f)
{
    free(f->in_flight);
    f->in_flight = NULL;
    sha256_free(&f->hash);
    gitblob_free(&f->git);
}

static void leave_begun(struct transfer *t, struct file *f)
{
    if (f->begun_prev)
        f->begun_prev->begun_next = f->begun_next;
    else
        t->begun = f->begun_next;
    if (f->begun_next)
        f->begun_next->begun_prev = f->begun_prev;
    t->begun_count--;
}

void fate_end(struct transfer *t, struct file *f, enum file_state state)
{
    f->state = state;
    if (state == FILE_DONE)
        t->files_done++;
    else
        t->files_failed++;
    free_working_memory(f);
    fate_forget(t, f, false);
    leave_begun(t, f);
    queue_add(&t->over, f);
}

void fate_ready(struct transfer *t, struct part *p)
{
    p->next = NULL;
    *t->ready_end = p;
    t->ready_end = &p->next;
    t->ready_weight += part_weight(p);
}

void fate_close_turn(struct transfer *t, struct file *f)
{
    for (unsigned i = 0; i < t->opened; i++) {
        if (t->open[i] == f) {
            t->open[i] = t->open[--t->opened];
            return;
        }
    }
}

void fate_release(struct transfer *t, struct part *p)
{
    if (p->file->in_flight)
        p->file->in_flight[p->index] = NULL;
    if (p->live_prev)
        p->live_prev->live_next = p->live_next;
    else
        t->live = p->live_next;
    if (p->live_next)
        p->live_next->live_prev = p->live_prev;
    if (p->data)
        buffers_give(&t->buffers, p->data);
    part_free(p);
    free(p);
}

static void cancel_part(struct transfer *t, struct part *p)
{
    if (p->fetching)
        t->source->cancel(t->source, p);
    else if (p->storing)
        t->sink->cancel(t->sink, p->file, p);
}

void fate_stop(struct transfer *t, const struct nc_err *why)
{
    if (t->stopping)
        return;
    t->stopping = true;
    t->fatal = *why;
    pthread_cond_broadcast(&t->written);
    for (struct part *p = t->live; p; p = p->live_next)
        cancel_part(t, p);
    for (struct file *f = t->begun; f; f = f->begun_next) {
        if (f->busy)
            t->sink->cancel(t->sink, f, NULL);
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
        } else {
            t->ready_weight -= part_weight(p);
        }
    }
    *t->ready_end = NULL;
    for (struct part *p = t->live, *next; p; p = next) {
        next = p->live_next;
        if (p->file == f)
            fate_release(t, p);
    }
}

/* Once nothing of a failing file is in flight, the sink may leave it. */
void fate_leave_when_idle(struct transfer *t, struct file *f)
{
    if (f->failing && !f->busy && !f->hashing && !f->queued && !f->rereads &&
        f->state < FILE_LEAVING) {
        f->parked = NULL;
        drop_parts(t, f);
        fate_begin(t, f, FILE_LEAVING);
    }
}

void fate_fail(struct transfer *t, struct file *f, const struct nc_err *why)
{
    if (t->stopping || f->failing)
        return;
    const struct own_reason *own = own_reason(why->code);
    if (!own) {
        fate_stop(t, why);
        return;
    }
    f->err = malloc(sizeof *f->err);
    if (!f->err) {
        fate_stop(t, why);
        return;
    }
    f->failing = true;
    *f->err = *why;
    /* A part that stayed wrong each time it was fetched alone will be wrong once more. */
    bool part_wrong = f->expected && strcmp(why->code, "DigestMismatch") == 0;
    f->again = ++f->tries < TRIES && own->again && !part_wrong;
    fate_close_turn(t, f);
    for (struct part *p = t->live; p; p = p->live_next) {
        if (p->file == f)
            cancel_part(t, p);
    }
    fate_leave_when_idle(t, f);
}

/* The sink has removed what it had: those bytes are not done. */
void fate_forget_parts(struct transfer *t, struct file *f)
{
    for (uint32_t i = 0; i < f->parts; i++) {
        if (f->etags[i][0])
            t->bytes_done -= plan_part_len(f->size, f->part_size, i);
        f->etags[i][0] = f->digests[i][0] = '\0';
    }
}

/* Everything as before the first part, to fetch the file once more. */
void fate_start_over(struct transfer *t, struct file *f)
{
    free(f->upload_id);
    f->upload_id = NULL;
    fate_forget(t, f, false);
    leave_begun(t, f);
    free(f->err);
    f->err = NULL;
    if (!f->wanted_sha256)
        f->sha256[0] = '\0'; /* of bytes that may have been other ones */
    f->next = f->hashed = f->stored = 0;
    f->continued = f->found = f->cloned = f->failing = f->again = f->aside = false;
    f->block = BLOCK;
    f->state = FILE_WAITING;
    f->next_file = t->again;
    t->again = f;
}

static bool is_whole(const struct file *f)
{
    return f->stored == f->parts && (!f->hashes || f->hashed == f->parts);
}

void fate_finish_when_whole(struct transfer *t, struct file *f)
{
    if (f->state == FILE_OPEN && is_whole(f) && !f->failing && !f->queued && !f->hashing)
        fate_begin(t, f, FILE_FINISHING);
}

/* To the sink, or aside until the sink is ready for the file. */
void fate_queue_part(struct transfer *t, struct part *p)
{
    struct file *f = p->file;
    if (f->state == FILE_OPEN) {
        fate_ready(t, p);
    } else {
        p->next = f->parked;
        f->parked = p;
    }
}
