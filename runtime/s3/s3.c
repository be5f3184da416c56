#include "s3/s3.h"

#include "base/clock.h"
#include "s3/s3_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADERS_MAX = 24, KEYS_WAIT_MS = 45 * 1000, PIECE = 256 * 1024 };

/* ---- before an attempt ---- */

/* Address without the query, as a parsed URL: the endpoint's, or where a redirect sent us. */
static int target(struct s3_request *r, struct url *to)
{
    const struct s3_client *c = r->client;
    struct buf text;
    buf_init(&text, URL_MAX);
    int rc = 0;
    if (r->redirect) {
        buf_puts(&text, r->redirect);
    } else {
        buf_puts(&text, c->endpoint.tls ? "https://" : "http://");
        if (c->virtual_host && *c->bucket)
            buf_printf(&text, "%s.", c->bucket);
        buf_puts(&text, c->endpoint.authority);
        buf_puts(&text, c->endpoint.path);
        if (!c->virtual_host && *c->bucket) {
            buf_putc(&text, '/');
            url_encode(&text, c->bucket, strlen(c->bucket), false);
        }
        if (*r->key || c->virtual_host || !*c->bucket)
            buf_putc(&text, '/');
        url_encode(&text, r->key, strlen(r->key), true);
        if (r->query.len)
            buf_printf(&text, "?%s", buf_str(&r->query));
    }
    rc = text.failed || r->query.failed
             ? nc_err_set(&r->http.err, "KeyTooLongError", "%s: the key is too long", r->what)
             : url_parse(buf_str(&text), to, &r->http.err);
    buf_free(&text);
    return rc;
}

/* The caller's header lines as pairs for the signature; cuts the copy in `lines` up. */
static size_t split_headers(char *lines, struct sign_header *out)
{
    size_t n = 0;
    while (lines && *lines && n < HEADERS_MAX) {
        char *end = strchr(lines, '\n'), *colon = strchr(lines, ':');
        *end = *colon = '\0';
        out[n++] = (struct sign_header){lines, colon + 2};
        lines = end + 1;
    }
    return n;
}

static int sign(struct s3_request *r, const struct url *to)
{
    struct s3_client *c = r->client;
    struct http_request *http = &r->http;
    struct sign_header headers[HEADERS_MAX];
    char date[TEXT_AMZ_DATE_SIZE], authorization[SIGN_AUTHORIZATION_MAX];
    char *lines = r->headers.len ? strdup(buf_str(&r->headers)) : NULL;
    if (r->headers.len && !lines)
        return nc_err_set(&http->err, "ENOMEM", "%s: out of memory", r->what);
    struct sign_request q = {
        .method = http->method,
        .host = to->authority,
        .path = to->path,
        .query = to->query,
        .headers = headers,
        .header_count = split_headers(lines, headers),
        .payload_hash = r->payload_hash,
    };
    pthread_mutex_lock(&c->lock);
    q.time = clock_wall_s() + c->clock_offset_s;
    struct sign_keys keys = {c->access, c->secret, c->token, c->region, "s3"};
    int rc = sign_v4(&c->signer, &keys, &q, date, authorization, &http->err);
    r->keys_generation = c->keys_generation;
    if (rc == 0 && c->token)
        http_add_header(http, "x-amz-security-token", c->token);
    pthread_mutex_unlock(&c->lock);
    free(lines);
    if (rc)
        return -1;
    http_add_header(http, "x-amz-date", date);
    http_add_header(http, "x-amz-content-sha256", r->payload_hash);
    http_add_header(http, "Authorization", authorization);
    return 0;
}

struct body_hash {
    bool wants_sha256, wants_md5;
    struct sha256 sha256;
    struct md5 md5;
};

static void hash_piece(struct body_hash *h, const void *data, size_t len)
{
    if (h->wants_sha256)
        sha256_update(&h->sha256, data, len);
    if (h->wants_md5)
        md5_update(&h->md5, data, len);
}

/* A body that is handed out in pieces is read here once more than it is sent. */
static int hash_given(struct body_hash *h, struct http_request *http)
{
    char *piece = malloc(PIECE);
    int rc = piece ? 0 : nc_err_set(&http->err, "ENOMEM", "%s: out of memory", http->what);
    for (size_t at = 0, len; rc == 0 && at < http->body_len; at += len) {
        len = http->body_len - at < PIECE ? http->body_len - at : PIECE;
        rc = http->give(http, at, piece, len);
        if (rc == 0)
            hash_piece(h, piece, len);
    }
    free(piece);
    return rc;
}

