/* Objects of the same service are copied by the server itself: CopyObject, or UploadPartCopy for
 * those of several parts. What is copied is known by its ETag, and the same from its first part to
 * its last: servers are asked to compare it, and since some ignore that for parts, it is looked at
 * once more before they are put together.
 *
 * https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html
 * https://docs.aws.amazon.com/AmazonS3/latest/API/API_UploadPartCopy.html
 * https://docs.ceph.com/en/pacific/radosgw/s3/objectops/#copy-object */
#include "transfer/sink_s3.h"

#include "s3/s3_xml.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the object that is copied ---- */

static void changed(struct s3_request *r)
{
    nc_err_set(&r->http.err, "Changed", "%s: the object was replaced while it was copied", r->what);
}

static enum http_verdict read_source(struct s3_request *r)
{
    struct s3_file *d = r->owner;
    const struct file *f = d->file;
    char text[sizeof d->source_etag];
    uint64_t size;
    if (!http_header(&r->http, "content-length", text, sizeof text) || text_u64(text, &size) ||
        !s3_etag(r, text, sizeof text)) {
        nc_err_set(&r->http.err, "BadAnswer", "%s: the answer has no size or no ETag", r->what);
        return HTTP_FAILED;
    }
    if (size != f->size) {
        nc_err_set(&r->http.err, "SizeMismatch",
                   "%s: the object has %" PRIu64 " bytes where %" PRIu64 " were listed", r->what,
                   size, f->size);
        return HTTP_FAILED;
    }
    if (d->source_etag[0] && strcmp(d->source_etag, text) != 0) {
        changed(r);
        return HTTP_FAILED;
    }
    memcpy(d->source_etag, text, sizeof text);
    return HTTP_OK;
}

/* What an object carries besides its bytes; CopyObject keeps it by itself. */
static void keep_headers(struct s3_request *to, const struct s3_request *from)
{
    static const char *const kept[][2] = {
        {"content-type", "Content-Type"},         {"content-encoding", "Content-Encoding"},
        {"content-language", "Content-Language"}, {"content-disposition", "Content-Disposition"},
        {"cache-control", "Cache-Control"},
    };
    enum { METADATA_MOST = 16 }; /* a signature takes no end of them */
    char value[2048], name[128];
    unsigned metadata = 0;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (http_header(&from->http, kept[i][0], value, sizeof value))
            s3_request_header(to, kept[i][1], value);
    }
    for (const char *line = buf_str(&from->http.head), *end; (end = strchr(line, '\n'));
         line = end + 1) {
        size_t len = strcspn(line, ":\n");
        if (!text_starts(line, "x-amz-meta-") || len >= sizeof name || metadata == METADATA_MOST)
            continue;
        memcpy(name, line, len);
        name[len] = '\0';
        if (http_header(&from->http, name, value, sizeof value)) {
            s3_request_header(to, name, value);
            metadata++;
        }
    }
}

static void asked(struct s3_request *r)
{
    struct s3_file *d = r->owner;
    struct transfer *t = d->file->transfer;
    if (r->http.status == 412)
        changed(r);
    transfer_note(t, &r->http);
    if (r->http.failed || !d->in_use) {
        struct nc_err err = r->http.err;
        bool failed = r->http.failed;
        atomic_store(&d->asking, false);
        transfer_file_ended(d->file, failed ? &err : NULL);
        return;
    }
    if (!d->body.len) /* it creates the upload */
        keep_headers(&d->request, r);
    s3_submit(transfer_pool(t), &d->request);
    atomic_store(&d->asking, false); /* that one may be cancelled now; it starts on this thread */
}

static int key_of_source(const struct sink_s3 *s, const struct file *f, struct buf *key)
{
    buf_init(key, 4096);
    buf_puts(key, s->copy_prefix);
    return buf_puts(key, f->path);
}

enum op sink_s3_ask_source(struct sink_s3 *s, struct file *f, struct nc_err *err)
{
    struct s3_file *d = sink_s3_file(f);
    struct buf key;
    if (d && d->source_in_use)
        s3_request_free(&d->source);
    if (!d || key_of_source(s, f, &key) ||
        s3_request_init(&d->source, s->copy_from, "HEAD", buf_str(&key), err)) {
        nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
        return OP_FAILED;
    }
    buf_free(&key);
    d->source_in_use = true;
    if (!d->source_etag[0] && f->etag)
        snprintf(d->source_etag, sizeof d->source_etag, "%s", f->etag);
    if (d->source_etag[0])
        s3_request_header(&d->source, "If-Match", d->source_etag);
    d->source.owner = d;
    d->source.read = read_source;
    d->source.done = asked;
    atomic_store(&d->asking, true);
    s3_submit(transfer_pool(f->transfer), &d->source);
    return OP_BEGUN;
}

