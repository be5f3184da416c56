#include "transfer/sink_s3.h"

#include "s3/s3_xml.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int key_of(const struct sink_s3 *s, const struct file *f, struct buf *key)
{
    buf_init(key, 4096);
    buf_puts(key, s->prefix);
    return buf_puts(key, f->path);
}

static enum op no_memory(const struct file *f, struct nc_err *err)
{
    nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
    return OP_FAILED;
}

struct s3_file *sink_s3_file(struct file *f)
{
    struct s3_file *d = f->sink_data;
    if (!d && (d = calloc(1, sizeof *d))) {
        d->file = f;
        buf_init(&d->body, 2 * SINK_S3_ANSWER_MAX);
        f->sink_data = d;
    }
    return d;
}

/* Starts a request over for the file. */
static struct s3_request *begin(struct sink_s3 *s, struct file *f, const char *method,
                                void (*done)(struct s3_request *))
{
    struct s3_file *d = sink_s3_file(f);
    struct nc_err err;
    struct buf key;
    if (!d)
        return NULL;
    if (d->in_use)
        s3_request_free(&d->request);
    d->in_use = false;
    if (key_of(s, f, &key) == 0 &&
        s3_request_init(&d->request, s->client, method, buf_str(&key), &err) == 0)
        d->in_use = true;
    buf_free(&key);
    if (!d->in_use)
        return NULL;
    d->request.owner = d;
    d->request.done = done;
    d->request.http.text_max = SINK_S3_ANSWER_MAX;
    d->request.http.text_whole = true;
    return &d->request;
}

static void end(struct s3_request *r)
{
    struct s3_file *d = r->owner;
    struct nc_err err = r->http.err;
    bool failed = r->http.failed;
    transfer_note(d->file->transfer, &r->http);
    transfer_file_ended(d->file, failed ? &err : NULL);
}

static void add_digest(struct s3_request *r, const struct file *f)
{
    if (f->sha256[0])
        s3_request_header(r, "x-amz-meta-sha256", f->sha256);
}

/* ---- create ---- */

static enum http_verdict read_upload_id(struct s3_request *r)
{
    struct s3_file *d = r->owner;
    char *id = NULL;
    struct nc_err why;
    if (s3_xml_upload_id(buf_str(&r->http.text), r->http.text.len, &id, &why)) {
        nc_err_set(&r->http.err, why.code, "%s: the answer to CreateMultipartUpload: %s", r->what,
                   why.message);
        return why.retryable ? HTTP_RETRY : HTTP_FAILED;
    }
    free(d->file->upload_id);
    d->file->upload_id = id;
    d->file->orphans |= r->http.attempts > 1; /* an earlier one may have got through unheard */
    return HTTP_OK;
}

static enum op open_file(struct sink *self, struct file *f, struct nc_err *err)
{
    struct sink_s3 *s = (struct sink_s3 *)self;
    if (f->parts == 1 || f->upload_id)
        return f->direct && (f->parts > 1 || !f->etag) ? sink_s3_ask_source(s, f, err) : OP_OVER;
    struct s3_request *r = begin(s, f, "POST", end);
    if (!r)
        return no_memory(f, err);
    url_query_add(&r->query, "uploads", "");
    add_digest(r, f);
    r->http.has_body = true;
    r->http.once = true;
    r->read = read_upload_id;
    if (f->direct)
        return sink_s3_ask_source(s, f, err);
    s3_submit(transfer_pool(f->transfer), r);
    return OP_BEGUN;
}

/* ---- parts ---- */

/* The next bytes of the body, from the very file that was hashed: by its name there may be another
 * one meanwhile. */
static int give(struct http_request *r, size_t offset, char *out, size_t len)
{
    const struct s3_part_op *op = (struct s3_part_op *)(void *)r;
    const struct part *p = op->part;
    return local_file_read(p->file->source_data, op->sink->from, p->file, p->offset + offset, out,
                           len, &r->err);
}

static int read_back(struct sink *self, struct file *f, uint64_t offset, char *data, size_t len,
                     struct nc_err *err)
{
    struct sink_s3 *s = (struct sink_s3 *)self;
    return local_file_read(f->source_data, s->from, f, offset, data, len, err);
}

