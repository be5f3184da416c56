#include "transfer/buffers.h"

#include <stdlib.h>
#include <sys/mman.h>

/* The head lies before the data, which begins with a page: a disk may be given it as it is. */
enum { SMALLEST_BITS = 14, HEAD = 4096, HUGE = 2 * 1024 * 1024 };

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

static size_t size_of(unsigned class)
{
    return (size_t)1 << (class + SMALLEST_BITS);
}

/* Large ones lie in huge pages, where the system has some: copies into memory that no processor's
 * cache holds are a good deal faster so. */
static size_t lead_of(unsigned class)
{
    return size_of(class) >= HUGE ? HUGE : HEAD;
}

/* len: of it that will be touched first; what is beyond takes no more than that. */
static struct buffer *new_buffer(unsigned class, size_t len)
{
    void *fresh;
    size_t lead = lead_of(class);
    if (posix_memalign(&fresh, lead, lead + size_of(class)))
        return NULL;
    char *data = (char *)fresh + lead;
    if (lead == HUGE)
        madvise(data, len / HUGE * HUGE, MADV_HUGEPAGE);
    return (struct buffer *)(void *)(data - HEAD);
}

static void free_buffer(struct buffer *f, unsigned class)
{
    if (f)
        free((char *)f + HEAD - lead_of(class));
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
            free_buffer(pop(b, i), i);
    }
}

void buffers_free(struct buffers *b)
{
    for (unsigned i = 0; i < BUFFERS_CLASSES; i++) {
        while (b->free[i])
            free_buffer(pop(b, i), i);
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
    f = f ? f : new_buffer(i, len);
    if (!f)
        return NULL;
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
