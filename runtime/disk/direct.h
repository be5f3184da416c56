/* Past the page cache (O_DIRECT), where that is known to pay: on ext4 and XFS. Writing takes a
 * quarter of the CPU time so, and leaves no dirty pages; reading what is in no cache takes a third,
 * and pushes nothing out of it. */
#ifndef NC_DISK_DIRECT_H
#define NC_DISK_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIRECT_ALIGN 4096              /* memory, offsets and lengths are multiples of it */
#define DIRECT_BLOCK (2 * 1024 * 1024) /* a huge page; smaller ones are slower */

/* The open file is on such a file system. */
bool direct_pays(int fd);

/* To write to: the file at path, open as `fd` already, once more; -1: not worth it, or not possible
 * there. */
int direct_open(const char *path, int fd);

/* To read len bytes at offset from: the file open as `fd`, once more; -1 likewise, and where the
 * page cache has more than one in eight of their pages, or does not tell (of a file that is not
 * ours, nor ours to write). */
int direct_open_cold(int fd, uint64_t offset, size_t len);
/* Of the bytes at offset, as many as can be read so; the rest, an end that fills no page or one
 * that can't be read at all, is for the descriptor that it was made from. */
size_t direct_read(int fd, char *data, size_t len, uint64_t offset);

#endif
