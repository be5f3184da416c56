#include "sigv4.h"

#include "digest.h"

#include <ctype.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ALGORITHM "AWS4-HMAC-SHA256"
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* A request's claim, from its header or its query; the strings are owned. */
struct claim {
    bool presigned;
    char *credential; /* KEY/20130524/us-east-1/s3/aws4_request */
    char *key, *day, *region, *service, *terminator;
    char *signed_headers;
    char *signature;
    char *date; /* x-amz-date, in the long form */
    char *token;
    uint64_t expires_s;
};

static int refuse(struct sigv4_refusal *no, int status, const char *code, const char *message)
{
    no->status = status;
    no->code = code;
    snprintf(no->message, sizeof no->message, "%s", message);
    return -1;
}

static void detail(struct sigv4_refusal *no, const char *element, const char *value)
{
    buf_printf(&no->detail, "<%s>", element);
    str_xml(&no->detail, value);
    buf_printf(&no->detail, "</%s>", element);
}

static void claim_free(struct claim *c)
{
    free(c->credential);
    free(c->key);
    free(c->signed_headers);
    free(c->signature);
    free(c->date);
    free(c->token);
}

void sigv4_sha256_hex(const void *data, size_t n, char out[65])
{
    struct digest d;
    digest_init(&d, DIGEST_SHA256);
    digest_add(&d, data, n);
    digest_hex(&d, out);
}

bool sigv4_same(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && CRYPTO_memcmp(a, b, strlen(a)) == 0;
}

/* RFC 2104, over our own digest: OpenSSL's HMAC looks its algorithm up each time. */
static void hmac(const void *key, size_t n, const char *text, unsigned char out[32])
{
    unsigned char block[64] = {0}, inner[32];
    struct digest d;
    digest_init(&d, DIGEST_SHA256);
    if (n > sizeof block) {
        digest_add(&d, key, n);
        digest_end(&d, block);
        digest_init(&d, DIGEST_SHA256);
    } else {
        memcpy(block, key, n);
    }
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36;
    digest_add(&d, block, sizeof block);
    digest_add(&d, text, strlen(text));
    digest_end(&d, inner);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36 ^ 0x5c;
    digest_init(&d, DIGEST_SHA256);
    digest_add(&d, block, sizeof block);
    digest_add(&d, inner, sizeof inner);
    digest_end(&d, out);
}

/* The last signing key and what it was made of: it is the same all day for all requests of one
 * client, and four of the five HMACs that a request costs. */
