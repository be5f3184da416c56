/* Writes files, folders and links below one folder, and nowhere else, whatever their names say.
 *
 * A path is walked part by part from the folder's own descriptor and never through a symbolic link,
 * so that no name, and no link that an earlier entry has made, leads out of it. A symbolic link is
 * made only where its target lies in the tree too: relative, its `..` all at the beginning and no
 * more of them than folders above it. A hard link is made only to a regular file of the tree. What
 * is there under a name is replaced, but for folders.
 *
 * One thread at a time. Paths are those of an archive: relative, '/' between their parts.
 */
#ifndef NC_ARCHIVE_TREE_WRITER_H
#define NC_ARCHIVE_TREE_WRITER_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct tree_writer;

/* The folder must be there. */
int tree_writer_new(struct tree_writer **out, const char *folder, struct nc_err *err);
void tree_writer_free(struct tree_writer *); /* accepts NULL */

/* Bytes that may still be written there; UINT64_MAX where the file system does not say. */
uint64_t tree_writer_room(const struct tree_writer *);

/* Why no entry of this name may be written ("is absolute", ...), or NULL. Looks at the name alone.
 */
const char *tree_writer_why_not(const char *path);

/* The errors have the code "BadPath" where the entry is refused, else errno's name. The mode's
 * permissions are taken, less the umask. */
int tree_writer_folder(struct tree_writer *, const char *path, mode_t mode, struct nc_err *err);
/* -> a descriptor of the new, empty file, open for writing, which the caller closes; or -1 */
int tree_writer_file(struct tree_writer *, const char *path, mode_t mode, struct nc_err *err);
int tree_writer_symlink(struct tree_writer *, const char *path, const char *target,
                        struct nc_err *err);
int tree_writer_hardlink(struct tree_writer *, const char *path, const char *target,
                         struct nc_err *err);

#endif
