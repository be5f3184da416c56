#include "net/http_easy.h"

#include "base/clock.h"
#include "net/trust.h"

#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_TIMEOUT_MS = 5000,
    STALL_MS = 30 * 1000,
    STALL_LEAST_BYTES = 1024,
    TEXT_MAX = 64 * 1024,
    IDLE_CONNECTION_S = 4, /* servers close idle ones after about 5 s */
    DOWN_BUFFER = 512 * 1024,
    UP_BUFFER = 512 * 1024,
    LATE_CUTS_MAX = 2,
    UP_BUFFER_FROM = 1024 * 1024,
    SMALL_UP_BUFFER = 64 * 1024, /* for bodies smaller than this */
    LEAST_BUFFER = 16 * 1024,    /* that libcurl takes */
    HEAD_ROOM = 2 * 1024,        /* for an answer's head before a small body */
    LINES_MAX = 80 * 1024,
};

/* Of TLS 1.3, the fastest first: AES with keys of 256 bits takes 14 rounds where 128 take 10. */
static const char CIPHERS[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/* libcurl sends a header without a value only when it ends in a semicolon. */
static int copy_headers(struct buf *out, const struct buf *headers)
{
    const char *line = buf_str(headers);
    buf_clear(out);
    buf_add(out, "Expect:", sizeof "Expect:"); /* none: servers may take long to answer it */
    while (*line) {
        const char *end = strchr(line, '\n');
        size_t n = (size_t)(end - line);
        bool bare = n >= 2 && end[-2] == ':' && end[-1] == ' ';
        buf_add(out, line, bare ? n - 2 : n);
        buf_add(out, bare ? ";" : "", bare ? 2 : 1);
        line = end + 1;
    }
    return out->failed ? -1 : 0;
}

/* The list is built in place of curl_slist_append, which allocates twice for each line. */
static int set_headers(struct http_transfer *t, const struct http_request *r)
{
    if (copy_headers(&t->lines, &r->headers))
        return -1;
    size_t n = 0;
    for (size_t at = 0; at < t->lines.len; at += strlen(t->lines.data + at) + 1)
        n++;
    if (n > t->list_size) {
        struct curl_slist *list = realloc(t->list, n * sizeof *list);
        if (!list)
            return -1;
        t->list = list;
        t->list_size = n;
    }
    char *line = t->lines.data;
    for (size_t i = 0; i < n; i++) {
        t->list[i] = (struct curl_slist){line, i + 1 < n ? &t->list[i + 1] : NULL};
        line += strlen(line) + 1;
    }
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->list);
    return 0;
}

/* What is the same for all requests. */
static void set_constants(struct http_transfer *t)
{
    CURL *easy = t->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->curl_text);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_TLS13_CIPHERS, CIPHERS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)IDLE_CONNECTION_S);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, http_on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, http_on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, http_on_read);
    curl_easy_setopt(easy, CURLOPT_READDATA, t);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, http_on_seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, t);
}

static void set_method(CURL *easy, const struct http_request *r)
{
    bool head = strcmp(r->method, "HEAD") == 0;
    if (head)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    else if (r->has_body)
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    if (!head && strcmp(r->method, r->has_body ? "PUT" : "GET") != 0)
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, r->method);
}

/* At each new TLS connection of a request that names no bundle. */
static CURLcode on_tls(CURL *easy, void *ssl_ctx, void *user)
{
    struct http_transfer *t = user;
    (void)easy;
    X509_STORE *store = trust_store(&t->err);
    if (!store)
        return CURLE_SSL_CACERT_BADFILE;
    SSL_CTX_set1_cert_store(ssl_ctx, store);
    return CURLE_OK;
}

/* A file by name, which libcurl reads once for each worker as long as no folder is set; it also
 * keeps connections of different bundles apart. Otherwise on_tls brings the store. */
static int set_trust(struct http_transfer *t, const char *ca_file)
{
    CURL *easy = t->easy;
    curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    if (ca_file)
        return curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file) ? -1 : 0;
    curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_tls);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, t);
    return 0;
}