static struct {
    pthread_mutex_t lock;
    char made_of[512];
    unsigned char key[32];
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void signing_key(const char *secret, const struct claim *c, unsigned char out[32])
{
    char first[256], made_of[sizeof last.made_of];
    snprintf(first, sizeof first, "AWS4%s", secret);
    snprintf(made_of, sizeof made_of, "%s/%s/%s/%s", first, c->day, c->region, c->service);
    pthread_mutex_lock(&last.lock);
    if (strcmp(last.made_of, made_of) != 0) {
        hmac(first, strlen(first), c->day, last.key);
        hmac(last.key, 32, c->region, last.key);
        hmac(last.key, 32, c->service, last.key);
        hmac(last.key, 32, "aws4_request", last.key);
        memcpy(last.made_of, made_of, sizeof made_of);
    }
    memcpy(out, last.key, sizeof last.key);
    pthread_mutex_unlock(&last.lock);
}

/* --- the claim --------------------------------------------------------------------------- */

/* The value of `name=` in "AWS4-HMAC-SHA256 Credential=.., SignedHeaders=.., Signature=..". */
static char *field(const char *header, const char *name)
{
    size_t n = strlen(name);
    const char *p = header + strlen(ALGORITHM);
    while (*p) {
        p += strspn(p, " ,\t");
        size_t len = strcspn(p, ",");
        if (strncmp(p, name, n) == 0 && p[n] == '=') {
            while (len > n + 1 && p[len - 1] == ' ')
                len--;
            return strndup(p + n + 1, len - n - 1);
        }
        p += len;
    }
    return NULL;
}

static bool split_credential(struct claim *c)
{
    /* From the right: an access key may hold slashes. */
    c->key = str_copy(c->credential);
    char **parts[] = {&c->terminator, &c->service, &c->region, &c->day};
    for (size_t i = 0; i < 4; i++) {
        char *slash = strrchr(c->key, '/');
        if (!slash)
            return false;
        *slash = '\0';
        *parts[i] = slash + 1;
    }
    return true;
}

static char *long_date(const struct pairs *headers)
{
    const char *amz = pairs_get(headers, "x-amz-date");
    int64_t t;
    if (amz || !str_parse_http_date(pairs_get(headers, "date"), &t))
        return str_copy(amz);
    char iso[32], out[17];
    str_iso_date(iso, t);
    snprintf(out, sizeof out, "%.4s%.2s%.2sT%.2s%.2s%.2sZ", iso, iso + 5, iso + 8, iso + 11,
             iso + 14, iso + 17);
    return str_copy(out);
}

static int read_header(struct claim *c, const struct sigv4_request *r, const char *header,
                       struct sigv4_refusal *no)
{
    if (!str_starts(header, ALGORITHM))
        return refuse(no, 400, "InvalidRequest",
                      "The authorization mechanism you have provided is not supported. "
                      "Please use AWS4-HMAC-SHA256.");
    c->credential = field(header, "Credential");
    c->signed_headers = field(header, "SignedHeaders");
    c->signature = field(header, "Signature");
    c->date = long_date(r->headers);
    c->token = str_copy(pairs_get(r->headers, "x-amz-security-token"));
    if (!c->credential || !c->signed_headers || !c->signature || !split_credential(c))
        return refuse(no, 400, "AuthorizationHeaderMalformed",
                      "The authorization header is malformed; it needs a Credential of the form "
                      "AKID/YYYYMMDD/REGION/SERVICE/aws4_request, SignedHeaders and Signature.");
    return 0;
}

static int read_query(struct claim *c, const struct pairs *query, struct sigv4_refusal *no)
{
    const char *algorithm = pairs_get(query, "X-Amz-Algorithm");
    c->presigned = true;
    c->credential = str_copy(pairs_get(query, "X-Amz-Credential"));
    c->signed_headers = str_copy(pairs_get(query, "X-Amz-SignedHeaders"));
    c->signature = str_copy(pairs_get(query, "X-Amz-Signature"));
    c->date = str_copy(pairs_get(query, "X-Amz-Date"));
    c->token = str_copy(pairs_get(query, "X-Amz-Security-Token"));
    if (!algorithm || strcmp(algorithm, ALGORITHM) != 0 || !c->credential || !c->signed_headers ||
        !c->signature || !c->date || !split_credential(c) ||
        !str_u64(pairs_get(query, "X-Amz-Expires"), &c->expires_s))
        return refuse(no, 400, "AuthorizationQueryParametersError",
                      "Query-string authentication version 4 requires the X-Amz-Algorithm, "
                      "X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and "
                      "X-Amz-Expires parameters.");
    if (c->expires_s > 604800)
        return refuse(no, 400, "AuthorizationQueryParametersError",
                      "X-Amz-Expires must be less than a week (in seconds); that is, the given "
                      "X-Amz-Expires must be less than 604800 seconds");
    return 0;
}

/* --- the canonical request --------------------------------------------------------------- */

static int by_name_then_value(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : strcmp(x->value, y->value);
}

static char *encoded(const char *s)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    str_encode(&b, s, false);
    return buf_take(&b);
}

/* Sorted by the encoded names and values; X-Amz-Signature itself is left out. */
static void canonical_query(struct buf *out, const struct pairs *query)
{
    struct pairs sorted = {0};
    for (size_t i = 0; i < query->n; i++) {
        if (strcmp(query->v[i].name, "X-Amz-Signature") == 0)
            continue;
        char *name = encoded(query->v[i].name), *value = encoded(query->v[i].value);
        if (name && value)
            pairs_add(&sorted, name, value);
        free(name);
        free(value);
    }
    if (sorted.n)
        qsort(sorted.v, sorted.n, sizeof *sorted.v, by_name_then_value);
    for (size_t i = 0; i < sorted.n; i++)
        buf_printf(out, "%s%s=%s", i ? "&" : "", sorted.v[i].name, sorted.v[i].value);
    pairs_free(&sorted);
}

/* Trimmed, inner blanks folded. */
static void canonical_value(struct buf *out, const char *s)
{
    s += strspn(s, " \t");
    while (*s) {
        size_t blanks = strspn(s, " \t");
        if (blanks) {
            s += blanks;
            if (*s)
                buf_putc(out, ' ');
        } else {
            buf_putc(out, *s++);
        }
    }
}

static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; *p; p += strcspn(p, ";"), p += *p == ';') {
        if (strcspn(p, ";") == n && strncasecmp(p, name, n) == 0)
            return true;
    }
    return false;
}

