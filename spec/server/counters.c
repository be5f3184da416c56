#include "counters.h"

#include "base/clock.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETTLE_MS = 200 };

void counters_init(struct counters *c)
{
    *c = (struct counters){.since_ms = clock_ms()};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->none_open, NULL);
    c->log = str_alloc(sizeof *c->log * COUNTERS_LOG);
}

static void entry_free(struct counters_entry *e)
{
    free(e->path);
    free(e->range);
    free(e->upload);
    *e = (struct counters_entry){0};
}

static void clear_log(struct counters *c)
{
    uint64_t n = c->logged < COUNTERS_LOG ? c->logged : COUNTERS_LOG;
    for (uint64_t i = 0; i < n; i++)
        entry_free(&c->log[i]);
    c->logged = 0;
}

void counters_free(struct counters *c)
{
    clear_log(c);
    free(c->log);
    pthread_cond_destroy(&c->none_open);
    pthread_mutex_destroy(&c->lock);
}

void counters_reset(struct counters *c, uint64_t from)
{
    pthread_mutex_lock(&c->lock);
    c->from = from;
    clear_log(c);
    c->op_count = 0;
    c->connections[0] = c->connections[1] = 0;
    c->rejected_signatures = c->auth_leaks = 0;
    pthread_mutex_unlock(&c->lock);
}

static struct counters_op *op_of(struct counters *c, const struct counters_entry *e)
{
    for (size_t i = 0; i < c->op_count; i++) {
        if (c->ops[i].side == e->side && strcmp(c->ops[i].op, e->op) == 0)
            return &c->ops[i];
    }
    if (c->op_count == COUNTERS_OPS)
        return NULL;
    c->ops[c->op_count] = (struct counters_op){.side = e->side, .op = e->op};
    return &c->ops[c->op_count++];
}

void counters_begin(struct counters *c)
{
    pthread_mutex_lock(&c->lock);
    c->open++;
    pthread_mutex_unlock(&c->lock);
}

void counters_settle(struct counters *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += SETTLE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&c->lock);
    while (c->open && pthread_cond_timedwait(&c->none_open, &c->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&c->lock);
}

void counters_add(struct counters *c, struct counters_entry *e)
{
    pthread_mutex_lock(&c->lock);
    if (--c->open == 0)
        pthread_cond_broadcast(&c->none_open);
    if (e->number < c->from) {
        entry_free(e);
        pthread_mutex_unlock(&c->lock);
        return;
    }
    struct counters_op *op = op_of(c, e);
    if (op) {
        op->requests++;
        op->in += e->in;
        op->out += e->out;
        op->errors += e->status == 0 || e->status >= 400 || e->aborted;
    }
    struct counters_entry *slot = &c->log[c->logged++ % COUNTERS_LOG];
    entry_free(slot);
    *slot = *e;
    pthread_mutex_unlock(&c->lock);
}

void counters_count(struct counters *c, uint64_t *counter)
{
    pthread_mutex_lock(&c->lock);
    ++*counter;
    pthread_mutex_unlock(&c->lock);
}

static void side_json(const struct counters *c, enum side side, struct buf *out)
{
    struct counters_op sum = {0};
    buf_printf(out, "\"%s\":{\"ops\":{", side_names[side]);
    bool first = true;
    for (size_t i = 0; i < c->op_count; i++) {
        const struct counters_op *op = &c->ops[i];
        if (op->side != side)
            continue;
        buf_printf(out,
                   "%s\"%s\":{\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"in\":%" PRIu64
                   ",\"out\":%" PRIu64 "}",
                   first ? "" : ",", op->op, op->requests, op->errors, op->in, op->out);
        sum.requests += op->requests;
        sum.errors += op->errors;
        sum.in += op->in;
        sum.out += op->out;
        first = false;
    }
    buf_printf(out,
               "},\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"in\":%" PRIu64
               ",\"out\":%" PRIu64 "}",
               sum.requests, sum.errors, sum.in, sum.out);
}

void counters_json(struct counters *c, struct buf *out)
{
    pthread_mutex_lock(&c->lock);
    buf_putc(out, '{');
    for (int side = 0; side < SIDE_ADMIN; side++) {
        side_json(c, (enum side)side, out);
        buf_putc(out, ',');
    }
    buf_printf(out,
               "\"connections\":%" PRIu64 ",\"cdn_connections\":%" PRIu64
               ",\"rejected_signatures\":%" PRIu64 ",\"auth_leaks\":%" PRIu64 "}\n",
               c->connections[0], c->connections[1], c->rejected_signatures, c->auth_leaks);
    pthread_mutex_unlock(&c->lock);
}

static void entry_json(const struct counters_entry *e, struct buf *out)
{
    buf_printf(out,
               "{\"number\":%" PRIu64 ",\"side\":\"%s\",\"op\":\"%s\",\"method\":\"%s\",\"path\":",
               e->number, side_names[e->side], e->op, e->method);
    str_json(out, e->path);
    if (e->range) {
        buf_puts(out, ",\"range\":");
        str_json(out, e->range);
    }
    if (e->upload) {
        buf_puts(out, ",\"upload\":");
        str_json(out, e->upload);
    }
    if (e->part)
        buf_printf(out, ",\"part\":%u", e->part);
    buf_printf(out,
               ",\"status\":%d,\"in\":%" PRIu64 ",\"out\":%" PRIu64 ",\"start_ms\":%" PRIu64
               ",\"ms\":%" PRIu64 ",\"aborted\":%s,\"faulted\":%s}",
               e->status, e->in, e->out, e->start_ms, e->ms, e->aborted ? "true" : "false",
               e->faulted ? "true" : "false");
}

void counters_log_json(struct counters *c, struct buf *out)
{
    pthread_mutex_lock(&c->lock);
    uint64_t first = c->logged < COUNTERS_LOG ? 0 : c->logged - COUNTERS_LOG;
    buf_putc(out, '[');
    for (uint64_t i = first; i < c->logged; i++) {
        if (i > first)
            buf_puts(out, ",\n");
        entry_json(&c->log[i % COUNTERS_LOG], out);
    }
    buf_puts(out, "]\n");
    pthread_mutex_unlock(&c->lock);
}