static bool same_file(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* A transfer mostly does again what it did before, with another address: what stays is kept. */
static int set_kind(struct http_transfer *t, const struct http_request *r)
{
    const char *ca_file = r->ca_file;
    if (t->method && same_file(t->ca_file, ca_file) && t->uploads == r->has_body &&
        strcmp(t->method, r->method) == 0)
        return 0;
    t->method = NULL;
    free(t->ca_file);
    t->ca_file = ca_file ? strdup(ca_file) : NULL;
    curl_easy_reset(t->easy);
    set_constants(t);
    set_method(t->easy, r);
    if (set_trust(t, ca_file) || (ca_file && !t->ca_file))
        return -1;
    t->method = r->method;
    t->uploads = r->has_body;
    return 0;
}

/* Large ones for large bodies; small ones stay in the processor's cache. */
static void set_buffers(CURL *easy, const struct http_request *r)
{
    size_t down = r->dest || r->take ? r->dest_len + HEAD_ROOM : TEXT_MAX;
    if (down > DOWN_BUFFER)
        down = DOWN_BUFFER;
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)(down < LEAST_BUFFER ? LEAST_BUFFER : down));
    if (!r->has_body)
        return;
    curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_len);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE,
                     r->body_len >= UP_BUFFER_FROM ? (long)UP_BUFFER
                     : r->body_len <= LEAST_BUFFER ? (long)LEAST_BUFFER
                                                   : (long)SMALL_UP_BUFFER);
}

int http_easy_init(struct http_transfer *t, CURLSH *names)
{
    *t = (struct http_transfer){.easy = curl_easy_init()};
    buf_init(&t->lines, LINES_MAX);
    return t->easy && curl_easy_setopt(t->easy, CURLOPT_SHARE, names) == CURLE_OK ? 0 : -1;
}

void http_easy_free(struct http_transfer *t)
{
    curl_easy_cleanup(t->easy);
    buf_free(&t->lines);
    free(t->list);
    free(t->ca_file);
}

int http_easy_begin(struct http_transfer *t, struct http_request *r)
{
    t->r = r;
    t->err = (struct nc_err){0};
    t->sent = t->booked = 0;
    t->resume_us = 0;
    t->body_started = t->expected = t->hook_failed = t->answered = t->late = false;
    t->begun_ms = t->window_ms = clock_ms();
    t->window_bytes = 0;
    t->curl_text[0] = '\0';
    buf_clear(&r->head);
    buf_clear(&r->text);
    r->head.max = TEXT_MAX;
    r->text.max = r->text_max ? r->text_max : TEXT_MAX;
    r->status = 0;
    r->received = 0;
    r->failed = r->wrong = false;
    r->err = (struct nc_err){0};
    if (r->url.failed || r->headers.failed || !r->url.len)
        return nc_err_set(&r->err, "Usage", "%s: the address or a header is too long", r->what);
    int rc = set_kind(t, r);
    set_buffers(t->easy, r);
    curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, r->fresh || r->once ? 1L : 0L);
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)r->total_ms);
    if (rc || set_headers(t, r) || curl_easy_setopt(t->easy, CURLOPT_URL, buf_str(&r->url)))
        return nc_err_set(&r->err, "ENOMEM", "%s: out of memory", r->what);
    return 0;
}

static const struct curl_kind {
    CURLcode code;
    const char *name;
    bool retryable;
    const char *hint;
} curl_kinds[] = {
    {CURLE_COULDNT_RESOLVE_HOST, "DnsFailed", true, "check the name and the network"},
    {CURLE_COULDNT_RESOLVE_PROXY, "DnsFailed", true, "check the name and the network"},
    {CURLE_COULDNT_CONNECT, "ConnectFailed", true, "check the address, and that the server runs"},
    {CURLE_OPERATION_TIMEDOUT, "Timeout", true, "check the network"},
    {CURLE_SSL_CONNECT_ERROR, "TlsFailed", true,
     "check that the server speaks TLS 1.2 or newer there"},
    {CURLE_PEER_FAILED_VERIFICATION, "TlsFailed", false,
     "set AWS_CA_BUNDLE or SSL_CERT_FILE to the CA that signed it"},
    {CURLE_SSL_CACERT_BADFILE, "TlsFailed", false,
     "set AWS_CA_BUNDLE or SSL_CERT_FILE to the CA that signed it"},
    {CURLE_SSL_ISSUER_ERROR, "TlsFailed", false,
     "set AWS_CA_BUNDLE or SSL_CERT_FILE to the CA that signed it"},
    {CURLE_URL_MALFORMAT, "Usage", false, "check the address"},
    {CURLE_UNSUPPORTED_PROTOCOL, "NetworkError",
     true, /* "HTTP/0.9": other schemes never get here */
     "what answers there speaks no HTTP: check the address"},
    {CURLE_OUT_OF_MEMORY, "ENOMEM", false, "give it more memory"},
    {CURLE_PARTIAL_FILE, "ShortBody", true, "the server cut the answer short"},
};

