#include "disk/direct.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { XFS_MAGIC = 0x58465342 }; /* linux/magic.h has it since 6.8 */

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

int direct_open(const char *path, int fd)
{
    struct statfs st;
    if (fstatfs(fd, &st) || (st.f_type != EXT4_SUPER_MAGIC && st.f_type != XFS_MAGIC))
        return -1;
    int direct = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    if (direct >= 0 && !fits(direct)) {
        close(direct);
        return -1;
    }
    return direct;
}
