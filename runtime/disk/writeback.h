/* Writing without letting dirty pages pile up: NFS mounts stall when some GiB of them wait, and a
 * disk is faster when it is kept busy from the start.
 *
 * Every 2 MiB that a writer has written go on their way at once; where all writers together have
 * more than 48 MiB that are not known to be on the disk, the writer at hand waits for its own. What
 * has been waited for leaves the page cache: checkpoints are larger than memory, and in a container
 * the cache counts. In memory file systems nothing of this is done.
 *
 * Any thread; a span belongs to one writer at a time. */
#ifndef NC_DISK_WRITEBACK_H
#define NC_DISK_WRITEBACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct writeback {
    bool in_memory;         /* the file system is */
    _Atomic uint64_t dirty; /* bytes written and not waited for */
};

/* A stretch of a file that one writer writes from front to back. */
struct writeback_span {
    uint64_t written, waited; /* bytes from its start */
};

/* folder: where the files will be. */
void writeback_init(struct writeback *w, const char *folder);
/* len bytes more of the span, which starts at `start` in the file, have been written. keep: they
 * will be read again soon. */
void writeback_wrote(struct writeback *w, struct writeback_span *s, int fd, uint64_t start,
                     size_t len, bool keep);
/* Waits for the rest of it. */
void writeback_end(struct writeback *w, struct writeback_span *s, int fd, uint64_t start,
                   bool keep);
/* It counts no longer, however far it is; it may begin anew. */
void writeback_drop(struct writeback *w, struct writeback_span *s);

#endif
