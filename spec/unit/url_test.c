#include "unit.h"

#include "net/url.h"

static const char *format(const struct url *u)
{
    static char text[512];
    struct buf b;
    buf_init(&b, URL_MAX);
    url_format(u, &b);
    snprintf(text, sizeof text, "%s", buf_str(&b));
    buf_free(&b);
    return text;
}

static void parse_cases(void)
{
    struct url u;
    struct nc_err err = {0};
    CHECK(url_parse("https://s3.example.com", &u, &err) == 0, "a bare host");
    CHECK(u.tls && u.port == 443 && !u.query, "https on 443, no query");
    CHECK_STR(u.path, "/", "an absent path is the root");
    url_free(&u);
    url_free(&u);

    CHECK(url_parse("HTTP://Host:8080//a/../b%2f?x=1?y#frag", &u, &err) == 0, "a full URL");
    CHECK_STR(u.host, "Host", "the host keeps its case");
    CHECK_STR(u.authority, "Host:8080", "the authority names an unusual port");
    CHECK_STR(u.path, "//a/../b%2f", "the path is not normalised");
    CHECK_STR(u.query, "x=1?y", "the query ends at the fragment");
    CHECK_STR(format(&u), "http://Host:8080//a/../b%2f?x=1?y", "and formats as it was");
    url_free(&u);

    CHECK(url_parse("https://[::1]:443/x?", &u, &err) == 0, "an IPv6 address");
    CHECK_STR(u.authority, "[::1]", "the standard port is not named");
    CHECK_STR(u.query, "", "an empty query is a query");
    url_free(&u);
    CHECK(url_parse("http://h?q", &u, &err) == 0, "a query without a path");
    CHECK_STR(format(&u), "http://h/?q", "gets the root path");
    url_free(&u);

    static const char *const bad[] = {
        "",
        "s3://b/k",
        "//host/x",
        "https:/host",
        "https://",
        "https:///x",
        "https://:80/",
        "https://user:secret@host/",
        "https://host:/",
        "https://host:0/",
        "https://host:65536/",
        "https://host:8o/",
        "https://ho st/",
        "https://host/a b",
        "https://host/a\nb",
        "https://host/a\x7f",
        "https://host\\@evil/",
        "https://h%6fst/",
        "https://[::1/",
        "https://[]/",
        "https://[::1]x/",
        "https://[::1%25eth0]/",
        "https://h\xc3\xb6st/",
        "javascript:alert(1)",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct nc_err){0};
        bool refused = url_parse(bad[i], &u, &err) == -1 && !strcmp(err.code, "BadUrl");
        char what[32];
        snprintf(what, sizeof what, "bad URL %zu is refused", i);
        CHECK(refused && !strstr(err.message, "secret"), what);
        url_free(&u);
    }
    char longest[URL_MAX + 2];
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "http://h/", 9);
    longest[URL_MAX] = '\0';
    CHECK(url_parse(longest, &u, &err) == 0, "the longest URL");
    url_free(&u);
    longest[URL_MAX] = 'a';
    longest[URL_MAX + 1] = '\0';
    CHECK(url_parse(longest, &u, &err) == -1, "one byte more");
    memset(longest + 7, 'h', 300);
    longest[307] = '\0';
    CHECK(url_parse(longest, &u, &err) == -1, "a host name of 300 bytes");
}

static void resolve_cases(void)
{
    static const struct {
        const char *location, *want;
    } cases[] = {
        {"https://cdn.example/x?sig=1", "https://cdn.example/x?sig=1"},
        {"//cdn.example/x", "http://cdn.example/x"},
        {"/api/x?y=1", "http://hub.example:81/api/x?y=1"},
        {"z", "http://hub.example:81/a/b/z"},
        {"./z?q", "http://hub.example:81/a/b/z?q"},
        {"../z", "http://hub.example:81/a/z"},
        {"../../../z", "http://hub.example:81/z"},
        {"..", "http://hub.example:81/a/"},
        {".", "http://hub.example:81/a/b/"},
        {"x/../y/./z", "http://hub.example:81/a/b/y/z"},
        {"?page=2", "http://hub.example:81/a/b/c?page=2"},
        {"z#f", "http://hub.example:81/a/b/z"},
        {"a:b", NULL},
        {"./a:b", "http://hub.example:81/a/b/a:b"},
        {"ftp://x/", NULL},
        {"https://u:p@x/", NULL},
        {"//", NULL},
        {"", NULL},
        {"#top", NULL},
        {"/a b", NULL},
        {"/a\r\nX: y", NULL},
    };
    struct url base, u;
    struct nc_err err;
    url_parse("http://hub.example:81/a/b/c?d=e", &base, &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = url_resolve(&base, cases[i].location, &u, &err);
        if (cases[i].want)
            CHECK_STR(rc ? err.message : format(&u), cases[i].want, cases[i].location);
        else
            CHECK(rc == -1, "a Location that is refused");
        url_free(&u);
    }
    url_free(&base);
}

static bool same(const char *a, const char *b)
{
    struct url x, y;
    struct nc_err err;
    url_parse(a, &x, &err);
    url_parse(b, &y, &err);
    bool result = url_same_origin(&x, &y);
    url_free(&x);
    url_free(&y);
    return result;
}

static void origin_cases(void)
{
    CHECK(same("http://a/x", "http://A:80/y?z"), "case and the standard port make no difference");
    CHECK(!same("http://a", "https://a"), "another scheme");
    CHECK(!same("http://a:81", "http://a:82"), "another port");
    CHECK(!same("https://a", "https://a.b"), "another host");
    CHECK(!same("https://a:80", "http://a:80"), "the same port under another scheme");
}

static void code_cases(void)
{
    struct buf b;
    buf_init(&b, 100);
    url_encode(&b, "a/b c+d~e%\xc3\xa9", 12, true);
    CHECK_STR(buf_str(&b), "a/b%20c%2Bd~e%25%C3%A9", "a key is encoded once, with its slashes");
    buf_clear(&b);
    url_encode(&b, "a/b\0c", 5, false);
    CHECK_STR(buf_str(&b), "a%2Fb%00c", "a value is encoded with its slashes, NUL too");
    buf_clear(&b);
    CHECK(url_decode(&b, "a%2fb%2Fc+d", 11, false) == 0, "decodes");
    CHECK_STR(buf_str(&b), "a/b/c+d", "either case; + stays");
    buf_clear(&b);
    url_decode(&b, "c+d%2B", 6, true);
    CHECK_STR(buf_str(&b), "c d+", "+ is a blank in a form");
    buf_clear(&b);
    CHECK(url_decode(&b, "a%2", 3, false) == -1, "half an escape is refused");
    CHECK(url_decode(&b, "a%zz", 4, false) == -1, "an escape without digits is refused");
    buf_clear(&b);
    url_query_add(&b, "uploads", NULL);
    url_query_add(&b, "prefix", "a/b&c");
    url_query_add(&b, "x", "");
    CHECK_STR(buf_str(&b), "uploads&prefix=a%2Fb%26c&x=", "a query");
    buf_free(&b);
    buf_init(&b, 5);
    CHECK(url_query_add(&b, "name", "value") == -1, "a full buffer is reported");
    buf_free(&b);
}

int main(void)
{
    parse_cases();
    resolve_cases();
    origin_cases();
    code_cases();
    return unit_done();
}
