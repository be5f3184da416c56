/* Files with holes. */
#ifndef NC_DISK_SPARSE_H
#define NC_DISK_SPARSE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* It has fewer blocks than its size needs. */
bool sparse_is(const struct stat *st);
/* The next stretch of data in [at, end) of the file; false where only a hole is left. A file system
 * that does not tell holes has none. */
bool sparse_next_data(int fd, uint64_t at, uint64_t end, uint64_t *from, uint64_t *until);

#endif