static void stored(struct s3_request *r)
{
    struct s3_part_op *op = r->owner;
    struct part *part = op->part;
    struct nc_err err = r->http.err;
    bool failed = r->http.failed;
    char etag[80] = "";
    if (!failed && !s3_etag(r, etag, sizeof etag)) {
        nc_err_set(&err, "BadAnswer", "%s: the server's answer has no ETag", r->what);
        failed = true;
    }
    if (!failed && part->file->streamed)
        failed = local_file_check(part->file->source_data, part->file, &err) != 0;
    transfer_note(part->file->transfer, &r->http);
    transfer_part_stored(part, etag, failed ? &err : NULL);
}

struct s3_part_op *sink_s3_part_op(struct sink_s3 *s, struct part *part, struct nc_err *err)
{
    struct file *f = part->file;
    struct s3_part_op *op = calloc(1, sizeof *op);
    struct buf key;
    if (key_of(s, f, &key) || !op ||
        s3_request_init(&op->request, s->client, "PUT", buf_str(&key), err)) {
        buf_free(&key);
        free(op);
        no_memory(f, err);
        return NULL;
    }
    buf_free(&key);
    part->op = op;
    op->sink = s;
    op->part = part;
    op->request.owner = op;
    op->request.http.has_body = true;
    if (f->parts > 1) {
        char number[16];
        snprintf(number, sizeof number, "%" PRIu32, part->index + 1);
        url_query_add(&op->request.query, "partNumber", number);
        url_query_add(&op->request.query, "uploadId", f->upload_id);
    }
    return op;
}

static enum op store(struct sink *self, struct part *part, struct nc_err *err)
{
    struct file *f = part->file;
    struct s3_part_op *op = sink_s3_part_op((struct sink_s3 *)self, part, err);
    if (!op)
        return OP_FAILED;
    struct s3_request *r = &op->request;
    if (f->parts == 1)
        add_digest(r, f);
    r->done = stored;
    memcpy(r->payload_hash, part->sha256, sizeof part->sha256);
    if (f->streamed)
        r->http.give = give;
    else
        r->http.body = part->data;
    r->http.body_len = part->len;
    r->http.moved = transfer_bytes_out(f->transfer);
    transfer_bound(f->transfer, &r->http);
    s3_submit(transfer_pool(f->transfer), r);
    return OP_BEGUN;
}

/* ---- complete ---- */

/* A 200 may hold an error, half a document or nothing: only a whole result is success. */
static enum http_verdict read_complete(struct s3_request *r)
{
    char *etag = NULL;
    struct nc_err why;
    if (s3_xml_complete(buf_str(&r->http.text), r->http.text.len, &etag, &why) == 0) {
        free(etag);
        return HTTP_OK;
    }
    nc_err_set(&r->http.err, why.code, "%s: CompleteMultipartUpload answered %d, but: %s", r->what,
               r->http.status, why.message);
    r->http.err.retryable = why.retryable;
    return why.retryable ? HTTP_RETRY : HTTP_FAILED;
}

/* The object is there, has the size and was put there for this digest: an answer was lost. */
static enum http_verdict read_look(struct s3_request *r)
{
    struct s3_file *d = r->owner;
    const struct file *f = d->file;
    char text[80];
    uint64_t size = 0;
    bool right = http_header(&r->http, "content-length", text, sizeof text) &&
                 text_u64(text, &size) == 0 && size == f->size;
    if (right && f->sha256[0])
        right = http_header(&r->http, "x-amz-meta-sha256", text, sizeof text) &&
                strcmp(text, f->sha256) == 0;
    return right ? HTTP_OK : HTTP_FAILED; /* looked says why */
}

/* The object is certainly not the one, and the upload may be in any state: servers answer a second
 * Complete with NoSuchUpload, Ceph with InternalError. Only the whole file again helps. */
static void fail_completing(struct s3_request *r)
{
    struct s3_file *d = r->owner;
    const struct nc_err *why = &d->why;
    bool again = why->retryable || strcmp(why->code, "EmptyResponse") == 0 ||
                 strcmp(why->code, "MalformedXML") == 0;
    r->http.err = *why;
    if (again)
        nc_err_set(&r->http.err, "NotCompleted", "%s", why->message);
}

static void looked(struct s3_request *r)
{
    const struct s3_file *d = r->owner;
    if (r->http.failed && (r->http.status == 200 || r->http.status == 404))
        fail_completing(r);
    else if (r->http.failed)
        r->http.err = d->why;
    end(r);
}

