#include "transfer/buffers.h"

#include <stdlib.h>

enum { SMALLEST_BITS = 14 };

struct buffers_free {
    struct buffers_free *next;
    size_t len; /* bytes of it that may have been touched */
};

void buffers_init(struct buffers *b, uint64_t budget)
{
    *b = (struct buffers){.budget = budget};
}

static unsigned class_of(size_t len)
{
    unsigned bits = SMALLEST_BITS;
    while (bits < SMALLEST_BITS + BUFFERS_CLASSES - 1 && ((size_t)1 << bits) < len)
        bits++;
    return bits - SMALLEST_BITS;
}

/* Frees what is kept until `room` more bytes fit the budget beside the rest. */
static void shrink(struct buffers *b, size_t room)
{
    for (unsigned i = BUFFERS_CLASSES; i-- && b->kept && b->used + b->kept + room > b->budget;) {
        while (b->free[i] && b->used + b->kept + room > b->budget) {
            struct buffers_free *f = b->free[i];
            b->free[i] = f->next;
            b->kept -= f->len;
            free(f);
        }
    }
}

void buffers_free(struct buffers *b)
{
    shrink(b, b->budget);
}

bool buffers_have(const struct buffers *b, size_t len)
{
    return b->used + len <= b->budget;
}

char *buffers_take(struct buffers *b, size_t len)
{
    unsigned i = class_of(len);
    struct buffers_free *f = b->free[i];
    if (f) {
        b->free[i] = f->next;
        b->kept -= f->len;
    } else {
        shrink(b, len);
        f = malloc((size_t)1 << (i + SMALLEST_BITS));
        if (!f)
            return NULL;
    }
    b->used += len;
    return (char *)f;
}

void buffers_give(struct buffers *b, char *data, size_t len)
{
    struct buffers_free *f = (struct buffers_free *)(void *)data;
    unsigned i = class_of(len);
    b->used -= len;
    f->len = len;
    f->next = b->free[i];
    b->free[i] = f;
    b->kept += len;
}