static int hash_body(struct s3_request *r, struct body_hash *h)
{
    struct http_request *http = &r->http;
    int rc = 0;
    if ((h->wants_sha256 && sha256_init(&h->sha256)) || (h->wants_md5 && md5_init(&h->md5)))
        rc = nc_err_set(&http->err, "ENOMEM", "%s: out of memory", r->what);
    else if (http->give)
        rc = hash_given(h, http);
    else
        hash_piece(h, http->body, http->body_len);
    if (rc == 0 && h->wants_sha256)
        sha256_final_hex(&h->sha256, r->payload_hash);
    if (rc == 0 && h->wants_md5)
        md5_final_base64(&h->md5, r->md5);
    sha256_free(&h->sha256);
    md5_free(&h->md5);
    return rc;
}

/* Once a request: the body does not change between attempts. */
static int hash_payload(struct s3_request *r, bool tls)
{
    struct body_hash h = {.wants_md5 = r->client->content_md5 && r->http.has_body && !r->md5[0]};
    if (!r->payload_hash[0]) {
        if (tls)
            strcpy(r->payload_hash, SIGN_UNSIGNED);
        else if (!r->http.body_len)
            strcpy(r->payload_hash, SIGN_EMPTY);
        else
            h.wants_sha256 = true;
    }
    return h.wants_sha256 || h.wants_md5 ? hash_body(r, &h) : 0;
}

static int prepare(struct http_request *http)
{
    struct s3_request *r = (struct s3_request *)http;
    struct url to = {0};
    http_request_reset(http);
    int rc = target(r, &to);
    if (rc == 0)
        rc = url_format(&to, &http->url);
    if (rc == 0 && !r->bare) {
        rc = hash_payload(r, to.tls);
        if (rc == 0)
            rc = sign(r, &to);
    }
    if (rc == 0) {
        snprintf(r->host, sizeof r->host, "%s", to.authority);
        buf_add(&http->headers, buf_str(&r->headers), r->headers.len);
        http_add_header(http, "User-Agent", "ncrun/" NC_VERSION);
        http_add_header(http, "Accept-Encoding", "identity");
        if (r->md5[0])
            http_add_header(http, "Content-MD5", r->md5);
        if (http->has_body && !strstr(buf_str(&r->headers), "Content-Type:"))
            http_add_header(http, "Content-Type", "application/octet-stream");
    }
    url_free(&to);
    return rc;
}

/* ---- after an attempt ---- */

static const struct hint {
    const char *code;
    const char *text;
} hints[] = {
    {"InternalError", "the server had a fault"},
    {"SlowDown", "the server asks for fewer requests"},
    {"ServiceUnavailable", "the server is not ready"},
    {"RequestTimeout", "the server waited too long for the body"},
    {"IncompleteBody", "the server got only a part of the body"},
    {"BadDigest", "the body was changed on its way"},
    {"XAmzContentSHA256Mismatch", "the body was changed on its way"},
    {"OperationAborted", "another operation on it was under way"},
    {"SignatureDoesNotMatch",
     "check AWS_SECRET_ACCESS_KEY (and that no proxy rewrites the request)"},
    {"InvalidAccessKeyId",
     "the server does not know this access key: check AWS_ACCESS_KEY_ID and the endpoint; after a "
     "rotation, apply the Job again"},
    {"InvalidToken", "the session token is not valid: check AWS_SESSION_TOKEN"},
    {"ExpiredToken", "the credentials have expired: renew them and apply the Job again"},
    {"TokenRefreshRequired", "the credentials have expired: renew them and apply the Job again"},
    {"RequestTimeTooSkewed", "this machine's clock is wrong"},
    {"AccessDenied", "these credentials may not do this: check the bucket's policy"},
    {"AllAccessDisabled", "the bucket is closed"},
    {"NoSuchBucket", "no such bucket there: check NC_BUCKET and the endpoint"},
    {"NoSuchKey", "there is no such object"},
    {"NoSuchUpload", "there is no such multipart upload"},
    {"NotFound", "there is no such object or bucket"},
    {"PreconditionFailed", "the object is not in the state that was asked for"},
    {"QuotaExceeded", "the bucket is full"},
    {"PermanentRedirect", "the bucket lives in another region: set AWS_REGION"},
    {"AuthorizationHeaderMalformed", "the region does not fit: set AWS_REGION"},
};

static const struct hint *find_hint(const char *code)
{
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++) {
        if (strcmp(hints[i].code, code) == 0)
            return &hints[i];
    }
    return NULL;
}