static void completed(struct s3_request *r)
{
    struct s3_file *d = r->owner;
    struct nc_err ignored;
    d->why = r->http.err;
    bool known = !r->http.failed || strcmp(d->why.code, "Cancelled") == 0;
    if (known || atomic_load(&d->looking) ||
        s3_request_init(&d->look, r->client, "HEAD", r->key, &ignored)) {
        end(r);
        return;
    }
    transfer_note(d->file->transfer, &r->http);
    d->look.owner = d;
    d->look.done = looked;
    d->look.read = read_look;
    s3_submit(transfer_pool(d->file->transfer), &d->look);
    atomic_store(&d->looking, true); /* from now on it may be cancelled; it starts on this thread */
}

static enum op finish(struct sink *self, struct file *f, struct nc_err *err)
{
    struct sink_s3 *s = (struct sink_s3 *)self;
    if (f->parts == 1)
        return OP_OVER;
    struct s3_request *r = begin(s, f, "POST", completed);
    struct s3_part *parts = calloc(f->parts, sizeof parts[0]);
    if (!r || !parts) {
        free(parts);
        return no_memory(f, err);
    }
    for (uint32_t i = 0; i < f->parts; i++)
        parts[i] = (struct s3_part){.number = i + 1, .etag = f->etags[i]};
    struct s3_file *d = f->sink_data;
    buf_clear(&d->body);
    int rc = s3_xml_build_complete(&d->body, parts, f->parts);
    free(parts);
    if (rc) {
        nc_err_set(err, "BadAnswer", "%s: an ETag of the server does not fit into XML", r->what);
        return OP_FAILED;
    }
    url_query_add(&r->query, "uploadId", f->upload_id);
    s3_request_header(r, "Content-Type", "application/xml");
    r->http.body = d->body.data;
    r->http.body_len = d->body.len;
    r->http.has_body = true;
    r->http.stall_ms = SINK_S3_STALL_MS;
    r->read = read_complete;
    if (d->source_in_use) /* parts of it were copied */
        return sink_s3_ask_source(s, f, err);
    s3_submit(transfer_pool(f->transfer), r);
    return OP_BEGUN;
}

/* ---- leaving, cancelling ---- */

static enum op leave(struct sink *self, struct file *f, struct nc_err *err)
{
    struct sink_s3 *s = (struct sink_s3 *)self;
    if (!f->upload_id)
        return OP_OVER;
    struct s3_request *r = begin(s, f, "DELETE", end);
    if (!r)
        return no_memory(f, err);
    url_query_add(&r->query, "uploadId", f->upload_id);
    s3_submit(transfer_pool(f->transfer), r);
    return OP_BEGUN;
}

static void cancel(struct sink *self, struct file *f, struct part *part)
{
    (void)self;
    struct http_pool *pool = transfer_pool(f->transfer);
    struct s3_file *d = f->sink_data;
    if (part)
        http_cancel(pool, &((struct s3_part_op *)part->op)->request.http);
    else if (d && atomic_load(&d->asking))
        http_cancel(pool, &d->source.http);
    else if (d && d->in_use)
        http_cancel(pool, &d->request.http);
    if (!part && d && atomic_load(&d->looking))
        http_cancel(pool, &d->look.http);
}

static void release(struct sink *self, struct part *part)
{
    (void)self;
    struct s3_part_op *op = part->op;
    if (op)
        s3_request_free(&op->request);
    free(op);
    part->op = NULL;
}

static void forget(struct sink *self, struct file *f, bool keep)
{
    (void)self;
    (void)keep;
    struct s3_file *d = f->sink_data;
    if (d->in_use)
        s3_request_free(&d->request);
    if (d->source_in_use)
        s3_request_free(&d->source);
    if (atomic_load(&d->looking))
        s3_request_free(&d->look);
    buf_free(&d->body);
    free(d);
    f->sink_data = NULL;
}

static void free_sink(struct sink *self)
{
    struct sink_s3 *s = (struct sink_s3 *)self;
    local_files_free(s->from);
    free(s->copy_prefix);
    free(s->prefix);
    free(s);
}

struct sink *sink_s3_new(struct s3_client *client, const char *prefix, const char *from)
{
    struct sink_s3 *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->prefix = strdup(prefix);
    /* An MD5 of the body needs all of it at once. */
    bool streamed = from && !client->content_md5;
    s->from = streamed ? local_files_new(from) : NULL;
    if (!s->prefix || (streamed && !s->from)) {
        free_sink(&s->base);
        return NULL;
    }
    s->base = (struct sink){
        .digests = !client->endpoint.tls,
        .streamed = streamed,
        .read = read_back,
        .open = open_file,
        .store = store,
        .finish = finish,
        .leave = leave,
        .cancel = cancel,
        .release = release,
        .forget = forget,
        .free = free_sink,
    };
    s->client = client;
    return &s->base;
}
