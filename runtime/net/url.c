#include "net/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
static const char host_chars[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
static const char address_chars[] = "0123456789abcdefABCDEF:.";

static int refuse(struct nc_err *err, const char *why)
{
    return nc_err_set(err, "BadUrl", "not a usable URL: %s", why);
}

/* Bytes that would end or split a request line, or that some parser reads as '/'. */
static const char *bad_bytes(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return "it holds a control character";
        if (s[i] == ' ')
            return "it holds a blank";
        if (s[i] == '\\')
            return "it holds a backslash";
    }
    return NULL;
}

static int parse_port(const char *s, size_t len, struct url *out, struct nc_err *err)
{
    char digits[8];
    uint64_t port;
    if (len == 0 || len >= sizeof digits)
        return refuse(err, "the port is not a number from 1 to 65535");
    memcpy(digits, s, len);
    digits[len] = '\0';
    if (text_u64(digits, &port) || port == 0 || port > 65535)
        return refuse(err, "the port is not a number from 1 to 65535");
    out->port = (uint16_t)port;
    return 0;
}

static int parse_authority(const char *s, size_t len, struct url *out, struct nc_err *err)
{
    if (memchr(s, '@', len))
        return refuse(err, "it holds a user name or password before an @");
    size_t host;
    if (len && *s == '[') {
        host = 1 + strspn(s + 1, address_chars);
        if (host >= len || s[host] != ']' || host < 3)
            return refuse(err, "the IPv6 address in brackets is malformed");
        host++;
    } else {
        host = strspn(s, host_chars);
    }
    if (host == 0)
        return refuse(err, "it has no host name");
    if (host >= sizeof out->host)
        return refuse(err, "the host name is too long");
    uint16_t standard = out->tls ? 443 : 80;
    out->port = standard;
    if (host < len && s[host] != ':')
        return refuse(err, "the host name holds a character that none can have");
    if (host < len && parse_port(s + host + 1, len - host - 1, out, err))
        return -1;
    memcpy(out->host, s, host);
    out->host[host] = '\0';
    if (out->port == standard)
        snprintf(out->authority, sizeof out->authority, "%s", out->host);
    else
        snprintf(out->authority, sizeof out->authority, "%s:%u", out->host, out->port);
    return 0;
}

int url_parse(const char *text, struct url *out, struct nc_err *err)
{
    *out = (struct url){0};
    size_t len = strnlen(text, URL_MAX + 1);
    if (len > URL_MAX)
        return refuse(err, "it is too long");
    const char *why = bad_bytes(text, len);
    if (why)
        return refuse(err, why);
    if (text_istarts(text, "https://"))
        out->tls = true;
    else if (!text_istarts(text, "http://"))
        return refuse(err, "it does not begin with http:// or https://");

    const char *authority = text + (out->tls ? 8 : 7);
    const char *path = authority + strcspn(authority, "/?#");
    if (parse_authority(authority, (size_t)(path - authority), out, err))
        return -1;
    size_t path_len = strcspn(path, "?#");
    const char *query = path + path_len;
    out->path = path_len ? strndup(path, path_len) : strdup("/");
    if (*query == '?')
        out->query = strndup(query + 1, strcspn(query + 1, "#"));
    if (!out->path || (*query == '?' && !out->query)) {
        url_free(out);
        return nc_err_set(err, "ENOMEM", "out of memory");
    }
    return 0;
}

/* RFC 3986 5.2.4 for a path that begins with '/', in place. */
static void remove_dots(char *path)
{
    char *out = path;
    const char *in = path;
    while (*in) {
        size_t n = 1 + strcspn(in + 1, "/"); /* "/segment" */
        bool last = in[n] == '\0';
        bool up = n == 3 && memcmp(in, "/..", 3) == 0;
        if (up || (n == 2 && in[1] == '.')) {
            while (up && out > path && *--out != '/')
                ;
            if (last)
                *out++ = '/';
        } else {
            memmove(out, in, n);
            out += n;
        }
        in += n;
    }
    *out = '\0';
}

/* scheme://host:port, with as much of the base's path as the reference is relative to. */
static int resolve_against(const struct url *base, const char *ref, struct buf *out)
{
    buf_printf(out, "http%s:", base->tls ? "s" : "");
    if (text_starts(ref, "//"))
        return buf_puts(out, ref);
    buf_printf(out, "//%s", base->authority);
    if (*ref == '/')
        return buf_puts(out, ref);
    if (*ref == '?') {
        buf_puts(out, base->path);
        return buf_puts(out, ref);
    }
    size_t keep = (size_t)(strrchr(base->path, '/') - base->path) + 1;
    struct buf path;
    buf_init(&path, URL_MAX);
    buf_add(&path, base->path, keep);
    buf_add(&path, ref, strcspn(ref, "?#"));
    int rc = path.failed ? -1 : 0;
    if (!rc) {
        remove_dots(path.data);
        buf_puts(out, path.data);
        rc = buf_puts(out, ref + strcspn(ref, "?#"));
    }
    buf_free(&path);
    return rc;
}

int url_resolve(const struct url *base, const char *location, struct url *out, struct nc_err *err)
{
    *out = (struct url){0};
    size_t scheme = strspn(location, letters);
    if (scheme && location[scheme] == ':')
        return url_parse(location, out, err);
    if (!*location || *location == '#')
        return refuse(err, "the Location header is empty");
    struct buf text;
    buf_init(&text, URL_MAX);
    int rc = resolve_against(base, location, &text) ? refuse(err, "it is too long")
                                                    : url_parse(text.data, out, err);
    buf_free(&text);
    return rc;
}

void url_free(struct url *u)
{
    free(u->path);
    free(u->query);
    *u = (struct url){0};
}

int url_format(const struct url *u, struct buf *out)
{
    buf_puts(out, u->tls ? "https://" : "http://");
    buf_puts(out, u->authority);
    buf_puts(out, u->path);
    if (u->query) {
        buf_putc(out, '?');
        buf_puts(out, u->query);
    }
    return out->failed ? -1 : 0;
}

bool url_same_origin(const struct url *a, const struct url *b)
{
    return a->tls == b->tls && a->port == b->port && text_ieq(a->host, b->host);
}

static bool unreserved(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

int url_encode(struct buf *out, const char *s, size_t len, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    while (len) {
        size_t run = 0;
        while (run < len && (unreserved((unsigned char)s[run]) || (keep_slash && s[run] == '/')))
            run++;
        buf_add(out, s, run);
        s += run;
        len -= run;
        if (len) {
            unsigned char c = (unsigned char)*s++;
            len--;
            buf_add(out, (char[]){'%', digits[c >> 4], digits[c & 15]}, 3);
        }
    }
    return out->failed ? -1 : 0;
}

int url_decode(struct buf *out, const char *s, size_t len, bool plus)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '%') {
            if (len - i < 3 || text_unhex(s + i + 1, 2, &c))
                return -1;
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        buf_putc(out, (char)c);
    }
    return out->failed ? -1 : 0;
}

int url_query_add(struct buf *query, const char *name, const char *value)
{
    if (query->len)
        buf_putc(query, '&');
    url_encode(query, name, strlen(name), false);
    if (value) {
        buf_putc(query, '=');
        url_encode(query, value, strlen(value), false);
    }
    return query->failed ? -1 : 0;
}
