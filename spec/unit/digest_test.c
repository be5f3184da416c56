#include "unit.h"

#include <stdlib.h>

#include "base/digest.h"
#include "base/text.h"

static const char *sha(const char *s)
{
    static char out[SHA256_HEX_SIZE];
    sha256_hex(s, strlen(s), out);
    return out;
}

static void sha256_cases(void)
{
    /* FIPS 180-4 examples. */
    CHECK_STR(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
              "sha256 of nothing");
    CHECK_STR(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
              "sha256 of abc");

    struct sha256 h = {0};
    char out[SHA256_HEX_SIZE];
    bool same = true;
    for (int round = 0; round < 2; round++) { /* the second round reuses the context */
        CHECK(sha256_init(&h) == 0, "starts");
        for (int i = 0; i < 1000; i++)
            sha256_update(
                &h,
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                "aaaaaaaaaaaaaaaaaaaaaaaaaa",
                100);
        for (int i = 0; i < 9000; i++)
            sha256_update(
                &h,
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                "aaaaaaaaaaaaaaaaaaaaaaaaaa",
                100);
        sha256_final_hex(&h, out);
        same = same && strcmp(out, "cdc76e5c9914fb9281a1c7e284d73e67"
                                   "f1809a48a497200e046d39ccc7112cd0") == 0;
    }
    CHECK(same, "a million a's, twice on one context");
    sha256_init(&h);
    sha256_update(&h, "left over", 9);
    sha256_init(&h);
    sha256_update(&h, "abc", 3);
    sha256_final_hex(&h, out);
    CHECK_STR(out, sha("abc"), "init forgets what was begun");
    sha256_free(&h);
    sha256_free(&h);
    CHECK(!h.ctx, "freed twice is fine");
}

static void hmac_cases(void)
{
    struct hmac h = {0};
    unsigned char raw[32];
    char hex[SHA256_HEX_SIZE];
    /* RFC 4231, cases 2 and 6. */
    hmac_key(&h, "Jefe", 4);
    for (int i = 0; i < 2; i++) {
        hmac_sign(&h, "what do ya want for nothing?", 28, raw);
        text_hex(raw, 32, hex);
        CHECK_STR(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                  "hmac with a short key, again and again");
    }
    unsigned char key[131];
    memset(key, 0xaa, sizeof key);
    hmac_key(&h, key, sizeof key);
    const char *text = "Test Using Larger Than Block-Size Key - Hash Key First";
    hmac_sign(&h, text, strlen(text), raw);
    text_hex(raw, 32, hex);
    CHECK_STR(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
              "hmac with a key longer than a block");
    hmac_free(&h);
}

static void other_cases(void)
{
    char out[64];
    struct gitblob g = {0};
    gitblob_init(&g, 0);
    gitblob_final_hex(&g, out);
    CHECK_STR(out, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", "git's empty blob");
    gitblob_init(&g, 12);
    gitblob_update(&g, "hello ", 6);
    gitblob_update(&g, "world\n", 6);
    gitblob_final_hex(&g, out);
    CHECK_STR(out, "3b18e512dba79e4c8300dd08aeb37f8e728b8dad", "git's hello world");
    gitblob_free(&g);

    md5_base64("", 0, out);
    CHECK_STR(out, "1B2M2Y8AsgTpgAmY7PhCfg==", "md5 of nothing");
    md5_base64("hello world", 11, out);
    CHECK_STR(out, "XrY7u+Ae7tCTyyK7j1rNww==", "md5 in base64");

    xxh3_hex("", 0, out);
    CHECK_STR(out, "99aa06d3014798d86001c324468d497f", "xxh3-128 of nothing");
    enum { SIZE = 1 << 20 };
    char *block = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        block[i] = (char)(i * 31);
    char once[XXH3_HEX_SIZE], parts[XXH3_HEX_SIZE];
    xxh3_hex(block, SIZE, once);
    struct xxh3 x = {0};
    for (int round = 0; round < 2; round++) {
        xxh3_init(&x);
        for (size_t at = 0, step = 1; at < SIZE; at += step, step = step * 3 % 70001 + 1) {
            if (step > SIZE - at)
                step = SIZE - at;
            xxh3_update(&x, block + at, step);
        }
        xxh3_final_hex(&x, parts);
        CHECK_STR(parts, once, "xxh3-128 in pieces equals xxh3-128 at once");
    }
    xxh3_free(&x);
    free(block);
}

int main(void)
{
    sha256_cases();
    hmac_cases();
    other_cases();
    return unit_done();
}
