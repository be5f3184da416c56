#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

void *str_alloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p)
        abort();
    return p;
}

char *str_copy(const char *s)
{
    if (!s)
        return NULL;
    size_t n = strlen(s) + 1;
    return memcpy(str_alloc(n), s, n);
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

static bool unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void str_encode(struct buf *out, const char *s, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (unreserved(c) || (c == '/' && keep_slash)) {
            buf_putc(out, *s);
        } else {
            char esc[3] = {'%', digits[c >> 4], digits[c & 15]};
            buf_add(out, esc, 3);
        }
    }
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *str_decode(const char *s, size_t n, bool plus)
{
    char *out = str_alloc(n + 1), *p = out;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%' && i + 2 < n && digit(s[i + 1]) >= 0 && digit(s[i + 2]) >= 0) {
            c = (char)(digit(s[i + 1]) * 16 + digit(s[i + 2]));
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (!c) {
            free(out);
            return NULL;
        }
        *p++ = c;
    }
    return out;
}

void str_xml(struct buf *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '<')
            buf_puts(out, "&lt;");
        else if (c == '>')
            buf_puts(out, "&gt;");
        else if (c == '&')
            buf_puts(out, "&amp;");
        else if (c == '"')
            buf_puts(out, "&quot;");
        else if (c < 0x20)
            buf_printf(out, "&#x%x;", c);
        else
            buf_putc(out, *s);
    }
}

/* Length of the UTF-8 sequence at s, 0 when there is none. */
static size_t utf8(const unsigned char *s)
{
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : s[0] < 0xe0                 ? 0
               : s[0] < 0xf0                 ? 3
               : s[0] < 0xf5                 ? 4
                                             : 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

void str_json(struct buf *out, const char *s)
{
    buf_putc(out, '"');
    while (*s) {
        size_t n = utf8((const unsigned char *)s);
        if (n == 0)
            buf_puts(out, "\\ufffd");
        else if (*s == '"' || *s == '\\')
            buf_printf(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            buf_printf(out, "\\u%04x", *s);
        else
            buf_add(out, s, n);
        s += n ? n : 1;
    }
    buf_putc(out, '"');
}

void str_hex(char *out, const unsigned char *in, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[in[i] >> 4];
        out[2 * i + 1] = digits[in[i] & 15];
    }
    out[2 * n] = '\0';
}

bool str_unhex(unsigned char *out, const char *hex, size_t n)
{
    if (strlen(hex) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int hi = digit(hex[2 * i]), lo = digit(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out[i] = (unsigned char)(hi * 16 + lo);
    }
    return true;
}

size_t str_unbase64(unsigned char *out, size_t max, const char *s)
{
    size_t n = strlen(s);
    unsigned char tmp[256];
    if (n == 0 || n % 4 || n / 4 * 3 > sizeof tmp)
        return 0;
    int got = EVP_DecodeBlock(tmp, (const unsigned char *)s, (int)n);
    if (got < 0)
        return 0;
    size_t len = (size_t)got - (s[n - 1] == '=') - (s[n - 2] == '=');
    if (len > max)
        return 0;
    memcpy(out, tmp, len);
    return len;
}

bool str_take_u64(const char **at, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0;
}

bool str_u64(const char *s, uint64_t *out)
{
    return s && str_take_u64(&s, out) && *s == '\0';
}

bool str_i64(const char *s, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(s, &end, 10);
    return end != s && *end == '\0' && errno == 0;
}

bool str_size(const char *s, uint64_t *out)
{
    static const char units[] = "kmg";
    if (!str_take_u64(&s, out))
        return false;
    const char *unit = *s ? strchr(units, tolower((unsigned char)*s)) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        *out *= 1024;
    return *s == '\0' || (unit && s[1] == '\0');
}

/* By hand: strftime would follow the locale. */
void str_http_date(char out[32], int64_t s)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t t = (time_t)s;
    struct tm tm;
    gmtime_r(&t, &tm);
    snprintf(out, 32, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday % 7], tm.tm_mday % 100,
             months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100,
             tm.tm_sec % 100);
}

void str_iso_date(char out[32], int64_t s)
{
    time_t t = (time_t)s;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
}

static bool parse_date(const char *s, const char *format, int64_t *out)
{
    struct tm tm = {0};
    const char *end = s ? strptime(s, format, &tm) : NULL;
    if (!end || *end)
        return false;
    *out = (int64_t)timegm(&tm);
    return true;
}

bool str_parse_http_date(const char *s, int64_t *out)
{
    return parse_date(s, "%a, %d %b %Y %H:%M:%S GMT", out);
}

bool str_parse_amz_date(const char *s, int64_t *out)
{
    return s && strlen(s) == 16 && parse_date(s, "%Y%m%dT%H%M%SZ", out);
}

void pairs_add(struct pairs *p, const char *name, const char *value)
{
    if ((p->n & (p->n - 1)) == 0) { /* full at each power of two */
        struct pair *v = realloc(p->v, sizeof *v * (p->n ? p->n * 2 : 1));
        if (!v)
            abort();
        p->v = v;
    }
    p->v[p->n++] = (struct pair){str_copy(name), str_copy(value)};
}

void pairs_set(struct pairs *p, const char *name, const char *value)
{
    for (size_t i = 0; i < p->n; i++) {
        if (strcasecmp(p->v[i].name, name) == 0) {
            free(p->v[i].value);
            p->v[i].value = str_copy(value);
            return;
        }
    }
    pairs_add(p, name, value);
}

const char *pairs_get(const struct pairs *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++) {
        if (strcasecmp(p->v[i].name, name) == 0)
            return p->v[i].value;
    }
    return NULL;
}

void pairs_parse(struct pairs *p, const char *query)
{
    while (query && *query) {
        size_t n = strcspn(query, "&");
        size_t eq = strcspn(query, "=&");
        if (n) {
            char *name = str_decode(query, eq, true);
            char *value = eq < n ? str_decode(query + eq + 1, n - eq - 1, true) : str_copy("");
            if (name && value)
                pairs_add(p, name, value);
            free(name);
            free(value);
        }
        query += n + (query[n] == '&');
    }
}

void pairs_encode(const struct pairs *p, struct buf *out)
{
    for (size_t i = 0; i < p->n; i++) {
        if (i)
            buf_putc(out, '&');
        str_encode(out, p->v[i].name, false);
        buf_putc(out, '=');
        str_encode(out, p->v[i].value, false);
    }
}

void pairs_copy(struct pairs *to, const struct pairs *from)
{
    for (size_t i = 0; i < from->n; i++)
        pairs_add(to, from->v[i].name, from->v[i].value);
}

void pairs_free(struct pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->v[i].name);
        free(p->v[i].value);
    }
    free(p->v);
    *p = (struct pairs){0};
}
