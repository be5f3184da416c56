#include "transfer/ends.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct source_s3 {
    struct source base;
    struct s3_client *client;
    char *prefix;
};

/* The ETag that every part of the object must have: the first answer's. */
struct s3_object_state {
    pthread_mutex_t lock;
    char etag[80];
};

struct s3_part_get {
    struct s3_request request; /* first: hooks get back to us through it */
    struct part *part;
    struct s3_object_state *object;
};

static void fetched(struct s3_request *r)
{
    struct s3_part_get *op = r->owner;
    struct part *part = op->part;
    struct nc_err err = r->http.err;
    bool failed = r->http.failed;
    if (r->http.status == 412)
        nc_err_set(&err, "Changed", "%s: the object was replaced while it was read", r->what);
    transfer_note(part->file->transfer, &r->http);
    transfer_part_fetched(part, failed ? &err : NULL);
}

/* Also finds out a server that ignores If-Match, and a replacement between the first parts, which
 * were asked for before any ETag was known. */
static enum http_verdict same_object(struct s3_request *r)
{
    struct s3_part_get *op = r->owner;
    char etag[80];
    if (!s3_etag(r, etag, sizeof etag))
        return HTTP_OK;
    pthread_mutex_lock(&op->object->lock);
    if (!op->object->etag[0])
        memcpy(op->object->etag, etag, sizeof etag);
    bool same = strcmp(op->object->etag, etag) == 0;
    pthread_mutex_unlock(&op->object->lock);
    if (same)
        return HTTP_OK;
    nc_err_set(&r->http.err, "Changed", "%s: the object was replaced while it was read", r->what);
    return HTTP_FAILED;
}

static int begun(struct http_request *r)
{
    return transfer_part_begin(((struct s3_part_get *)(void *)r)->part, &r->err);
}

static int take(struct http_request *r, const char *data, size_t len)
{
    return transfer_part_take(((struct s3_part_get *)(void *)r)->part, data, len, &r->err);
}

static struct s3_object_state *object_state(struct file *f)
{
    struct s3_object_state *state = f->source_data;
    if (!state && (state = calloc(1, sizeof *state))) {
        pthread_mutex_init(&state->lock, NULL);
        snprintf(state->etag, sizeof state->etag, "%s", f->etag ? f->etag : "");
        f->source_data = state;
    }
    return state;
}

static void ask_for(struct s3_request *r, const struct part *part, struct s3_object_state *state)
{
    char etag[sizeof state->etag];
    if (part->file->parts > 1) {
        char range[64];
        snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, part->offset,
                 part->offset + part->len - 1);
        s3_request_header(r, "Range", range);
    }
    pthread_mutex_lock(&state->lock);
    memcpy(etag, state->etag, sizeof etag);
    pthread_mutex_unlock(&state->lock);
    if (etag[0])
        s3_request_header(r, "If-Match", etag);
}

static enum op fetch(struct source *self, struct part *part, struct nc_err *err)
{
    struct source_s3 *s = (struct source_s3 *)self;
    struct file *f = part->file;
    struct s3_object_state *state = object_state(f);
    struct s3_part_get *op = state ? calloc(1, sizeof *op) : NULL;
    struct buf key;
    buf_init(&key, 4096);
    buf_puts(&key, s->prefix);
    buf_puts(&key, f->path);
    if (!op || key.failed || s3_request_init(&op->request, s->client, "GET", buf_str(&key), err)) {
        buf_free(&key);
        free(op);
        nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
        return OP_FAILED;
    }
    buf_free(&key);
    part->op = op;
    op->part = part;
    op->object = state;
    struct s3_request *r = &op->request;
    ask_for(r, part, state);
    r->read = same_object;
    r->owner = op;
    r->done = fetched;
    r->http.begun = begun;
    r->http.take = take;
    r->http.dest_len = part->len;
    r->http.ranged = f->parts > 1;
    r->http.range_start = part->offset;
    r->http.moved = transfer_bytes_in(f->transfer);
    transfer_bound(f->transfer, &r->http);
    s3_submit(transfer_pool(f->transfer), r);
    return OP_BEGUN;
}

static void cancel(struct source *self, struct part *part)
{
    (void)self;
    struct s3_part_get *op = part->op;
    http_cancel(transfer_pool(part->file->transfer), &op->request.http);
}

static void release(struct source *self, struct part *part)
{
    (void)self;
    struct s3_part_get *op = part->op;
    if (op)
        s3_request_free(&op->request);
    free(op);
    part->op = NULL;
}

static void forget(struct source *self, struct file *f)
{
    (void)self;
    struct s3_object_state *state = f->source_data;
    pthread_mutex_destroy(&state->lock);
    free(state);
    f->source_data = NULL;
}

static void free_source(struct source *self)
{
    struct source_s3 *s = (struct source_s3 *)self;
    free(s->prefix);
    free(s);
}

struct source *source_s3_new(struct s3_client *client, const char *prefix)
{
    struct source_s3 *s = calloc(1, sizeof *s);
    if (!s || !(s->prefix = strdup(prefix))) {
        free(s);
        return NULL;
    }
    s->base = (struct source){false, fetch, cancel, release, forget, free_source};
    s->client = client;
    return &s->base;
}
