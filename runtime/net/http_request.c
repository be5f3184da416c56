/* What a request holds, without the pool that sends it. */
#include "net/http.h"

#include <string.h>

void http_request_init(struct http_request *r, const struct http_hooks *hooks)
{
    *r = (struct http_request){.hooks = hooks};
    buf_init(&r->url, 16 * 1024);
    buf_init(&r->headers, 64 * 1024);
}

void http_request_free(struct http_request *r)
{
    buf_free(&r->url);
    buf_free(&r->headers);
    buf_free(&r->head);
    buf_free(&r->text);
    const struct http_hooks *hooks = r->hooks;
    *r = (struct http_request){.hooks = hooks};
}

void http_request_reset(struct http_request *r)
{
    buf_clear(&r->url);
    buf_clear(&r->headers);
}

void http_add_header(struct http_request *r, const char *name, const char *value)
{
    buf_puts(&r->headers, name);
    buf_puts(&r->headers, ": ");
    buf_puts(&r->headers, value);
    buf_putc(&r->headers, '\n');
}

const char *http_header(const struct http_request *r, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);
    for (const char *p = buf_str(&r->head); *p;) {
        const char *end = strchr(p, '\n');
        if (strncmp(p, name, n) == 0 && p[n] == ':') {
            p += n + 1;
            while (p < end && (*p == ' ' || *p == '\t'))
                p++;
            while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
            if ((size_t)(end - p) >= size)
                return NULL;
            memcpy(out, p, (size_t)(end - p));
            out[end - p] = '\0';
            return out;
        }
        p = end + 1;
    }
    return NULL;
}
