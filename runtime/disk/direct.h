/* Writing past the page cache (O_DIRECT), where that is known to pay: on ext4 and XFS it takes a
 * quarter of the CPU time, and leaves no dirty pages. Memory, offsets and lengths are multiples of
 * DIRECT_ALIGN. */
#ifndef NC_DISK_DIRECT_H
#define NC_DISK_DIRECT_H

#define DIRECT_ALIGN 4096
#define DIRECT_BLOCK (2 * 1024 * 1024) /* a huge page; smaller ones are slower */

/* The file at path, open as `fd` already, once more; -1: not worth it, or not possible there. */
int direct_open(const char *path, int fd);

#endif
