#include "transfer/ends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct source_hub {
    struct source base;
    struct hub *hub;
    char *prefix; /* "/owner/name/resolve/<commit>/", encoded */
};

/* What the parts of one file share. */
struct hub_file {
    struct hub_location location;
    char *path; /* encoded, from "/" */
    char *what;
};

struct hub_part {
    struct hub_request request; /* first: hooks get back to us through it */
    struct part *part;
};

static struct hub_file *file_data(struct source_hub *s, struct file *f)
{
    if (f->source_data)
        return f->source_data;
    struct hub_file *d = calloc(1, sizeof *d);
    struct buf path, what;
    buf_init(&path, URL_MAX);
    buf_init(&what, URL_MAX);
    buf_puts(&path, s->prefix);
    url_encode(&path, f->path, strlen(f->path), true);
    buf_printf(&what, "GET %s from the hub", f->path);
    if (d) {
        hub_location_init(&d->location);
        d->path = buf_take(&path);
        d->what = buf_take(&what);
        f->source_data = d;
    }
    buf_free(&path);
    buf_free(&what);
    return d && d->path && d->what ? d : NULL;
}

static void fetched(struct hub_request *r)
{
    struct hub_part *op = r->owner;
    struct part *part = op->part;
    struct nc_err err = r->http.err;
    bool failed = r->http.failed;
    transfer_note(part->file->transfer, &r->http);
    transfer_part_fetched(part, failed ? &err : NULL);
}

static int begun(struct http_request *r)
{
    return transfer_part_begin(((struct hub_part *)(void *)r)->part, &r->err);
}

static int take(struct http_request *r, const char *data, size_t len)
{
    return transfer_part_take(((struct hub_part *)(void *)r)->part, data, len, &r->err);
}

static enum op fetch(struct source *self, struct part *part, struct nc_err *err)
{
    struct source_hub *s = (struct source_hub *)self;
    struct file *f = part->file;
    struct hub_file *d = file_data(s, f);
    struct hub_part *op = d ? calloc(1, sizeof *op) : NULL;
    if (!op) {
        nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
        return OP_FAILED;
    }
    part->op = op;
    op->part = part;
    struct hub_request *r = &op->request;
    hub_request_init(r, s->hub, &d->location);
    r->path = d->path;
    r->owner = op;
    r->done = fetched;
    r->http.what = d->what;
    r->http.begun = begun;
    r->http.take = take;
    r->http.dest_len = part->len;
    r->http.ranged = f->parts > 1;
    r->http.range_start = part->offset;
    r->http.moved = transfer_bytes_in(f->transfer);
    transfer_bound(f->transfer, &r->http);
    http_submit(transfer_pool(f->transfer), &r->http);
    return OP_BEGUN;
}

static void cancel(struct source *self, struct part *part)
{
    (void)self;
    struct hub_part *op = part->op;
    http_cancel(transfer_pool(part->file->transfer), &op->request.http);
}

static void release(struct source *self, struct part *part)
{
    (void)self;
    struct hub_part *op = part->op;
    if (op)
        hub_request_free(&op->request);
    free(op);
    part->op = NULL;
}

static void forget(struct source *self, struct file *f)
{
    (void)self;
    struct hub_file *d = f->source_data;
    hub_location_free(&d->location);
    free(d->path);
    free(d->what);
    free(d);
    f->source_data = NULL;
}

static void free_source(struct source *self)
{
    struct source_hub *s = (struct source_hub *)self;
    free(s->prefix);
    free(s);
}

struct source *source_hub_new(struct hub *hub, const char *repository, const char *commit)
{
    struct source_hub *s = calloc(1, sizeof *s);
    struct buf prefix;
    buf_init(&prefix, URL_MAX);
    buf_putc(&prefix, '/');
    url_encode(&prefix, repository, strlen(repository), true);
    buf_puts(&prefix, "/resolve/");
    url_encode(&prefix, commit, strlen(commit), false);
    buf_putc(&prefix, '/');
    char *text = buf_take(&prefix);
    buf_free(&prefix);
    if (!s || !text) {
        free(s);
        free(text);
        return NULL;
    }
    s->base = (struct source){false, fetch, cancel, release, forget, free_source};
    s->hub = hub;
    s->prefix = text;
    return &s->base;
}
