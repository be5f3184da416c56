#include "unit.h"

#include "base/text.h"

static void hex_cases(void)
{
    char hex[16];
    unsigned char raw[4];
    text_hex("\x00\xff\x1a", 3, hex);
    CHECK_STR(hex, "00ff1a", "hex is lower case");
    CHECK(text_unhex("00fF1A", 6, raw) == 0 && memcmp(raw, "\x00\xff\x1a", 3) == 0, "unhex");
    CHECK(text_unhex("abc", 3, raw) == -1, "an odd number of digits is refused");
    CHECK(text_unhex("0g", 2, raw) == -1, "a letter that is no digit is refused");
    CHECK(text_is_hex("0a", 2) && !text_is_hex("0A", 2) && !text_is_hex("0a1", 2) &&
              !text_is_hex("0", 2),
          "is_hex wants exactly so many lower-case digits");
}

static void word_cases(void)
{
    const char *s = " \t a b\r\n";
    size_t len = text_trim(&s, strlen(s));
    CHECK(len == 3 && memcmp(s, "a b", 3) == 0, "trim");
    s = " \n ";
    CHECK(text_trim(&s, 3) == 0, "trim leaves nothing of blanks");
    CHECK(text_has_control("a\nb", 3) && text_has_control("\x7f", 1) &&
              !text_has_control("a b\xc3\xa9", 5),
          "control characters");
    CHECK(text_ieq("ETag", "etag") && !text_ieq("ETag", "etags"), "equal but for case");
    CHECK(text_icmp("Host", "x-amz") < 0 && text_icmp("b", "A") > 0 && text_icmp("", "a") < 0,
          "ordered but for case");
    CHECK(text_starts("bytes=1", "bytes=") && !text_starts("b", "bytes"), "starts");
    CHECK(text_istarts("X-Amz-Date", "x-amz-") && !text_istarts("x-am", "x-amz-"), "istarts");
    CHECK(text_ends("a.gguf", ".gguf") && !text_ends("gguf", ".gguf"), "ends");

    uint64_t n = 7;
    CHECK(text_u64("18446744073709551615", &n) == 0 && n == UINT64_MAX, "the largest number");
    CHECK(text_u64("0", &n) == 0 && n == 0, "zero");
    n = 7;
    CHECK(text_u64("18446744073709551616", &n) && text_u64("", &n) && text_u64("-1", &n) &&
              text_u64("+1", &n) && text_u64(" 1", &n) && text_u64("1 ", &n) &&
              text_u64("0x1", &n) && n == 7,
          "overflow, signs, blanks and hex are refused");
}

static void http_date(const char *s, int64_t want)
{
    int64_t got = -1;
    int rc = text_http_date(s, &got);
    CHECK(want < 0 ? rc == -1 : rc == 0 && got == want, s);
}

static void iso_date(const char *s, int64_t want)
{
    int64_t got = -1;
    int rc = text_iso_date(s, &got);
    CHECK(want < 0 ? rc == -1 : rc == 0 && got == want, s);
}

static void date_cases(void)
{
    http_date("Sun, 06 Nov 1994 08:49:37 GMT", 784111777);
    http_date("Sunday, 06-Nov-94 08:49:37 GMT", 784111777);
    http_date("Sun Nov  6 08:49:37 1994", 784111777);
    http_date("Sun Nov 16 08:49:37 1994", 784975777);
    http_date("Thu, 29 Feb 2024 00:00:00 GMT", 1709164800);
    http_date("Wed, 29 Feb 2023 00:00:00 GMT", -1);
    http_date("Sun, 06 Nov 1994 08:49:37", -1);
    http_date("Sun, 06 Nov 1994 08:49:37 GMT ", -1);
    http_date("Sun, 06 Nov 1994 24:49:37 GMT", -1);
    http_date("Sun, 00 Nov 1994 08:49:37 GMT", -1);
    http_date("06 Nov 1994 08:49:37 GMT", -1);
    http_date("Sun", -1);
    http_date("", -1);

    iso_date("2026-11-29T10:00:00.000Z", 1795946400);
    iso_date("2026-11-29T10:00:00Z", 1795946400);
    iso_date("2026-11-29T12:00:00.123456+02:00", 1795946400);
    iso_date("2026-11-29T08:30:00-01:30", 1795946400);
    iso_date("1970-01-01T00:00:00Z", 0);
    iso_date("2026-11-29T10:00:00.Z", -1);
    iso_date("2026-11-29T10:00:00", -1);
    iso_date("2026-11-29 10:00:00Z", -1);
    iso_date("2026-13-29T10:00:00Z", -1);
    iso_date("2026-11-29T10:00:00ZZ", -1);

    char out[TEXT_HTTP_DATE_SIZE];
    text_http_date_format(784111777, out);
    CHECK_STR(out, "Sun, 06 Nov 1994 08:49:37 GMT", "an HTTP date");
    text_http_date_format(0, out);
    CHECK_STR(out, "Thu, 01 Jan 1970 00:00:00 GMT", "the first HTTP date");
    text_amz_date(1440938160, out);
    CHECK_STR(out, "20150830T123600Z", "a signing date");

    bool same = true;
    for (int64_t t = 0; t < 253402300799; t += 86400 * 13 + 4567) {
        int64_t back = -1;
        text_http_date_format(t, out);
        same = same && text_http_date(out, &back) == 0 && back == t;
    }
    CHECK(same, "dates survive the round trip to 9999");
}

static void glob_cases(void)
{
    static const struct {
        const char *pattern, *s;
        bool want;
    } cases[] = {
        {"*.safetensors", "model-00001.safetensors", true},
        {"*.safetensors", "sub/dir/model.safetensors", true},
        {"*.safetensors", "model.safetensors.index.json", false},
        {"original/*", "original/a/b", true},
        {"original/", "original/a/b", true},
        {"original/", "originals/a", false},
        {"*", "", true},
        {"", "", true},
        {"", "a", false},
        {"?", "a", true},
        {"?", "\xc3\xa9", true},
        {"??", "\xc3\xa9", false},
        {"?", "", false},
        {"a[bc]d", "abd", true},
        {"a[bc]d", "aed", false},
        {"a[!bc]d", "aed", true},
        {"a[0-9]", "a5", true},
        {"a[0-9]", "ax", false},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"a[b", "a[b", true},
        {"[", "[", true},
        {"a-[]", "a-[]", true},
        {"[a-]", "-", true},
        {"[\xc3\xa0-\xc3\xaf]", "\xc3\xa9", true},
        {"*a*b*c", "xxaxxbxxc", true},
        {"*a*b*c", "xxaxxcxxb", false},
        {"A", "a", false},
        {"\\*", "*", false},
        {"*\xff", "a\xff", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char what[80];
        snprintf(what, sizeof what, "%s %s %s", cases[i].pattern,
                 cases[i].want ? "matches" : "does not match", cases[i].s);
        CHECK(text_glob(cases[i].pattern, cases[i].s) == cases[i].want, what);
    }
    char many[4001];
    memset(many, 'a', 4000);
    many[4000] = '\0';
    CHECK(!text_glob("*a*a*a*a*a*a*a*a*a*a*b", many), "many stars take no exponential time");
}

int main(void)
{
    hex_cases();
    word_cases();
    date_cases();
    glob_cases();
    return unit_done();
}
