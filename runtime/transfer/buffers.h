/* The part buffers of one transfer: a budget in bytes that is never exceeded, and the memory of
 * freed buffers kept for the next part, since touching fresh memory costs more than the copy into
 * it. Not thread-safe: the transfer's lock guards it. */
#ifndef NC_TRANSFER_BUFFERS_H
#define NC_TRANSFER_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUFFERS_CLASSES 40

struct buffers {
    uint64_t budget;                      /* bytes */
    uint64_t used;                        /* touched in buffers that are out */
    uint64_t kept;                        /* touched in buffers that wait to be used again */
    struct buffer *free[BUFFERS_CLASSES]; /* by power of two */
};

void buffers_init(struct buffers *b, uint64_t budget);
void buffers_free(struct buffers *b); /* all have been given back */

/* True where len more bytes fit the budget. */
bool buffers_have(const struct buffers *b, size_t len);
/* len bytes from the beginning of a page, or NULL (no memory). Ask buffers_have first. */
char *buffers_take(struct buffers *b, size_t len);
void buffers_give(struct buffers *b, char *data);

#endif
