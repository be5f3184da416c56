/* Unpacks a tar archive (plain, gzip or zstd; libarchive reads it) while its bytes come.
 *
 * A thread of its own reads a descriptor, a pipe or a file, and writes below one folder
 * (tree_writer.h). The first entry that is refused ends it, by name: one that would lie outside, a
 * device, or one whose size, with that of those before it and the holes of sparse files counted in
 * full, is more than the file system had room for. What was unpacked until then stays. Owners and
 * the bits beyond rwx are not taken over; times of files are.
 *
 * Started, asked and freed by the main thread.
 */
#ifndef NC_ARCHIVE_UNPACK_H
#define NC_ARCHIVE_UNPACK_H

#include <stdint.h>

#include "base/err.h"

struct unpack;

struct unpack_options {
    int fd;             /* where the archive's bytes come from; taken over, whatever happens */
    const char *name;   /* the archive's, for messages */
    const char *folder; /* which must be there */
    uint64_t token;     /* posted to the main loop at the end */
};

struct unpack_result {
    uint64_t files, bytes; /* regular files, and their bytes as they lie there */
};

int unpack_start(struct unpack **out, const struct unpack_options *opt, struct nc_err *err);
/* After the token: 0, or -1 and why it ended early. */
int unpack_result(const struct unpack *, struct unpack_result *out, struct nc_err *err);
/* Ends it and waits for that; whoever writes into the pipe must have closed it. Accepts NULL. */
void unpack_free(struct unpack *);

#endif