/* Each signed header in the order of the list, values of one name joined. False: one is absent. */
static bool canonical_headers(struct buf *out, const char *list, const struct pairs *headers)
{
    for (const char *p = list; *p; p += strcspn(p, ";"), p += *p == ';') {
        size_t n = strcspn(p, ";");
        bool found = false;
        buf_add(out, p, n);
        buf_putc(out, ':');
        for (size_t i = 0; i < headers->n; i++) {
            const struct pair *h = &headers->v[i];
            if (strlen(h->name) != n || strncasecmp(h->name, p, n) != 0)
                continue;
            if (found)
                buf_putc(out, ',');
            canonical_value(out, h->value);
            found = true;
        }
        buf_putc(out, '\n');
        if (!found)
            return false;
    }
    return true;
}

static int check_signed_headers(const struct sigv4_request *r, const struct claim *c,
                                struct sigv4_refusal *no)
{
    bool missing = !listed(c->signed_headers, "host");
    for (size_t i = 0; i < r->headers->n; i++) {
        const char *name = r->headers->v[i].name;
        if (strncasecmp(name, "x-amz-", 6) == 0 && !listed(c->signed_headers, name)) {
            detail(no, "HeadersNotSigned", name);
            missing = true;
        }
    }
    return missing ? refuse(no, 403, "AccessDenied",
                            "There were headers present in the request which were not signed")
                   : 0;
}

static void canonical_path(struct buf *out, const char *path)
{
    char *decoded = str_decode(path, strlen(path), false);
    str_encode(out, decoded ? decoded : path, true);
    free(decoded);
}

static int check_signature(const struct sigv4_request *r, const struct pairs *query,
                           const struct claim *c, const struct sigv4_keys *keys,
                           struct sigv4_result *out, struct sigv4_refusal *no)
{
    struct buf canonical, text;
    buf_init(&canonical, 1 << 20);
    buf_init(&text, 4096);
    buf_printf(&canonical, "%s\n", r->method);
    canonical_path(&canonical, r->path);
    buf_putc(&canonical, '\n');
    canonical_query(&canonical, query);
    buf_putc(&canonical, '\n');
    bool all = canonical_headers(&canonical, c->signed_headers, r->headers);
    buf_printf(&canonical, "\n%s\n%s", c->signed_headers, out->payload);

    char hash[65];
    unsigned char md[32];
    sigv4_sha256_hex(buf_str(&canonical), canonical.len, hash);
    buf_printf(&text, ALGORITHM "\n%s\n%s\n%s", c->date, out->scope, hash);
    signing_key(keys->secret_key, c, out->key);
    hmac(out->key, sizeof out->key, buf_str(&text), md);
    str_hex(out->signature, md, sizeof md);
    int rc = 0;
    if (!all || canonical.failed || text.failed || !sigv4_same(out->signature, c->signature)) {
        rc = refuse(no, 403, "SignatureDoesNotMatch",
                    "The request signature we calculated does not match the signature you "
                    "provided. Check your key and signing method.");
        detail(no, "AWSAccessKeyId", c->key);
        detail(no, "StringToSign", buf_str(&text));
        detail(no, "SignatureProvided", c->signature);
        detail(no, "CanonicalRequest", buf_str(&canonical));
    }
    buf_free(&canonical);
    buf_free(&text);
    return rc;
}

/* --- what else must hold ------------------------------------------------------------------ */

static int check_scope(const struct claim *c, const struct sigv4_keys *keys,
                       struct sigv4_refusal *no)
{
    const char *code =
        c->presigned ? "AuthorizationQueryParametersError" : "AuthorizationHeaderMalformed";
    if (strcmp(c->terminator, "aws4_request") != 0 || strcmp(c->service, "s3") != 0)
        return refuse(no, 400, code,
                      "The credential scope is malformed; it must end in s3/aws4_request.");
    if (strncmp(c->day, c->date, 8) != 0 || strlen(c->day) != 8)
        return refuse(no, 400, code, "Invalid credential date; it is not the same as X-Amz-Date.");
    if (strcmp(c->region, keys->region) != 0) {
        refuse(no, 400, code, "");
        snprintf(no->message, sizeof no->message,
                 "The authorization header is malformed; the region '%.64s' is wrong; "
                 "expecting '%.64s'",
                 c->region, keys->region);
        detail(no, "Region", keys->region);
        return -1;
    }
    return 0;
}

