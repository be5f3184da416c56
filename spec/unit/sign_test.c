/* The examples of the S3 documentation, and AWS's own test suite for Signature V4 in the variant
 * that does not normalise paths (aws-c-auth, tests/aws-signing-test-suite/v4). */
#include "unit.h"

#include "base/clock.h"
#include "net/url.h"
#include "s3/sign.h"

static struct signer signer;
static char what[128];

static const char *signature(const char *authorization)
{
    const char *at = strstr(authorization, "Signature=");
    return at ? at + strlen("Signature=") : "";
}

static void s3_examples(void)
{
    const struct sign_keys keys = {"AKIAIOSFODNN7EXAMPLE",
                                   "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL, "us-east-1",
                                   "s3"};
    static const struct sign_header range[] = {{"Range", "bytes=0-9"}};
    static const struct sign_header put[] = {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                                             {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    static const struct {
        const char *name, *method, *path, *query, *payload, *want;
        const struct sign_header *headers;
        size_t header_count;
    } cases[] = {
        {"get with a range", "GET", "/test.txt", NULL, SIGN_EMPTY,
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", range, 1},
        {"put", "PUT", "/test%24file.text", NULL,
         "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd", put, 2},
        {"lifecycle", "GET", "/", "lifecycle", SIGN_EMPTY,
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543", NULL, 0},
        {"list", "GET", "/", "max-keys=2&prefix=J", SIGN_EMPTY,
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7", NULL, 0},
    };
    char date[TEXT_AMZ_DATE_SIZE], authorization[SIGN_AUTHORIZATION_MAX];
    struct nc_err err;
    struct sign_request request = {.host = "examplebucket.s3.amazonaws.com", .time = 1369353600};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        request.method = cases[i].method;
        request.path = cases[i].path;
        request.query = cases[i].query;
        request.headers = cases[i].headers;
        request.header_count = cases[i].header_count;
        request.payload_hash = cases[i].payload;
        int rc = sign_v4(&signer, &keys, &request, date, authorization, &err);
        CHECK_STR(rc ? err.message : signature(authorization), cases[i].want, cases[i].name);
    }
    CHECK_STR(date, "20130524T000000Z", "the date to send");
    CHECK_STR(
        authorization,
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        "the whole header");

    struct buf query;
    buf_init(&query, 4096);
    request = (struct sign_request){.method = "GET",
                                    .host = "examplebucket.s3.amazonaws.com",
                                    .path = "/test.txt",
                                    .payload_hash = SIGN_UNSIGNED,
                                    .time = 1369353600};
    sign_query(&signer, &keys, &request, 86400, &query, &err);
    CHECK_STR(buf_str(&query),
              "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524"
              "%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400"
              "&X-Amz-SignedHeaders=host&X-Amz-Signature="
              "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
              "a signed URL");
    CHECK(sign_query(&signer, &keys, &request, 604801, &query, &err) == -1, "a week at most");
    buf_free(&query);
}

static const struct sign_keys suite_keys = {
    "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", NULL, "us-east-1", "service"};

static void suite_paths(void)
{
    /* Path as the suite writes it, before encoding. */
    static const struct {
        const char *name, *path, *want;
    } cases[] = {
        {"get-vanilla", "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"get-unreserved", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
         "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
        {"get-utf8", "/\xe1\x88\xb4",
         "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
        {"get-space-unnormalized", "/example space/",
         "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
        {"get-slash-unnormalized", "//",
         "c88bcd3d312d75078c0cd961d6deae3f4c754924b01669efcfcb439fd5e5b76e"},
        {"get-slashes-unnormalized", "//example//",
         "87cca117541a147f6df867677d98a7d80dff226d2bfca9e4ffa899665623c7e5"},
        {"get-slash-dot-slash-unnormalized", "/./",
         "68714168e6557f8f2de0ef956fc24dc2593a4bd2961f8df51898d8a134695145"},
        {"get-slash-pointless-dot-unnormalized", "/./example",
         "beb03f223f7deae4146464f06e29eebbee9c8afbe15c290cf07aa8b119e14cff"},
        {"get-relative-unnormalized", "/example/..",
         "eca7ead57bb5aa5c8e28007acd4ff04e1ff9a0ff3b237ec1554a184887ff9282"},
        {"get-relative-relative-unnormalized", "/example1/example2/../..",
         "dc33e0856fd4baca4d7aa2146c38958283844764f38c74252a333df5e613003b"},
    };
    char date[TEXT_AMZ_DATE_SIZE], authorization[SIGN_AUTHORIZATION_MAX];
    struct nc_err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf path;
        buf_init(&path, 1000);
        url_encode(&path, cases[i].path, strlen(cases[i].path), true);
        struct sign_request request = {.method = "GET",
                                       .host = "example.amazonaws.com",
                                       .path = buf_str(&path),
                                       .payload_hash = SIGN_EMPTY,
                                       .time = 1440938160};
        int rc = sign_v4(&signer, &suite_keys, &request, date, authorization, &err);
        CHECK_STR(rc ? err.message : signature(authorization), cases[i].want, cases[i].name);
        buf_free(&path);
    }
}

#define ALNUM "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

static void suite_others(void)
{
    static const struct sign_header duplicate[] = {
        {"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}};
    static const struct sign_header order[] = {{"My-Header1", "value4"},
                                               {"My-Header1", "value1"},
                                               {"My-Header1", "value3"},
                                               {"My-Header1", "value2"}};
    static const struct sign_header trim[] = {{"My-Header1", " value1"},
                                              {"My-Header2", " \"a   b   c\""}};
    static const struct sign_header sort[] = {{"My-Header1", "value1"}};
    static const struct sign_header value_case[] = {{"My-Header1", "VALUE1"}};
    static const struct sign_header token[] = {
        {"X-Amz-Security-Token",
         "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"}};
    static const struct sign_header form[] = {{"Content-Type", "application/x-www-form-urlencoded"},
                                              {"Content-Length", "13"},
                                              {"x-amz-content-sha256",
                                               "9095672bbd1f56dfc5b65f3e153adc87"
                                               "31a4a654192329106275f4c7b24d0b6e"}};
    static const struct sign_header form_utf8[] = {
        {"Content-Type", "application/x-www-form-urlencoded; charset=utf8"}};
    static const struct {
        const char *name, *method, *query, *want;
        const struct sign_header *headers;
        size_t header_count;
        const char *body;
    } cases[] = {
        {"get-header-key-duplicate", "GET", NULL,
         "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea", duplicate, 3, ""},
        {"get-header-value-order", "GET", NULL,
         "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01", order, 4, ""},
        {"get-header-value-trim", "GET", NULL,
         "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736", trim, 2, ""},
        {"get-vanilla-empty-query-key", "GET", "Param1=value1",
         "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb", NULL, 0, ""},
        {"get-vanilla-query-order-key", "GET", "Param1=value2&Param1=Value1",
         "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1", NULL, 0, ""},
        {"get-vanilla-query-order-key-case", "GET", "Param2=value2&Param1=value1",
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500", NULL, 0, ""},
        {"get-vanilla-query-order-value", "GET", "Param1=value2&Param1=value1",
         "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694", NULL, 0, ""},
        {"get-vanilla-query-order-encoded", "GET", "Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
         "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac", NULL, 0, ""},
        {"get-vanilla-query-unreserved", "GET", "-._~" ALNUM "=-._~" ALNUM,
         "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197", NULL, 0, ""},
        {"get-vanilla-utf8-query", "GET", "%E1%88%B4=bar",
         "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04", NULL, 0, ""},
        {"post-vanilla", "POST", NULL,
         "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b", NULL, 0, ""},
        {"post-vanilla-query", "POST", "Param1=value1",
         "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11", NULL, 0, ""},
        {"post-header-key-sort", "POST", NULL,
         "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c", sort, 1, ""},
        {"post-header-value-case", "POST", NULL,
         "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d", value_case, 1, ""},
        {"post-x-www-form-urlencoded", "POST", NULL,
         "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a", form, 1,
         "Param1=value1"},
        {"post-x-www-form-urlencoded-parameters", "POST", NULL,
         "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe", form_utf8, 1,
         "Param1=value1"},
        {"post-x-www-form-urlencoded, its length and hash signed too", "POST", NULL,
         "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b", form, 3,
         "Param1=value1"},
        {"get-vanilla-with-session-token", "GET", NULL,
         "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8", token, 1, ""},
    };
    char date[TEXT_AMZ_DATE_SIZE], authorization[SIGN_AUTHORIZATION_MAX], hash[SHA256_HEX_SIZE];
    struct nc_err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sha256_hex(cases[i].body, strlen(cases[i].body), hash);
        struct sign_request request = {.method = cases[i].method,
                                       .host = "example.amazonaws.com",
                                       .path = "/",
                                       .query = cases[i].query,
                                       .headers = cases[i].headers,
                                       .header_count = cases[i].header_count,
                                       .payload_hash = hash,
                                       .time = 1440938160};
        int rc = sign_v4(&signer, &suite_keys, &request, date, authorization, &err);
        CHECK_STR(rc ? err.message : signature(authorization), cases[i].want, cases[i].name);
    }
    /* The same as the last case, with the token where it belongs. */
    struct sign_keys keys = suite_keys;
    keys.token = token[0].value;
    struct sign_request request = {.method = "GET",
                                   .host = "example.amazonaws.com",
                                   .path = "/",
                                   .payload_hash = SIGN_EMPTY,
                                   .time = 1440938160};
    sign_v4(&signer, &keys, &request, date, authorization, &err);
    CHECK_STR(signature(authorization), cases[sizeof cases / sizeof *cases - 1].want,
              "the session token is signed");
}

static void suite_queries(void)
{
    static const struct {
        const char *name, *path, *query, *want;
    } cases[] = {
        {"get-vanilla-query by query", "/", NULL,
         "e93c787ed7f371d5c6b165c1b38ede9550f4dce4144713e844b25b7192d3865d"},
        {"get-slashes-unnormalized by query", "//example//", NULL,
         "822a5a9ba28072c5ab2bb4a6307d0c88276d40e49fec6b724c03fb4d4ba60fc2"},
        {"get-vanilla-query-order-encoded by query", "/",
         "Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
         "c5f1848ceec943ac2ca68ee720460c23aaae30a2300586597ada94c4a65e4787"},
    };
    struct nc_err err;
    struct buf query;
    buf_init(&query, 4096);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sign_request request = {.method = "GET",
                                       .host = "example.amazonaws.com",
                                       .path = cases[i].path,
                                       .query = cases[i].query,
                                       .payload_hash = SIGN_EMPTY,
                                       .time = 1440938160};
        int rc = sign_query(&signer, &suite_keys, &request, 3600, &query, &err);
        CHECK_STR(rc ? err.message : signature(buf_str(&query)), cases[i].want, cases[i].name);
    }
    buf_free(&query);
}

static void key_cases(void)
{
    /* The day's key must change with each of its ingredients, and come back right. */
    struct sign_keys keys[4] = {suite_keys, suite_keys, suite_keys, suite_keys};
    keys[1].secret = "other";
    keys[2].region = "eu-west-1";
    keys[3].service = "services";
    struct sign_request request = {.method = "GET",
                                   .host = "example.amazonaws.com",
                                   .path = "/",
                                   .payload_hash = SIGN_EMPTY,
                                   .time = 1440938160};
    char date[TEXT_AMZ_DATE_SIZE], first[SIGN_AUTHORIZATION_MAX], got[SIGN_AUTHORIZATION_MAX];
    struct nc_err err;
    sign_v4(&signer, &keys[0], &request, date, first, &err);
    for (int i = 1; i < 4; i++) {
        sign_v4(&signer, &keys[i], &request, date, got, &err);
        CHECK(strcmp(signature(got), signature(first)) != 0, "another key, another signature");
    }
    request.time += 86400;
    sign_v4(&signer, &keys[0], &request, date, got, &err);
    CHECK(strcmp(signature(got), signature(first)) != 0, "another day, another signature");
    request.time -= 86400;
    sign_v4(&signer, &keys[0], &request, date, got, &err);
    CHECK_STR(got, first, "and the first one again");
}

static void refusals(void)
{
    char date[TEXT_AMZ_DATE_SIZE], authorization[SIGN_AUTHORIZATION_MAX];
    struct nc_err err = {0};
    struct sign_header header = {"x-amz-meta-a", "b\r\nx-amz-acl: public-read"};
    struct sign_request request = {.method = "GET",
                                   .host = "h",
                                   .path = "/",
                                   .headers = &header,
                                   .header_count = 1,
                                   .payload_hash = SIGN_EMPTY};
    CHECK(sign_v4(&signer, &suite_keys, &request, date, authorization, &err) == -1 &&
              !strcmp(err.code, "BadRequest"),
          "a header value that would begin another header is refused");
    header = (struct sign_header){"a\nb", "c"};
    CHECK(sign_v4(&signer, &suite_keys, &request, date, authorization, &err) == -1,
          "a header name that holds a newline is refused");
    request.header_count = 33;
    CHECK(sign_v4(&signer, &suite_keys, &request, date, authorization, &err) == -1,
          "33 headers are refused");
    request.header_count = 0;
    char many[400] = "";
    for (int i = 0; i < 90; i++)
        strcat(many, "a=b&");
    request.query = many;
    CHECK(sign_v4(&signer, &suite_keys, &request, date, authorization, &err) == -1,
          "90 parameters are refused");
    request.query = "&&a=b&&";
    CHECK(sign_v4(&signer, &suite_keys, &request, date, authorization, &err) == 0,
          "empty parameters are none");
    char long_key[3000];
    memset(long_key, 'A', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    struct sign_keys keys = suite_keys;
    keys.access = long_key;
    CHECK(sign_v4(&signer, &keys, &request, date, authorization, &err) == -1 &&
              !strstr(err.message, "AAAA"),
          "an access key that does not fit is refused without showing it");
}

static void speed(void)
{
    const struct sign_keys keys = {"AKIAIOSFODNN7EXAMPLE",
                                   "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL, "us-east-1",
                                   "s3"};
    struct sign_request request = {.method = "PUT",
                                   .host = "examplebucket.s3.amazonaws.com",
                                   .path = "/models/inkling/model-00001-of-00042.safetensors",
                                   .query = "partNumber=17&uploadId=2~abcdefghijklmnopqrstuvwxyz",
                                   .payload_hash = SIGN_UNSIGNED,
                                   .time = 1440938160};
    char date[TEXT_AMZ_DATE_SIZE], authorization[SIGN_AUTHORIZATION_MAX];
    enum { ROUNDS = 2000 };
    uint64_t start = clock_us();
    for (int i = 0; i < ROUNDS; i++)
        sign_v4(&signer, &keys, &request, date, authorization, NULL);
    double each = (double)(clock_us() - start) / ROUNDS;
    snprintf(what, sizeof what, "a signature takes less than 200 us (%.2f)", each);
    CHECK(each < 200, what);
}

int main(void)
{
    signer_init(&signer);
    s3_examples();
    suite_paths();
    suite_others();
    suite_queries();
    key_cases();
    refusals();
    speed();
    signer_free(&signer);
    return unit_done();
}
