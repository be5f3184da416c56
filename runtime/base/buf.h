/* A growable byte buffer that is born with a ceiling.
 *
 * `data` is always NUL-terminated one past `len` once anything was added, so text can be read as a
 * C string. Not thread-safe; one owner. Growing past `max` fails and leaves what was there: the
 * error latches, so a chain of appends needs one check at its end.
 */
#ifndef NC_BASE_BUF_H
#define NC_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data;  /* owned; NULL while empty */
    size_t len;  /* bytes in use */
    size_t cap;  /* bytes allocated */
    size_t max;  /* ceiling for len */
    bool failed; /* an append did not fit, or memory ran out */
};

void buf_init(struct buf *b, size_t max);
void buf_free(struct buf *b); /* accepts a zeroed struct; leaves it zeroed but for max */

/* Each returns 0, or -1 once the buffer has failed. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void buf_clear(struct buf *b); /* len = 0, memory kept, failure forgotten */
char *buf_take(struct buf *b); /* the caller frees what is returned (never NULL unless failed) */
const char *buf_str(const struct buf *b); /* "" while empty; borrowed */

#endif