/* The code that stands for a status that came without a body. */
static void code_of_status(int status, char *out, size_t size)
{
    switch (status) {
    case 301:
        snprintf(out, size, "PermanentRedirect");
        break;
    case 304:
        snprintf(out, size, "NotModified");
        break;
    case 401:
    case 403:
        snprintf(out, size, "AccessDenied");
        break;
    case 404:
        snprintf(out, size, "NotFound");
        break;
    case 412:
        snprintf(out, size, "PreconditionFailed");
        break;
    case 503:
        snprintf(out, size, "ServiceUnavailable");
        break;
    default:
        snprintf(out, size, "Http%d", status);
    }
}

/* Fills http.err from the code and the server's words. */
static enum http_verdict describe(struct s3_request *r, const struct s3_error *e)
{
    struct http_request *http = &r->http;
    const struct hint *hint = find_hint(e->code);
    const char *said = hint ? "" : e->message;
    nc_err_set(&http->err, e->code, "%s: %s answered %d %s%s%s%s%s", r->what, r->host, http->status,
               e->code, *said ? ", " : "", said, hint ? ": " : "", hint ? hint->text : "");
    http->err.status = http->status;
    http->err.retryable = s3_code_retryable(e->code) || retry_status(http->status);
    return http->err.retryable ? HTTP_RETRY : HTTP_FAILED;
}

static enum http_verdict correct_clock(struct s3_request *r)
{
    char date[64];
    int64_t server = 0;
    if (r->skew_corrected || !http_header(&r->http, "date", date, sizeof date) ||
        text_http_date(date, &server))
        return HTTP_FAILED;
    r->skew_corrected = true;
    pthread_mutex_lock(&r->client->lock);
    r->client->clock_offset_s = server - clock_wall_s();
    pthread_mutex_unlock(&r->client->lock);
    return HTTP_AGAIN;
}

static enum http_verdict correct_region(struct s3_request *r, const struct s3_error *e)
{
    struct s3_client *c = r->client;
    char header[64];
    const char *region = *e->region
                             ? e->region
                             : http_header(&r->http, "x-amz-bucket-region", header, sizeof header);
    enum http_verdict verdict = HTTP_FAILED;
    if (!region)
        return verdict;
    pthread_mutex_lock(&c->lock);
    char *copy = NULL;
    if (strcmp(c->region, region) == 0) {
        /* Another request has corrected it; this one was signed before. */
        verdict = c->region_corrected ? HTTP_AGAIN : HTTP_FAILED;
    } else if (!c->region_corrected && (copy = strdup(region))) {
        free(c->region);
        c->region = copy;
        c->region_corrected = true;
        verdict = HTTP_AGAIN;
    }
    pthread_mutex_unlock(&c->lock);
    return verdict;
}

/* Keys that were renewed since this attempt are worth another one; those that can be are worth a
 * wait. Keys that have never been good for anything are wrong, not out of date. */
static enum http_verdict await_keys(struct s3_request *r, bool expired)
{
    struct s3_client *c = r->client;
    uint64_t now = clock_ms();
    pthread_mutex_lock(&c->lock);
    bool newer = c->keys_generation != r->keys_generation;
    if (!newer) {
        c->keys_expired = true;
        if (!c->refused_ms)
            c->refused_ms = now;
    }
    bool wait = c->renewable && (expired || c->keys_worked) && now - c->refused_ms < KEYS_WAIT_MS;
    pthread_mutex_unlock(&c->lock);
    return newer ? HTTP_AGAIN : wait ? HTTP_LATER : HTTP_FAILED;
}

static void granted(struct s3_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->keys_worked = true;
    c->refused_ms = 0;
    pthread_mutex_unlock(&c->lock);
}

/* Keys that a server has refused are not used again while others may come. */
static bool hold(struct http_request *http)
{
    struct s3_client *c = ((struct s3_request *)http)->client;
    pthread_mutex_lock(&c->lock);
    bool wait = c->renewable && c->keys_expired && c->keys_worked &&
                clock_ms() - c->refused_ms < KEYS_WAIT_MS;
    pthread_mutex_unlock(&c->lock);
    return wait;
}

static bool same_domain(const struct url *a, const struct url *b)
{
    const char *x = strchr(a->host, '.'), *y = strchr(b->host, '.');
    return strcmp(a->host, b->host) == 0 || (x && y && strchr(x + 1, '.') && text_ieq(x, y)) ||
           (text_ends(a->host, ".amazonaws.com") && text_ends(b->host, ".amazonaws.com"));
}

