/* URLs, Location headers and percent-encoding from untrusted answers. */
#include <stdlib.h>
#include <string.h>

#include "net/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* What was parsed is written as it was read, and never holds what would split a request. */
static void check_url(const struct url *u)
{
    struct buf text;
    struct url again;
    struct nc_err err;
    buf_init(&text, 2 * URL_MAX);
    check(url_format(u, &text) == 0);
    for (size_t i = 0; i < text.len; i++)
        check((unsigned char)text.data[i] > 0x20 && text.data[i] != 0x7f && text.data[i] != '\\');
    check(u->path[0] == '/' && u->port != 0 && u->host[0] && !strchr(u->host, '@'));
    if (text.len <= URL_MAX) {
        check(url_parse(text.data, &again, &err) == 0);
        check(url_same_origin(u, &again) && !strcmp(u->path, again.path));
        check(!u->query == !again.query && (!u->query || !strcmp(u->query, again.query)));
        url_free(&again);
    }
    buf_free(&text);
}

static void check_code(const char *s, size_t len)
{
    struct buf once, back;
    buf_init(&once, 3 * len);
    buf_init(&back, len);
    check(url_encode(&once, s, len, len % 2) == 0);
    check(url_decode(&back, buf_str(&once), once.len, false) == 0);
    check(back.len == len && memcmp(buf_str(&back), s, len) == 0);
    buf_clear(&back);
    url_decode(&back, s, len, true);
    buf_free(&once);
    buf_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    struct url base, u;
    struct nc_err err;
    url_parse("https://hub.example:8443/api/models/a?x=y", &base, &err);
    if (url_parse(text, &u, &err) == 0)
        check_url(&u);
    url_free(&u);
    if (url_resolve(&base, text, &u, &err) == 0)
        check_url(&u);
    url_free(&u);
    url_free(&base);
    check_code((const char *)data, size);
    free(text);
    return 0;
}
