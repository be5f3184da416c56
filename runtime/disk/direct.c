#include "disk/direct.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    XFS_MAGIC = 0x58465342, /* linux/magic.h has it since 6.8 */
    COLD_PAGES = 8,         /* one of so many may be in the page cache */
    LOOK_PAGES = 4096,      /* looked at in one call */
};

bool direct_pays(int fd)
{
    struct statfs st;
    return fstatfs(fd, &st) == 0 && (st.f_type == EXT4_SUPER_MAGIC || st.f_type == XFS_MAGIC);
}

static bool fits(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 && (st.stx_mask & STATX_DIOALIGN))
        return st.stx_dio_mem_align && st.stx_dio_mem_align <= DIRECT_ALIGN &&
               st.stx_dio_offset_align && st.stx_dio_offset_align <= DIRECT_ALIGN;
#endif
    (void)fd;
    return true; /* an older kernel does not say; what can't be written so is written otherwise */
}

static int open_again(const char *path, int fd, int access)
{
    if (!direct_pays(fd))
        return -1;
    int direct = open(path, access | O_DIRECT | O_CLOEXEC);
    if (direct >= 0 && !fits(direct)) {
        close(direct);
        return -1;
    }
    return direct;
}

int direct_open(const char *path, int fd)
{
    return open_again(path, fd, O_WRONLY);
}

/* Pages of a mapping that are in the page cache; all of them where that can't be told. */
static size_t pages_in_cache(char *mapping, size_t pages, size_t page)
{
    unsigned char is_in[LOOK_PAGES];
    size_t in = 0;
    for (size_t at = 0, n; at < pages; at += n) {
        n = pages - at < LOOK_PAGES ? pages - at : LOOK_PAGES;
        if (mincore(mapping + at * page, n * page, is_in))
            return pages;
        for (size_t i = 0; i < n; i++)
            in += is_in[i] & 1;
    }
    return in;
}

static bool is_cold(int fd, uint64_t offset, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (len + page - 1) / page;
    if (!len || offset % page)
        return false;
    char *mapping = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    if (mapping == MAP_FAILED)
        return false;
    size_t in = pages_in_cache(mapping, pages, page);
    munmap(mapping, len);
    return in <= pages / COLD_PAGES;
}

int direct_open_cold(int fd, uint64_t offset, size_t len)
{
    char path[32]; /* the file itself, whatever has become of its name */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    /* In this order: to know the kind of a network file system is to ask its server. */
    return is_cold(fd, offset, len) ? open_again(path, fd, O_RDONLY) : -1;
}

size_t direct_read(int fd, char *data, size_t len, uint64_t offset)
{
    size_t whole = len / DIRECT_ALIGN * DIRECT_ALIGN, at = 0;
    while (at < whole && ((uintptr_t)(data + at) | (offset + at)) % DIRECT_ALIGN == 0) {
        ssize_t n = pread(fd, data + at, whole - at, (off_t)(offset + at));
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    return at;
}
