#include "disk/writeback.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>

static const uint64_t window = (uint64_t)2 << 20;
static const uint64_t dirty_most = (uint64_t)48 << 20;

void writeback_init(struct writeback *w, const char *folder)
{
    struct statfs st;
    *w = (struct writeback){0};
    if (statfs(folder, &st) == 0)
        w->in_memory = st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC;
}

/* Hints, all of them: a file system may know no such thing, and fsync tells of errors. */
static void start_writing(int fd, uint64_t from, uint64_t len)
{
    sync_file_range(fd, (off_t)from, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

static void wait_for(struct writeback *w, struct writeback_span *s, int fd, uint64_t start,
                     uint64_t until, bool keep)
{
    uint64_t len = until - s->waited;
    off_t from = (off_t)(start + s->waited);
    if (!len)
        return;
    sync_file_range(fd, from, (off_t)len,
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                        SYNC_FILE_RANGE_WAIT_AFTER);
    if (!keep)
        posix_fadvise(fd, from, (off_t)len, POSIX_FADV_DONTNEED);
    s->waited = until;
    atomic_fetch_sub(&w->dirty, len);
}

void writeback_wrote(struct writeback *w, struct writeback_span *s, int fd, uint64_t start,
                     size_t len, bool keep)
{
    if (w->in_memory)
        return;
    uint64_t before = s->written / window;
    s->written += len;
    uint64_t now = s->written / window;
    uint64_t dirty = atomic_fetch_add(&w->dirty, len) + len;
    if (now > before)
        start_writing(fd, start + before * window, (now - before) * window);
    if (dirty > dirty_most && now * window > s->waited)
        wait_for(w, s, fd, start, now * window, keep);
}

void writeback_end(struct writeback *w, struct writeback_span *s, int fd, uint64_t start, bool keep)
{
    wait_for(w, s, fd, start, s->written, keep);
}

void writeback_drop(struct writeback *w, struct writeback_span *s)
{
    atomic_fetch_sub(&w->dirty, s->written - s->waited);
    *s = (struct writeback_span){0};
}
