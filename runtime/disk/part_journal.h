/* The journal of a half-written file: which of its parts are there, each with its digest, so that
 * another process can go on. Pure.
 *
 * Text, a line each:
 *   ncrun parts 1
 *   <size> <part size> <version>      of what is being written; the version is the rest of the line
 *   <part from 0> <XXH3-128 in hex>   appended when all of the part's bytes have been written
 *
 * A line that was cut short by a crash is no line. Digests make it safe to believe the others: the
 * bytes are read and compared before anything is built on them. */
#ifndef NC_DISK_PART_JOURNAL_H
#define NC_DISK_PART_JOURNAL_H

#include "base/buf.h"
#include "base/digest.h"

#include <stdbool.h>
#include <stdint.h>

#define PART_JOURNAL_LINE_SIZE (10 + 1 + XXH3_HEX_SIZE - 1 + 1 + 1)

/* Whether a version can be written down. */
bool part_journal_takes(const char *version);
/* Adds the first two lines. */
int part_journal_head(struct buf *out, uint64_t size, uint64_t part_size, const char *version);
/* One line; its length. */
size_t part_journal_line(char out[PART_JOURNAL_LINE_SIZE], uint32_t index, const char *xxh3);
/* Calls has for every part below `parts` that a journal of this very content lists. -1: it is of
 * another content, or none at all. */
int part_journal_read(const char *text, size_t len, uint64_t size, uint64_t part_size,
                      const char *version, uint32_t parts,
                      void (*has)(void *arg, uint32_t index, const char *xxh3), void *arg);

#endif
