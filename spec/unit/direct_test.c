/* Reading past the page cache what is not in it: which files that is done with, and what comes. */
#include "disk/direct.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "unit.h"

enum { MIB = 1024 * 1024, SIZE = 5 * MIB + 4096 + 17 };

static char bytes[SIZE];
static char *block; /* page by page */

/* An open file of these bytes that has no name any more. */
static int new_file(const char *folder)
{
    char path[64];
    snprintf(path, sizeof path, "%s/direct.XXXXXX", folder);
    int fd = mkstemp(path);
    if (fd < 0 || unlink(path) || write(fd, bytes, SIZE) != SIZE || fsync(fd))
        exit(1);
    return fd;
}

static void forget(int fd)
{
    if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
        exit(1);
}

static bool opens(int fd, uint64_t offset, size_t len)
{
    int direct = direct_open_cold(fd, offset, len);
    if (direct >= 0)
        close(direct);
    return direct >= 0;
}

static bool comes(int direct, uint64_t offset, size_t len, size_t want)
{
    memset(block, 0, 2 * MIB);
    return direct_read(direct, block, len, offset) == want &&
           memcmp(block, bytes + offset, want) == 0 && block[want] == 0;
}

static void test_on_disk(int fd)
{
    CHECK(!opens(fd, 0, SIZE), "a file that has just been written is in the page cache");
    forget(fd);
    CHECK(!opens(fd, 0, 0) && !opens(fd, 100, MIB),
          "nothing, and half of a page, are not worth it");
    CHECK(opens(fd, MIB, SIZE - MIB), "one that is not there is read past it, also without a name");

    int direct = direct_open_cold(fd, 0, SIZE);
    CHECK(comes(direct, 0, MIB, MIB), "whole pages come");
    CHECK(comes(direct, 5 * MIB, 4096 + 17, 4096), "an end that fills no page is left out");
    CHECK(comes(direct, 5 * MIB + 4096, 17, 0), "even if nothing else is asked for");
    CHECK(comes(direct, 512, MIB, 0), "so is what does not begin with a page");
    CHECK(direct_read(direct, block + 1, MIB, 0) == 0, "in the file or in memory");
    CHECK(opens(fd, 0, SIZE), "and none of it is in the page cache now");
    CHECK(ftruncate(fd, MIB + 1) == 0 && direct_read(direct, block, 2 * MIB, 0) <= MIB + 1,
          "of a file that has lost its end, no more than there is");
    close(direct);

    CHECK(pread(fd, block, MIB, 0) == MIB && !opens(fd, 0, MIB), "what was read is in it again");
}

static void test_elsewhere(int fd)
{
    forget(fd);
    CHECK(!opens(fd, 0, SIZE), "on another file system nothing is read past the page cache");
}

int main(void)
{
    static const char *const folders[] = {"/tmp", "/dev/shm"};
    if (posix_memalign((void **)&block, DIRECT_ALIGN, 2 * MIB + DIRECT_ALIGN))
        return 1;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(1 + i % 251);
    for (size_t i = 0; i < 2; i++) {
        int fd = new_file(folders[i]);
        (direct_pays(fd) ? test_on_disk : test_elsewhere)(fd);
        close(fd);
    }
    free(block);
    return unit_done();
}