static int check_clock(const struct claim *c, int64_t now, struct sigv4_refusal *no)
{
    int64_t date;
    char iso[32];
    if (!c->date || !str_parse_amz_date(c->date, &date))
        return refuse(no, 403, "AccessDenied",
                      "AWS authentication requires a valid Date or x-amz-date header");
    bool early = date > now + SIGV4_MAX_SKEW_S;
    if (c->presigned && !early && now > date + (int64_t)c->expires_s) {
        str_iso_date(iso, date + (int64_t)c->expires_s);
        detail(no, "Expires", iso);
        return refuse(no, 403, "AccessDenied", "Request has expired");
    }
    if (!early && (c->presigned || date >= now - SIGV4_MAX_SKEW_S))
        return 0;
    detail(no, "RequestTime", c->date);
    str_iso_date(iso, now);
    detail(no, "ServerTime", iso);
    buf_printf(&no->detail, "<MaxAllowedSkewMilliseconds>%d</MaxAllowedSkewMilliseconds>",
               SIGV4_MAX_SKEW_S * 1000);
    return refuse(no, 403, "RequestTimeTooSkewed",
                  "The difference between the request time and the current time is too large.");
}

static int check_keys(const struct claim *c, const struct sigv4_keys *keys,
                      struct sigv4_refusal *no)
{
    if (!sigv4_same(c->key, keys->access_key)) {
        detail(no, "AWSAccessKeyId", c->key);
        return refuse(no, 403, "InvalidAccessKeyId",
                      "The AWS Access Key Id you provided does not exist in our records.");
    }
    if (!sigv4_same(c->token ? c->token : "", keys->session_token))
        return refuse(no, keys->session_token[0] && !c->token ? 403 : 400,
                      keys->session_token[0] && !c->token ? "InvalidAccessKeyId" : "InvalidToken",
                      "The provided token is malformed or otherwise invalid.");
    return 0;
}

static int check_payload(const struct sigv4_request *r, const struct pairs *query,
                         const struct claim *c, struct sigv4_result *out, struct sigv4_refusal *no)
{
    const char *hash = pairs_get(r->headers, "x-amz-content-sha256");
    if (!hash && c->presigned)
        hash = pairs_get(query, "X-Amz-Content-Sha256");
    if (!hash && c->presigned)
        hash = "UNSIGNED-PAYLOAD";
    if (!hash)
        return refuse(no, 400, "InvalidRequest",
                      "Missing required header for this request: x-amz-content-sha256");
    unsigned char md[32];
    if (strcmp(hash, "UNSIGNED-PAYLOAD") != 0 && !str_starts(hash, "STREAMING-") &&
        !str_unhex(md, hash, sizeof md))
        return refuse(no, 400, "InvalidArgument",
                      "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-..., or a valid "
                      "sha256 value.");
    snprintf(out->payload, sizeof out->payload, "%s", hash);
    return 0;
}

bool sigv4_present(const struct sigv4_request *r)
{
    const char *auth = pairs_get(r->headers, "authorization");
    return (auth && strncmp(auth, "AWS", 3) == 0) || strstr(r->query, "X-Amz-Algorithm=") ||
           strstr(r->query, "X-Amz-Signature=");
}

int sigv4_verify(const struct sigv4_request *r, const struct sigv4_keys *keys, int64_t now,
                 struct sigv4_result *out, struct sigv4_refusal *no)
{
    *out = (struct sigv4_result){0};
    *no = (struct sigv4_refusal){0};
    buf_init(&no->detail, 1 << 20);
    struct claim c = {0};
    struct pairs query = {0};
    pairs_parse(&query, r->query);
    const char *header = pairs_get(r->headers, "authorization");
    int rc = -1;
    if (!sigv4_present(r)) {
        refuse(no, 403, "AccessDenied", "Access Denied");
        goto out;
    }
    if (header ? read_header(&c, r, header, no) : read_query(&c, &query, no))
        goto out;
    if (check_clock(&c, now, no) || check_scope(&c, keys, no) || check_keys(&c, keys, no) ||
        check_payload(r, &query, &c, out, no) || check_signed_headers(r, &c, no))
        goto out;
    snprintf(out->date, sizeof out->date, "%s", c.date);
    snprintf(out->scope, sizeof out->scope, "%s/%s/%s/%s", c.day, c.region, c.service,
             c.terminator);
    rc = check_signature(r, &query, &c, keys, out, no);
out:
    claim_free(&c);
    pairs_free(&query);
    return rc;
}

void sigv4_chunk(const struct sigv4_result *seed, const char *kind, const char *previous,
                 const char *data_sha256, char out[65])
{
    char text[512];
    unsigned char md[32];
    bool payload = strcmp(kind, "PAYLOAD") == 0;
    snprintf(text, sizeof text, ALGORITHM "-%s\n%s\n%s\n%s\n%s%s%s", kind, seed->date, seed->scope,
             previous, payload ? EMPTY_SHA256 : "", payload ? "\n" : "", data_sha256);
    hmac(seed->key, sizeof seed->key, text, md);
    str_hex(out, md, sizeof md);
}