/* A redirect with a Location: signed again for the same service, bare for anybody else. */
static enum http_verdict follow(struct s3_request *r)
{
    char location[URL_MAX];
    struct url base = {0}, to = {0};
    struct buf text;
    struct nc_err ignored;
    enum http_verdict verdict = HTTP_FAILED;
    buf_init(&text, URL_MAX);
    if (http_header(&r->http, "location", location, sizeof location) &&
        url_parse(buf_str(&r->http.url), &base, &ignored) == 0 &&
        url_resolve(&base, location, &to, &ignored) == 0 && url_format(&to, &text) == 0) {
        bool ours = same_domain(&base, &to) && (to.tls || !base.tls);
        if (ours || strcmp(r->http.method, "GET") == 0) {
            free(r->redirect);
            r->redirect = buf_take(&text);
            r->bare = !ours;
            verdict = HTTP_AGAIN;
        }
    }
    url_free(&base);
    url_free(&to);
    buf_free(&text);
    return verdict;
}

static enum http_verdict recover(struct s3_request *r, const struct s3_error *e)
{
    const char *code = e->code;
    int status = r->http.status;
    if (strcmp(code, "RequestTimeTooSkewed") == 0)
        return correct_clock(r);
    if (strcmp(code, "ExpiredToken") == 0 || strcmp(code, "TokenRefreshRequired") == 0)
        return await_keys(r, true);
    if (strcmp(code, "InvalidAccessKeyId") == 0 || strcmp(code, "InvalidToken") == 0 ||
        strcmp(code, "SignatureDoesNotMatch") == 0)
        return await_keys(r, false);
    if (strcmp(code, "AuthorizationHeaderMalformed") == 0 || status == 301) {
        enum http_verdict verdict = correct_region(r, e);
        if (verdict == HTTP_AGAIN)
            return verdict;
    }
    if (status == 301 || status == 302 || status == 307 || status == 308)
        return follow(r);
    return HTTP_FAILED;
}

static enum http_verdict judge(struct http_request *http)
{
    struct s3_request *r = (struct s3_request *)http;
    if (http->status >= 200 && http->status < 300) {
        granted(r->client);
        return r->read ? r->read(r) : HTTP_OK;
    }
    struct s3_error e = {0};
    struct nc_err ignored;
    if (!http->text.len || s3_xml_error(http->text.data, http->text.len, &e, &ignored) || !*e.code)
        code_of_status(http->status, e.code, sizeof e.code);
    enum http_verdict plain = describe(r, &e);
    return plain == HTTP_RETRY ? plain : recover(r, &e);
}

static void done(struct http_request *http)
{
    struct s3_request *r = (struct s3_request *)http;
    r->done(r);
}

static const struct http_hooks hooks = {hold, prepare, judge, done};

int s3_request_init(struct s3_request *r, struct s3_client *c, const char *method, const char *key,
                    struct nc_err *err)
{
    *r = (struct s3_request){.client = c};
    http_request_init(&r->http, &hooks);
    buf_init(&r->query, 8 * 1024);
    buf_init(&r->headers, 16 * 1024);
    r->key = strdup(key);
    if (!r->key)
        return nc_err_set(err, "ENOMEM", "%s s3://%s: out of memory", method, c->bucket);
    snprintf(r->what, sizeof r->what, "%s s3://%s%s%s", method, c->bucket, *key ? "/" : "", key);
    r->http.method = method;
    r->http.what = r->what;
    r->http.gate = &c->gate;
    r->http.ca_file = c->ca_file;
    r->http.attempts_max = c->attempts_max;
    return 0;
}

void s3_request_free(struct s3_request *r)
{
    http_request_free(&r->http);
    buf_free(&r->query);
    buf_free(&r->headers);
    free(r->key);
    free(r->redirect);
    r->key = r->redirect = NULL;
}

void s3_request_header(struct s3_request *r, const char *name, const char *value)
{
    buf_printf(&r->headers, "%s: %s\n", name, value);
}

void s3_submit(struct http_pool *pool, struct s3_request *r)
{
    /* Objects come from where any of many servers can read them; a listing may well take long. */
    r->http.cut_late = strcmp(r->http.method, "GET") == 0 && *r->key && !r->query.len;
    http_submit(pool, &r->http);
}

const char *s3_etag(const struct s3_request *r, char *out, size_t size)
{
    return http_header(&r->http, "etag", out, size);
}
