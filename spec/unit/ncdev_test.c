/* The local server's pure parts, checked against published values: S3's examples of Signature V4,
 * the chunked upload of its documentation, and check values of the digests. */
#include "unit.h"

#include "../server/chunked.c"
#include "../server/digest.c"
#include "../server/faults.c"
#include "../server/omap.c"
#include "../server/sigv4.c"
#include "../server/text.c"

#define DAY INT64_C(1369353600) /* 2013-05-24T00:00:00Z */
#define CREDENTIAL "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"

static const struct sigv4_keys keys = {"AKIAIOSFODNN7EXAMPLE",
                                       "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "us-east-1"};

/* What the server says to a request with these headers ("Name: value" lines); "" for yes. */
static const char *verdict(const char *method, const char *path, const char *query,
                           const char *const *lines, int64_t now, struct sigv4_result *out)
{
    static char code[64];
    struct pairs headers = {0};
    for (; *lines; lines += 2)
        pairs_add(&headers, lines[0], lines[1]);
    struct sigv4_request r = {method, path, query, &headers};
    struct sigv4_refusal no;
    int rc = sigv4_verify(&r, &keys, now, out, &no);
    snprintf(code, sizeof code, "%s", rc ? no.code : "");
    buf_free(&no.detail);
    pairs_free(&headers);
    return code;
}

#define AUTHORIZATION(signed_headers, signature)                                                   \
    "AWS4-HMAC-SHA256 Credential=" CREDENTIAL ",SignedHeaders=" signed_headers                     \
    ",Signature=" signature
#define COMMON                                                                                     \
    "Host", "examplebucket.s3.amazonaws.com", "x-amz-date", "20130524T000000Z",                    \
        "x-amz-content-sha256", EMPTY_SHA256

static const char *const get_lines[] = {
    COMMON,
    "Range",
    "bytes=0-9",
    "Authorization",
    AUTHORIZATION("host;range;x-amz-content-sha256;x-amz-date",
                  "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    NULL};

static void published_examples(void)
{
    struct sigv4_result out;
    static const char *const put[] = {
        "Host",
        "examplebucket.s3.amazonaws.com",
        "Date",
        "Fri, 24 May 2013 00:00:00 GMT",
        "x-amz-date",
        "20130524T000000Z",
        "x-amz-storage-class",
        "REDUCED_REDUNDANCY",
        "x-amz-content-sha256",
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        "Authorization",
        AUTHORIZATION("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
        NULL};
    static const char *const lifecycle[] = {
        COMMON, "Authorization",
        AUTHORIZATION("host;x-amz-content-sha256;x-amz-date",
                      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        NULL};
    static const char *const list[] = {
        COMMON, "Authorization",
        AUTHORIZATION("host;x-amz-content-sha256;x-amz-date",
                      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        NULL};
    static const char *const presigned[] = {"Host", "examplebucket.s3.amazonaws.com", NULL};
    const char *query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F"
                        "20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&"
                        "X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
                        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    CHECK_STR(verdict("GET", "/test.txt", "", get_lines, DAY, &out), "", "get with a range");
    CHECK_STR(verdict("PUT", "/test%24file.text", "", put, DAY, &out), "", "put");
    CHECK_STR(verdict("GET", "/", "lifecycle", lifecycle, DAY, &out), "", "lifecycle");
    CHECK_STR(verdict("GET", "/", "max-keys=2&prefix=J", list, DAY, &out), "", "list");
    CHECK_STR(verdict("GET", "/", "prefix=J&max-keys=2", list, DAY, &out), "", "query sorted");
    CHECK_STR(verdict("GET", "/test.txt", query, presigned, DAY + 86400, &out), "", "presigned");
    CHECK_STR(verdict("GET", "/test.txt", query, presigned, DAY + 86401, &out), "AccessDenied",
              "presigned and over");
}

static void refusals(void)
{
    struct sigv4_result out;
    static const char *const unsigned_header[] = {
        COMMON,
        "x-amz-acl",
        "public-read",
        "Authorization",
        AUTHORIZATION("host;x-amz-content-sha256;x-amz-date",
                      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        NULL};
    static const char *const none[] = {"Host", "h", NULL};
    CHECK_STR(verdict("GET", "/test.tx", "", get_lines, DAY, &out), "SignatureDoesNotMatch",
              "another path");
    CHECK_STR(verdict("GET", "//test.txt", "", get_lines, DAY, &out), "SignatureDoesNotMatch",
              "a path is not normalised");
    CHECK_STR(verdict("HEAD", "/test.txt", "", get_lines, DAY, &out), "SignatureDoesNotMatch",
              "another method");
    CHECK_STR(verdict("GET", "/test.txt", "x", get_lines, DAY, &out), "SignatureDoesNotMatch",
              "another query");
    CHECK_STR(verdict("GET", "/test.txt", "", get_lines, DAY + 900, &out), "", "900 s late");
    CHECK_STR(verdict("GET", "/test.txt", "", get_lines, DAY + 901, &out), "RequestTimeTooSkewed",
              "901 s late");
    CHECK_STR(verdict("GET", "/test.txt", "", get_lines, DAY - 901, &out), "RequestTimeTooSkewed",
              "901 s early");
    CHECK_STR(verdict("GET", "/", "lifecycle", unsigned_header, DAY, &out), "AccessDenied",
              "an x-amz header that is not signed");
    CHECK_STR(verdict("GET", "/", "", none, DAY, &out), "AccessDenied", "no signature");
}

/* --- aws-chunked ------------------------------------------------------------------------------ */

static void count_bytes(void *cls, const char *data, size_t n)
{
    (void)data;
    *(size_t *)cls += n;
}

/* The documentation's example: 65 KiB and 1 KiB of 'a', in three signed chunks. */
static void chunk_example(struct buf *body)
{
    char a[65536];
    memset(a, 'a', sizeof a);
    buf_puts(body, "10000;chunk-signature="
                   "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n");
    buf_add(body, a, sizeof a);
    buf_puts(body, "\r\n400;chunk-signature="
                   "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n");
    buf_add(body, a, 1024);
    buf_puts(body, "\r\n0;chunk-signature="
                   "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n");
}

/* Fed in pieces of `piece` bytes; "" where the whole body was accepted. */
static const char *feed(const struct buf *body, size_t piece, size_t *decoded)
{
    struct sigv4_result seed = {.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
                                .date = "20130524T000000Z",
                                .scope = "20130524/us-east-1/s3/aws4_request"};
    struct claim c = {
        .day = (char[]){"20130524"}, .region = (char[]){"us-east-1"}, .service = (char[]){"s3"}};
    struct chunked chunked;
    const char *code = NULL;
    signing_key(keys.secret_key, &c, seed.key);
    strcpy(seed.signature, "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
    *decoded = 0;
    chunked_init(&chunked, &seed);
    for (size_t at = 0; at < body->len && !code; at += piece) {
        size_t n = body->len - at < piece ? body->len - at : piece;
        code = chunked_add(&chunked, body->data + at, n, count_bytes, decoded);
    }
    if (!code && !chunked_complete(&chunked))
        code = "IncompleteBody";
    chunked_free(&chunked);
    return code ? code : "";
}

static void chunks(void)
{
    struct buf body;
    size_t decoded;
    buf_init(&body, 1 << 20);
    chunk_example(&body);
    CHECK_STR(feed(&body, body.len, &decoded), "", "the documentation's chunks");
    CHECK(decoded == 66560, "their bytes");
    CHECK_STR(feed(&body, 1, &decoded), "", "byte by byte");
    body.data[1000] = 'b';
    CHECK_STR(feed(&body, 777, &decoded), "SignatureDoesNotMatch", "a changed byte");
    body.data[1000] = 'a';
    body.len -= 100;
    CHECK_STR(feed(&body, 777, &decoded), "IncompleteBody", "no last chunk");
    buf_free(&body);
}

/* --- digests, rules, maps --------------------------------------------------------------------- */

static void check_values(void)
{
    static const struct {
        const char *name, *want;
    } cases[] = {{"x-amz-checksum-crc32", "cbf43926"},
                 {"x-amz-checksum-crc32c", "e3069283"},
                 {"x-amz-checksum-crc64nvme", "ae8b14860a799888"},
                 {"x-amz-checksum-sha1", "f7c3bc1d808e04732adf679965ccc34ca7ae3441"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct digest d;
        char hex[2 * DIGEST_MAX + 1];
        digest_init(&d, digest_of_checksum(cases[i].name));
        digest_add(&d, "1234", 4);
        digest_add(&d, "56789", 5);
        digest_hex(&d, hex);
        CHECK_STR(hex, cases[i].want, cases[i].name);
    }
}

static bool acted(struct faults *f, const char *method, const char *path)
{
    struct fault out;
    return faults_match(f, &(struct fault_target){SIDE_S3, method, path, "GetObject"}, &out);
}

static void rules(void)
{
    struct faults f;
    struct nc_err err;
    struct fault out;
    faults_init(&f);
    CHECK(faults_add(&f, "GET b/*.bin nth=2-3 status=503:SlowDown:7 cut=10", &err) == 0, "a rule");
    CHECK(!acted(&f, "PUT", "b/x/y.bin") && !acted(&f, "GET", "b/x.txt"), "what it does not mean");
    CHECK(!acted(&f, "GET", "b/x/y.bin") && acted(&f, "GET", "b/x/y.bin"), "the second");
    faults_match(&f, &(struct fault_target){SIDE_S3, "GET", "b/y.bin", "GetObject"}, &out);
    CHECK(out.cut == 10 && out.stall < 0, "its numbers");
    CHECK(!acted(&f, "GET", "b/x/y.bin"), "the fourth");
    char word[96];
    const char *code, *retry;
    CHECK(fault_status(&out, word, &code, &retry) == 503, "its status");
    CHECK_STR(code, "SlowDown", "its code");
    CHECK_STR(retry, "7", "its time");
    CHECK(faults_replace(&f, "GET x cut=1\nGET y nonsense", &err) != 0, "nonsense is refused");
    CHECK(strstr(err.message, "nonsense") != NULL, "by name");
    CHECK(f.rules && strstr(f.rules->line, "nth=2-3"), "and the old rules stay");
    faults_free(&f);
}

static void ordered_map(void)
{
    struct omap m = {0};
    char key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%03d", i * 7 % 1000);
        omap_put(&m, key, key);
    }
    int n = 0;
    bool sorted = true;
    for (struct omap_node *x = m.head[0]; x; x = x->next[0]) {
        n++;
        sorted = sorted && (!x->next[0] || strcmp(x->key, x->next[0]->key) < 0);
    }
    CHECK(n == 1000 && sorted, "a thousand keys in order");
    CHECK(omap_remove(&m, "500") && !omap_get(&m, "500"), "one removed");
    CHECK_STR(omap_seek(&m, "500")->key, "501", "and the next one found in its place");
    omap_free(&m);
}

int main(void)
{
    published_examples();
    refusals();
    chunks();
    check_values();
    rules();
    ordered_map();
    return unit_done();
}
