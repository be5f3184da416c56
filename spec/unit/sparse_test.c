/* Files with holes: the stretches of data are told in order, and what is outside them is zeros. */
#include "disk/sparse.h"

#include <stdlib.h>
#include <unistd.h>

#include "unit.h"

enum { MIB = 1024 * 1024, SIZE = 8 * MIB };

static char bytes[SIZE];
static int fd;

static void put(uint64_t at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[at + i] = (char)(1 + (at + i) % 251);
    if (pwrite(fd, bytes + at, len, (off_t)at) != (ssize_t)len)
        exit(1);
}

/* The stretches in [at, end) hold every byte that is not zero, and nothing beyond. */
static bool are_told(uint64_t at, uint64_t end)
{
    uint64_t from, until, after = at;
    while (sparse_next_data(fd, after, end, &from, &until)) {
        if (from < after || until <= from || until > end)
            return false;
        for (; after < from; after++) {
            if (bytes[after])
                return false;
        }
        after = until;
    }
    for (; after < end; after++) {
        if (bytes[after])
            return false;
    }
    return true;
}

static bool says_sparse(void)
{
    struct stat st;
    fsync(fd);
    return fstat(fd, &st) == 0 && sparse_is(&st);
}

int main(void)
{
    char path[] = "/tmp/sparse.XXXXXX";
    uint64_t from, until;
    fd = mkstemp(path);
    unlink(path);
    CHECK(!says_sparse() && !sparse_next_data(fd, 0, 0, &from, &until),
          "an empty file has neither data nor holes");
    if (ftruncate(fd, SIZE))
        return 1;
    CHECK(says_sparse(), "one without blocks is sparse");
    CHECK(are_told(0, SIZE), "and all of it zeros");
    put(MIB, MIB);
    put(4 * MIB + 12345, 100);
    put(SIZE - 1, 1);
    CHECK(says_sparse(), "one with some is, too");
    CHECK(are_told(0, SIZE), "every byte is in a stretch");
    CHECK(are_told(MIB + 4097, 4 * MIB + 12400), "where a stretch is cut at both ends, too");
    CHECK(are_told(5 * MIB, 6 * MIB), "or where there is none");
    CHECK(sparse_next_data(fd, MIB + 4097, MIB + 8000, &from, &until) && from == MIB + 4097 &&
              until == MIB + 8000,
          "within data it is as long as was asked for");
    CHECK(!sparse_next_data(fd, 2 * MIB, 2 * MIB, &from, &until) &&
              !sparse_next_data(fd, 2 * MIB, MIB, &from, &until),
          "nothing is in nothing");
    put(0, SIZE);
    CHECK(!says_sparse(), "one that is full is not");
    CHECK(sparse_next_data(fd, 0, SIZE, &from, &until) && from == 0 && until == SIZE,
          "and is one stretch");
    CHECK(!sparse_next_data(fd, SIZE, 2 * SIZE, &from, &until), "beyond its end there is none");
    int fds[2];
    if (pipe(fds))
        return 1;
    CHECK(sparse_next_data(fds[0], 5, 10, &from, &until) && from == 5 && until == 10,
          "where holes are not told, all is data");
    close(fd);
    return unit_done();
}
