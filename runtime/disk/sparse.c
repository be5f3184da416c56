#include "disk/sparse.h"

#include <errno.h>
#include <unistd.h>

enum { STAT_BLOCK = 512 }; /* st_blocks counts these, whatever the file system's are */

bool sparse_is(const struct stat *st)
{
    return (uint64_t)st->st_blocks * STAT_BLOCK < (uint64_t)st->st_size;
}

bool sparse_next_data(int fd, uint64_t at, uint64_t end, uint64_t *from, uint64_t *until)
{
    if (at >= end)
        return false;
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    if (data < 0 && errno == ENXIO)
        return false;
    *from = data < 0 ? at : (uint64_t)data;
    if (*from >= end)
        return false;
    off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    *until = hole < 0 || (uint64_t)hole > end ? end : (uint64_t)hole;
    return true;
}