static void network_failure(struct http_transfer *t, CURLcode code)
{
    struct http_request *r = t->r;
    struct curl_kind kind = {code, "NetworkError", true, "the connection broke"};
    for (size_t i = 0; i < sizeof curl_kinds / sizeof curl_kinds[0]; i++) {
        if (curl_kinds[i].code == code)
            kind = curl_kinds[i];
    }
    nc_err_set(&r->err, kind.name, "%s: %s: %s", r->what,
               t->curl_text[0] ? t->curl_text : curl_easy_strerror(code), kind.hint);
    r->err.retryable = kind.retryable;
}

/* libcurl counts the dead connections that a handle has met and replaced, and gives up at the sixth
 * of its life, unless it is set up anew. What ended in the middle does not leave its state, either.
 */
static void forget_connections(struct http_transfer *t, CURLcode code)
{
    long made = 0;
    curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &made);
    if (made || code != CURLE_OK)
        t->method = NULL;
}

void http_easy_end(struct http_transfer *t, CURLcode code)
{
    struct http_request *r = t->r;
    forget_connections(t, code);
    if (code == CURLE_OK && !t->body_started)
        http_check_head(t);
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    r->status = (int)status;
    /* Who took the connection may answer next time. */
    curl_off_t sent_us = 0;
    curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
    r->answered |= status != 0 || sent_us > 0;
    if (t->hook_failed) {
        r->err.retryable = false;
    } else if (t->err.code[0]) {
        nc_err_set(&r->err, t->err.code, "%s: %s", r->what, t->err.message);
        r->err.retryable = t->err.retryable;
    } else if (code != CURLE_OK) {
        network_failure(t, code);
    } else if (t->expected && r->received != r->dest_len) {
        nc_err_set(&r->err, "ShortBody", "%s: the body ended after %zu of %zu bytes", r->what,
                   r->received, r->dest_len);
        r->err.retryable = r->wrong = true;
    }
    r->failed = r->err.code[0] != '\0';
    if (r->failed && !t->hook_failed)
        r->err.status = r->status;
}

void http_easy_undo(struct http_transfer *t)
{
    size_t counted = t->sent + (t->expected ? t->r->received : 0);
    if (t->r->moved)
        atomic_fetch_sub_explicit(t->r->moved, counted, memory_order_relaxed);
}

void http_easy_restart_clock(struct http_transfer *t, uint64_t now_ms)
{
    t->window_ms = now_ms;
}

bool http_easy_stalled(struct http_transfer *t, uint64_t now_ms)
{
    if (t->resume_us)
        return false;
    uint32_t limit = t->r->stall_ms ? t->r->stall_ms : STALL_MS;
    curl_off_t down = 0, up = 0;
    curl_easy_getinfo(t->easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
    curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &up);
    curl_off_t moved = down + up - t->window_bytes;
    if (moved >= STALL_LEAST_BYTES || moved < 0) { /* less: libcurl began again by itself */
        t->window_bytes = down + up;
        t->window_ms = now_ms;
    }
    if (now_ms - t->window_ms < limit)
        return false;
    nc_err_set(&t->err, "Timeout", "less than 1 KiB came or went in %u s",
               (unsigned)(limit / 1000));
    t->err.retryable = true;
    return true;
}

bool http_easy_late(struct http_transfer *t, uint64_t now_ms)
{
    struct http_request *r = t->r;
    if (!r->cut_late || !r->gate || t->answered || r->late_cuts >= LATE_CUTS_MAX)
        return false;
    uint64_t limit = latency_limit_us(&r->gate->first_byte);
    curl_off_t sent_us = 0;
    curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
    uint64_t waited = (now_ms - t->begun_ms) * 1000;
    if (!limit || sent_us <= 0 || waited < (uint64_t)sent_us + limit)
        return false;
    latency_add(&r->gate->first_byte, waited - (uint64_t)sent_us);
    r->late_cuts++;
    t->late = true;
    return true;
}