/* ---- parts ---- */

/* A 200 may hold an error, half a document or nothing, as of any slow operation. */
static enum http_verdict read_copy(struct s3_request *r)
{
    struct s3_part_op *op = r->owner;
    char *etag = NULL;
    struct nc_err why;
    int rc = s3_xml_copy(buf_str(&r->http.text), r->http.text.len, &etag, &why);
    if (rc == 0 && strlen(etag) >= sizeof op->etag)
        rc = nc_err_set(&why, "BadAnswer", "its ETag is too long");
    if (rc == 0)
        memcpy(op->etag, etag, strlen(etag) + 1);
    free(etag);
    if (rc == 0)
        return HTTP_OK;
    bool again = why.retryable || strcmp(why.code, "EmptyResponse") == 0 ||
                 strcmp(why.code, "MalformedXML") == 0;
    nc_err_set(&r->http.err, why.code, "%s: the answer to a copy was %d, but: %s", r->what,
               r->http.status, why.message);
    r->http.err.retryable = why.retryable;
    return again ? HTTP_RETRY : HTTP_FAILED;
}

/* What says that this server, or these keys, can't do it, where reading and writing may well work:
 * a copy needs rights of its own. Should it be something else, that will meet it too. */
static bool is_refusal(const struct http_request *http)
{
    static const char *const codes[] = {
        "NotImplemented", "MethodNotAllowed", "AccessDenied", "InvalidArgument",
        "InvalidRequest", "EmptyResponse",    "MalformedXML",
    };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (strcmp(http->err.code, codes[i]) == 0)
            return true;
    }
    return http->status == 405 || http->status == 501;
}

static void copied(struct s3_request *r)
{
    struct s3_part_op *op = r->owner;
    struct part *part = op->part;
    struct transfer *t = part->file->transfer;
    struct nc_err err;
    char etag[sizeof op->etag]; /* op is released before it is taken over */
    memcpy(etag, op->etag, sizeof etag);
    bool failed = r->http.failed;
    if (failed && is_refusal(&r->http)) {
        nc_err_set(&err, "NoDirectCopy", "%s", r->http.err.message);
    } else if (failed) {
        if (strcmp(r->http.err.code, "PreconditionFailed") == 0)
            changed(r);
        err = r->http.err;
    } else {
        atomic_fetch_add(transfer_bytes_in(t), part->len);
        atomic_fetch_add(transfer_bytes_out(t), part->len);
    }
    transfer_note(t, &r->http);
    transfer_part_stored(part, etag, failed ? &err : NULL);
}

static void add_source(const struct sink_s3 *s, struct s3_request *r, const struct part *part)
{
    const struct file *f = part->file;
    const struct s3_file *d = f->sink_data;
    const char *etag = d && d->source_etag[0] ? d->source_etag : f->etag;
    struct buf key, encoded;
    key_of_source(s, f, &key);
    buf_init(&encoded, URL_MAX);
    buf_putc(&encoded, '/');
    url_encode(&encoded, s->copy_from->bucket, strlen(s->copy_from->bucket), false);
    buf_putc(&encoded, '/');
    url_encode(&encoded, buf_str(&key), key.len, true);
    s3_request_header(r, "x-amz-copy-source", buf_str(&encoded));
    buf_free(&encoded);
    buf_free(&key);
    if (f->parts > 1) {
        char range[64];
        snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, part->offset,
                 part->offset + part->len - 1);
        s3_request_header(r, "x-amz-copy-source-range", range);
    }
    s3_request_header(r, "x-amz-copy-source-if-match", etag);
    s3_request_header(r, "x-amz-copy-if-match", etag); /* as Ceph calls it */
}

static enum op copy(struct sink *self, struct part *part, struct nc_err *err)
{
    struct sink_s3 *s = (struct sink_s3 *)self;
    struct s3_part_op *op = sink_s3_part_op(s, part, err);
    if (!op)
        return OP_FAILED;
    struct s3_request *r = &op->request;
    add_source(s, r, part);
    r->read = read_copy;
    r->done = copied;
    r->http.text_max = SINK_S3_ANSWER_MAX;
    r->http.text_whole = true;
    transfer_bound(part->file->transfer, &r->http);
    r->http.stall_ms = SINK_S3_STALL_MS;
    s3_submit(transfer_pool(part->file->transfer), r);
    return OP_BEGUN;
}

int sink_s3_copies_from(struct sink *sink, struct s3_client *from, const char *prefix)
{
    struct sink_s3 *s = (struct sink_s3 *)sink;
    if (!(s->copy_prefix = strdup(prefix)))
        return -1;
    s->copy_from = from;
    s->base.copy = copy;
    return 0;
}
