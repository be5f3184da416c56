/* What an attempt is sent with, without sending it: the hashes of its body. */
#include "s3/s3.h"

#include <stdlib.h>

#include "unit.h"

enum { BODY = 700 * 1000 + 1 };

static char body[BODY];
static size_t unreadable_from = BODY;

static int give(struct http_request *r, size_t offset, char *out, size_t len)
{
    if (offset + len > unreadable_from)
        return nc_err_set(&r->err, "EIO", "unreadable");
    memcpy(out, body + offset, len);
    return 0;
}

static int prepare(struct s3_request *r)
{
    return r->http.hooks->prepare(&r->http);
}

static void test_hashes(struct s3_client *c, bool tls, bool given)
{
    struct s3_request r;
    struct nc_err err;
    char sha256[SHA256_HEX_SIZE], md5[MD5_BASE64_SIZE];
    sha256_hex(body, BODY, sha256);
    md5_base64(body, BODY, md5);
    s3_request_init(&r, c, "PUT", "key", &err);
    r.http.has_body = true;
    r.http.body_len = BODY;
    r.http.body = given ? NULL : body;
    r.http.give = given ? give : NULL;
    CHECK(prepare(&r) == 0, given ? "a body in pieces" : "a body");
    CHECK_STR(r.payload_hash, tls ? SIGN_UNSIGNED : sha256, "is signed");
    CHECK_STR(r.md5, md5, "and has an MD5 where the client wants it");
    unreadable_from = 0;
    CHECK(prepare(&r) == 0, "which is worked out once");
    unreadable_from = BODY;
    s3_request_free(&r);
}

static void test_unreadable(struct s3_client *c)
{
    struct s3_request r;
    struct nc_err err;
    s3_request_init(&r, c, "PUT", "key", &err);
    r.http.has_body = true;
    r.http.body_len = BODY;
    r.http.give = give;
    unreadable_from = BODY - 1;
    CHECK(prepare(&r) == -1 && !r.payload_hash[0], "what can't be read is not sent");
    CHECK_STR(r.http.err.code, "EIO", "for the owner's reason");
    s3_request_free(&r);
}

static void test_empty(struct s3_client *c)
{
    struct s3_request r;
    struct nc_err err;
    s3_request_init(&r, c, "PUT", "key", &err);
    r.http.has_body = true;
    CHECK(prepare(&r) == 0, "an empty body");
    CHECK_STR(r.payload_hash, SIGN_EMPTY, "is signed");
    CHECK_STR(r.md5, "1B2M2Y8AsgTpgAmY7PhCfg==", "and has an MD5, too");
    s3_request_free(&r);
}

int main(void)
{
    struct s3_client plain, tls;
    struct nc_err err;
    struct s3_config config = {.endpoint = "http://127.0.0.1:9",
                               .region = "us-east-1",
                               .bucket = "b",
                               .access = "a",
                               .secret = "s",
                               .content_md5 = true};
    for (size_t i = 0; i < BODY; i++)
        body[i] = (char)(i * 31 + i / 251);
    if (s3_client_init(&plain, &config, &err))
        return 1;
    config.endpoint = "https://127.0.0.1:9";
    if (s3_client_init(&tls, &config, &err))
        return 1;
    test_hashes(&plain, false, false);
    test_hashes(&plain, false, true);
    test_hashes(&tls, true, false);
    test_hashes(&tls, true, true);
    test_unreadable(&plain);
    test_empty(&plain);
    s3_client_free(&plain);
    s3_client_free(&tls);
    return unit_done();
}
