#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){.max = b->max};
}

static int reserve(struct buf *b, size_t extra)
{
    if (b->failed || extra > b->max || b->len > b->max - extra) {
        b->failed = true;
        return -1;
    }
    size_t need = b->len + extra + 1;
    if (need <= b->cap)
        return 0;
    size_t cap = b->cap ? b->cap * 2 : 256;
    while (cap < need)
        cap *= 2;
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return -1;
    }
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
    if (reserve(b, len))
        return -1;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_puts(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
    return buf_add(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    size_t room = b->failed ? 0 : b->cap - b->len;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(room ? b->data + b->len : NULL, room, fmt, ap);
    va_end(ap);
    bool fits = n >= 0 && (size_t)n < room;
    if (n < 0 || reserve(b, (size_t)n)) {
        if (room)
            b->data[b->len] = '\0';
        b->failed = true;
    } else {
        if (!fits)
            vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return b->failed ? -1 : 0;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

char *buf_take(struct buf *b)
{
    if (b->failed || reserve(b, 0))
        return NULL;
    char *data = b->data;
    data[b->len] = '\0';
    *b = (struct buf){.max = b->max};
    return data;
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}
