/* Taking in a request's body: decoded, hashed and stored as it comes. */
#include "request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void wrong(struct body *b, const char *code)
{
    if (!b->wrong)
        b->wrong = code;
}

/* An x-amz-checksum-* header, or the trailer that is announced. */
static void find_checksum(struct request *r)
{
    struct body *b = &r->body;
    const char *name = request_header(r, "x-amz-trailer");
    for (size_t i = 0; !name && i < r->headers.n; i++) {
        if (digest_of_checksum(r->headers.v[i].name) != DIGEST_NONE)
            name = r->headers.v[i].name;
    }
    if (name && str_starts(name, "x-amz-checksum-") && strlen(name) < sizeof b->checksum_name) {
        memcpy(b->checksum_name, name, strlen(name) + 1);
        digest_init(&b->checksum, digest_of_checksum(name));
    }
}

static void start_s3(struct request *r)
{
    struct body *b = &r->body;
    if (str_starts(r->sig.payload, "STREAMING-")) {
        b->is_chunked = true;
        if (!chunked_init(&b->chunked, &r->sig))
            wrong(b, "InvalidArgument");
        if (!str_u64(request_header(r, "x-amz-decoded-content-length"), &b->expected))
            wrong(b, "MissingContentLength");
    } else if (strcmp(r->sig.payload, "UNSIGNED-PAYLOAD") != 0) {
        b->payload_hash = r->sig.payload;
        digest_init(&b->sha256, DIGEST_SHA256);
    }
    find_checksum(r);
}

void body_start(struct request *r, enum body_kind kind)
{
    struct body *b = &r->body;
    b->kind = kind;
    b->expected = UINT64_MAX;
    buf_init(&b->text, BODY_TEXT_MAX);
    str_u64(request_header(r, "content-length"), &b->expected);
    if (r->side == SIDE_S3)
        start_s3(r);
    if (kind == BODY_BLOB) {
        digest_init(&b->etag, r->srv->opt.fast_etag ? DIGEST_XXH3 : DIGEST_MD5);
        if (r->srv->opt.fast_etag && request_header(r, "content-md5"))
            digest_init(&b->md5, DIGEST_MD5);
        b->blob = b->expected == UINT64_MAX ? NULL : blob_create(&r->srv->store.blobs, b->expected);
        if (b->expected == UINT64_MAX)
            wrong(b, "MissingContentLength");
        else if (!b->blob)
            wrong(b, "InternalError");
    } else if (request_header(r, "content-md5")) {
        digest_init(&b->md5, DIGEST_MD5);
    }
}

static void store_bytes(void *cls, const char *data, size_t n)
{
    struct body *b = cls;
    digest_add(&b->etag, data, n);
    digest_add(&b->md5, data, n);
    digest_add(&b->checksum, data, n);
    if (b->kind == BODY_TEXT && buf_add(&b->text, data, n))
        wrong(b, "MaxMessageLengthExceeded");
    if (b->kind == BODY_BLOB && !b->wrong) {
        int rc = b->size + n > b->expected ? EFBIG : blob_write(b->blob, b->size, data, n);
        if (rc)
            wrong(b, rc == EFBIG ? "IncompleteBody" : "InternalError");
    }
    b->size += n;
}

static void take_piece(struct request *r, const char *data, size_t n)
{
    struct body *b = &r->body;
    throttle_wait(&r->srv->rate[r->side][0], n, &r->srv->stopping);
    throttle_wait(&r->slow, n, &r->srv->stopping);
    b->raw += n;
    digest_add(&b->sha256, data, n);
    if (!b->is_chunked)
        store_bytes(b, data, n);
    else if (!b->wrong) {
        const char *code = chunked_add(&b->chunked, data, n, store_bytes, b);
        if (code)
            wrong(b, code);
    }
}

void body_take(struct request *r, const char *data, size_t n)
{
    while (n) {
        size_t piece = throttle_piece(&r->slow, throttle_piece(&r->srv->rate[r->side][0], n));
        take_piece(r, data, piece);
        data += piece;
        n -= piece;
    }
}

static bool same_base64(const char *text, const unsigned char *md, size_t n)
{
    unsigned char want[DIGEST_MAX];
    return text && str_unbase64(want, sizeof want, text) == n && memcmp(want, md, n) == 0;
}

/* Content-MD5 against its own digest, or against the ETag's where that is an MD5 anyway. */
static void check_md5(struct request *r)
{
    struct body *b = &r->body;
    unsigned char md[DIGEST_MAX], given[DIGEST_MAX];
    const char *want = request_header(r, "content-md5");
    if (!want)
        return;
    if (b->md5.kind == DIGEST_MD5)
        digest_end(&b->md5, md);
    else if (!str_unhex(md, b->etag_text, 16))
        return;
    if (str_unbase64(given, sizeof given, want) != 16)
        wrong(b, "InvalidDigest");
    else if (memcmp(given, md, 16) != 0)
        wrong(b, "BadDigest");
}

static void check_checksum(struct request *r)
{
    struct body *b = &r->body;
    if (b->checksum.kind == DIGEST_NONE)
        return;
    unsigned char md[DIGEST_MAX];
    size_t n = digest_end(&b->checksum, md);
    const char *want = pairs_get(&b->chunked.trailers, b->checksum_name);
    if (!want)
        want = request_header(r, b->checksum_name);
    if (!same_base64(want, md, n))
        wrong(b, "BadDigest");
}

void body_end(struct request *r)
{
    struct body *b = &r->body;
    char hex[2 * DIGEST_MAX + 1];
    if (b->is_chunked && !chunked_complete(&b->chunked))
        wrong(b, "IncompleteBody");
    if (b->expected != UINT64_MAX && b->size != b->expected && b->kind != BODY_DROP)
        wrong(b, "IncompleteBody");
    if (b->payload_hash) {
        digest_hex(&b->sha256, hex);
        if (strcasecmp(hex, b->payload_hash) != 0)
            wrong(b, "XAmzContentSHA256Mismatch");
    }
    if (b->etag.kind != DIGEST_NONE)
        digest_etag(&b->etag, b->etag_text);
    check_md5(r);
    check_checksum(r);
    if (b->blob)
        blob_seal(b->blob);
}

void body_free(struct body *b)
{
    buf_free(&b->text);
    blob_unref(b->blob);
    chunked_free(&b->chunked);
    digest_free(&b->etag);
    digest_free(&b->sha256);
    digest_free(&b->md5);
    digest_free(&b->checksum);
}
