#include "transfer/buffers.h"

#include <stdlib.h>

/* The head lies before the data, which begins with a page: a disk may be given it as it is. */
enum { SMALLEST_BITS = 14, HEAD = 4096 };

struct buffer {
    struct buffer *next;
    size_t touched; /* bytes of it that may be resident: the longest part it ever held */
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

static struct buffer *pop(struct buffers *b, unsigned class)
{
    struct buffer *f = b->free[class];
    if (f) {
        b->free[class] = f->next;
        b->kept -= f->touched;
    }
    return f;
}

/* Frees what is kept until `room` more bytes fit the budget beside the rest. */
static void shrink(struct buffers *b, size_t room)
{
    for (unsigned i = BUFFERS_CLASSES; i-- && b->kept;) {
        while (b->free[i] && b->used + b->kept + room > b->budget)
            free(pop(b, i));
    }
}

void buffers_free(struct buffers *b)
{
    for (unsigned i = 0; i < BUFFERS_CLASSES; i++) {
        while (b->free[i])
            free(pop(b, i));
    }
}

bool buffers_have(const struct buffers *b, size_t len)
{
    return b->used + len <= b->budget;
}

char *buffers_take(struct buffers *b, size_t len)
{
    unsigned i = class_of(len);
    struct buffer *f = pop(b, i);
    size_t room = f && f->touched > len ? f->touched : len;
    shrink(b, room);
    void *fresh = NULL;
    if (!f && posix_memalign(&fresh, HEAD, HEAD + ((size_t)1 << (i + SMALLEST_BITS))))
        return NULL;
    f = f ? f : fresh;
    f->touched = room;
    b->used += room;
    return (char *)f + HEAD;
}

void buffers_give(struct buffers *b, char *data)
{
    struct buffer *f = (struct buffer *)(void *)(data - HEAD);
    unsigned i = class_of(f->touched);
    b->used -= f->touched;
    b->kept += f->touched;
    f->next = b->free[i];
    b->free[i] = f;
}
