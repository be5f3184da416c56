/* Putting an answer together and handing it to MHD, as the faults want it. */
#include "request.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READER_BLOCK (256u * 1024)

void reply_header(struct request *r, const char *name, const char *value)
{
    pairs_set(&r->reply.headers, name, value);
}

void reply_headerf(struct request *r, const char *name, const char *fmt, ...)
{
    char value[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    reply_header(r, name, value);
}

struct buf *reply_text(struct request *r, int status, const char *type)
{
    r->reply.status = status;
    buf_init(&r->reply.text, 256u << 20);
    reply_header(r, "Content-Type", type);
    return &r->reply.text;
}

void reply_empty(struct request *r, int status)
{
    r->reply.status = status;
}

static void source_free(struct source *s)
{
    if (!s)
        return;
    extents_free(&s->extents);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

void reply_free(struct reply *p)
{
    pairs_free(&p->headers);
    buf_free(&p->text);
    source_free(p->source);
    *p = (struct reply){0};
}

void reply_clear(struct request *r)
{
    reply_free(&r->reply);
}

/* --- content with ranges and conditions --------------------------------------------------- */

static bool etag_in(const char *list, const char *etag)
{
    size_t n = strlen(etag);
    while (*list) {
        list += strspn(list, " \t,");
        if (strncmp(list, "W/", 2) == 0)
            list += 2;
        size_t len = strcspn(list, ", \t");
        const char *end = list + len;
        if (len == 1 && *list == '*')
            return true;
        if (len >= 2 && list[0] == '"' && end[-1] == '"') {
            list++;
            len -= 2;
        }
        if (len == n && memcmp(list, etag, n) == 0)
            return true;
        list = end;
    }
    return false;
}

/* 0, 304 or 412, in the order of RFC 9110 section 13.2.2. */
static int check_conditions(const struct request *r, const struct content *c)
{
    const char *match = request_header(r, "if-match");
    const char *none = request_header(r, "if-none-match");
    int64_t t;
    if (match) {
        if (!etag_in(match, c->etag))
            return 412;
    } else if (str_parse_http_date(request_header(r, "if-unmodified-since"), &t) && c->mtime > t) {
        return 412;
    }
    if (none)
        return etag_in(none, c->etag) ? 304 : 0;
    if (str_parse_http_date(request_header(r, "if-modified-since"), &t) && c->mtime <= t)
        return 304;
    return 0;
}

/* "bytes=A-B", "bytes=A-" or "bytes=-N". 1: a range; 0: none (or not one we know); -1: 416. */
static int parse_range(const char *s, uint64_t size, uint64_t *first, uint64_t *last)
{
    if (!s || strncmp(s, "bytes=", 6) != 0 || strchr(s, ','))
        return 0;
    s += 6;
    if (*s == '-') {
        uint64_t n;
        if (!str_u64(s + 1, &n))
            return 0;
        if (n == 0 || size == 0)
            return -1;
        *first = n > size ? 0 : size - n;
        *last = size - 1;
        return 1;
    }
    if (!str_take_u64(&s, first) || *s++ != '-')
        return 0;
    *last = UINT64_MAX;
    if (*s && (!str_u64(s, last) || *last < *first))
        return 0;
    if (*first >= size)
        return -1;
    if (*last >= size)
        *last = size - 1;
    return 1;
}

static struct source *make_source(const struct content *c, uint64_t first, uint64_t size)
{
    struct source *s = str_alloc(sizeof *s);
    *s = (struct source){.fd = -1, .offset = first, .size = size};
    if (c->extents)
        extents_slice(&s->extents, c->extents, first, size);
    else
        s->fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
    return s;
}

static void content_headers(struct request *r, const struct content *c)
{
    char date[32];
    str_http_date(date, c->mtime);
    reply_header(r, "Last-Modified", date);
    reply_header(r, "Accept-Ranges", "bytes");
    if (c->etag) {
        char etag[128];
        snprintf(etag, sizeof etag, "%s", c->etag);
        if (r->fault.etag_change > 0)
            etag[0] = etag[0] == '0' ? '1' : '0';
        reply_headerf(r, "ETag", "\"%s\"", etag);
    }
    if (c->type)
        reply_header(r, "Content-Type", c->type);
    if (r->fault.gzip > 0)
        reply_header(r, "Content-Encoding", "gzip");
}

void reply_content(struct request *r, const struct content *c,
                   void (*refuse)(struct request *r, int status, const char *code))
{
    uint64_t first = 0, last = c->size - 1;
    int status = check_conditions(r, c);
    if (status == 412) {
        refuse(r, 412, "PreconditionFailed");
        return;
    }
    if (status == 304) {
        content_headers(r, c);
        reply_empty(r, 304);
        return;
    }
    const char *range = r->fault.ignore_range > 0 ? NULL : request_header(r, "range");
    int ranged = parse_range(range, c->size, &first, &last);
    if (ranged < 0) {
        refuse(r, 416, "InvalidRange");
        reply_headerf(r, "Content-Range", "bytes */%" PRIu64, c->size);
        return;
    }
    content_headers(r, c);
    r->reply.status = ranged ? 206 : 200;
    r->reply.source = make_source(c, first, ranged ? last - first + 1 : c->size);
    if (ranged) {
        uint64_t off = r->fault.wrong_range > 0 ? 1 : 0;
        reply_headerf(r, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first + off,
                      last + off, c->size);
    }
}

/* --- reading a body for MHD ---------------------------------------------------------------- */

/* Owns what it reads; `request` is only touched while MHD calls read_body, that is, while the
 * request lives. */
struct reader {
    struct request *request;
    struct buf text;
    struct source *source;
    struct extent_cache cache;
    uint64_t size;
};

static ssize_t read_source(struct reader *d, uint64_t pos, char *out, size_t n)
{
    if (!d->source) {
        memcpy(out, d->text.data + pos, n);
        return (ssize_t)n;
    }
    if (d->source->fd >= 0)
        return pread(d->source->fd, out, n, (off_t)(d->source->offset + pos));
    return extents_read(&d->source->extents, &d->cache, pos, out, n);
}

/* Where a fault ends the body, if it does so at or after pos; the end of the body otherwise. */
static uint64_t fault_limit(const struct fault *f, uint64_t size)
{
    const int64_t limits[] = {f->cut, f->cut_chunked, f->stall, f->reset};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (limits[i] >= 0 && (uint64_t)limits[i] < size)
            size = (uint64_t)limits[i];
    }
    return size;
}

static ssize_t end_early(struct request *r, uint64_t pos)
{
    if (r->fault.stall >= 0 && pos == (uint64_t)r->fault.stall)
        request_wait_hangup(r);
    if (r->fault.reset >= 0 && pos == (uint64_t)r->fault.reset)
        request_drop(r);
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

static ssize_t read_body(void *cls, uint64_t pos, char *out, size_t max)
{
    struct reader *d = cls;
    struct request *r = d->request;
    struct throttle *rate = &r->srv->rate[r->side][1];
    uint64_t limit = fault_limit(&r->fault, d->size);
    if (pos >= limit)
        return limit < d->size ? end_early(r, pos) : MHD_CONTENT_READER_END_OF_STREAM;
    size_t n = throttle_piece(&r->slow, throttle_piece(rate, max));
    n = limit - pos < n ? (size_t)(limit - pos) : n;
    throttle_wait(rate, n, &r->srv->stopping);
    throttle_wait(&r->slow, n, &r->srv->stopping);
    ssize_t got = read_source(d, pos, out, n);
    if (got <= 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    uint64_t at = pos + (d->source ? d->source->offset : 0); /* in the file */
    if (r->fault.flip >= 0 && (uint64_t)r->fault.flip >= at &&
        (uint64_t)r->fault.flip < at + (uint64_t)got)
        out[(uint64_t)r->fault.flip - at] ^= 1;
    r->sent = pos + (uint64_t)got;
    return got;
}

static void reader_free(void *cls)
{
    struct reader *d = cls;
    buf_free(&d->text);
    source_free(d->source);
    extent_cache_free(&d->cache);
    free(d);
}

/* A body that must be handed out piece by piece. */
static bool is_paced(const struct request *r)
{
    const struct fault *f = &r->fault;
    return f->cut >= 0 || f->cut_chunked >= 0 || f->stall >= 0 || f->slow > 0 || f->reset >= 0 ||
           f->flip >= 0 || throttle_rate(&r->srv->rate[r->side][1]);
}

static struct MHD_Response *response_by_reader(struct request *r)
{
    struct reader *d = str_alloc(sizeof *d);
    *d = (struct reader){.request = r, .source = r->reply.source, .cache = {.fd = -1}};
    d->text = r->reply.text;
    d->size = d->source ? d->source->size : d->text.len;
    r->reply.source = NULL;
    r->reply.text = (struct buf){0};
    size_t block = d->size < READER_BLOCK ? (size_t)d->size : READER_BLOCK;
    return MHD_create_response_from_callback(r->fault.cut_chunked >= 0 ? MHD_SIZE_UNKNOWN : d->size,
                                             block, read_body, d, reader_free);
}

static void free_source(void *cls)
{
    source_free(cls);
}

/* Straight from the blobs' memory, which the answer keeps. NULL: some of them have none. */
static struct MHD_Response *response_by_memory(struct request *r)
{
    struct source *s = r->reply.source;
    struct MHD_IoVec *v = str_alloc(sizeof *v * s->extents.n);
    bool all = true;
    for (size_t i = 0; i < s->extents.n; i++) {
        const struct extent *x = &s->extents.v[i];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): extents hold references */
        all = all && x->blob->bytes;
        v[i] = (struct MHD_IoVec){x->blob->bytes + x->offset, (size_t)x->size};
    }
    struct MHD_Response *m = NULL;
    if (all)
        m = MHD_create_response_from_iovec(v, (unsigned)s->extents.n, free_source, s);
    free(v);
    if (!m)
        return NULL;
    r->sent = s->size;
    r->reply.source = NULL;
    return m;
}

static struct MHD_Response *response_by_file(struct request *r)
{
    struct source *s = r->reply.source;
    int fd = s->fd;
    uint64_t offset = s->offset, size = s->size;
    s->fd = -1;
    if (fd < 0) {
        offset = s->extents.v[0].offset;
        fd = blob_open(s->extents.v[0].blob);
    }
    r->sent = size;
    return fd < 0 ? NULL : MHD_create_response_from_fd_at_offset64(size, fd, offset);
}

/* sendfile has the pages copied once, by the client; it can't encrypt, and it takes one file. */
static struct MHD_Response *response_by_source(struct request *r)
{
    const struct source *s = r->reply.source;
    const struct blob *only = s->extents.n == 1 ? s->extents.v[0].blob : NULL;
    bool one_file = s->fd >= 0 || (only && (only->fd >= 0 || !only->bytes));
    if (one_file && !r->srv->opt.tls_cert)
        return response_by_file(r);
    struct MHD_Response *m = s->fd < 0 ? response_by_memory(r) : NULL;
    return m ? m : response_by_reader(r);
}

static struct MHD_Response *make_response(struct request *r)
{
    struct buf *text = &r->reply.text;
    if (r->fault.half_xml > 0 && !r->reply.source)
        text->len /= 2;
    const struct source *s = r->reply.source;
    bool empty = s ? s->size == 0 : text->len == 0;
    if (!empty && is_paced(r))
        return response_by_reader(r);
    if (!empty && s)
        return response_by_source(r);
    r->sent = text->len;
    void *data = empty ? NULL : text->data;
    struct MHD_Response *m = MHD_create_response_from_buffer(
        text->len, data, empty ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
    if (m && !empty)
        *text = (struct buf){0};
    return m;
}

enum MHD_Result reply_send(struct request *r)
{
    char date[32];
    str_http_date(date, request_now(r));
    if (request_is_head(r) && r->reply.status >= 400)
        buf_clear(&r->reply.text);
    struct MHD_Response *m = make_response(r);
    if (!m)
        return MHD_NO;
    if (request_is_head(r))
        r->sent = 0;
    MHD_add_response_header(m, "Date", date);
    if (r->side == SIDE_S3) {
        char id[24];
        snprintf(id, sizeof id, "%016" PRIX64, r->id);
        MHD_add_response_header(m, "x-amz-request-id", id);
    }
    for (size_t i = 0; i < r->reply.headers.n; i++)
        MHD_add_response_header(m, r->reply.headers.v[i].name, r->reply.headers.v[i].value);
    enum MHD_Result rc = MHD_queue_response(r->conn, (unsigned)r->reply.status, m);
    MHD_destroy_response(m);
    return rc;
}

/* --- S3's errors ---------------------------------------------------------------------------- */

void reply_s3_error(struct request *r, int status, const char *code, const char *message,
                    const char *detail)
{
    reply_clear(r);
    struct buf *out = reply_text(r, status, "application/xml");
    buf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>");
    str_xml(out, code);
    buf_puts(out, "</Code><Message>");
    str_xml(out, message);
    buf_puts(out, "</Message>");
    buf_puts(out, detail);
    buf_puts(out, "<Resource>/");
    str_xml(out, r->path ? r->path : "");
    buf_printf(out, "</Resource><RequestId>%016" PRIX64 "</RequestId></Error>\n", r->id);
}
