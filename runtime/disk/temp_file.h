/* A file on its way to its name: NAME.<8 hex digits>.part in the same folder, with a journal of its
 * parts beside it where another process may go on with it. A final name is complete or absent.
 *
 * Whoever writes one holds a lock (flock) on it, so that a run tells what a dead one has left from
 * what a live one is writing. */
#ifndef NC_DISK_TEMP_FILE_H
#define NC_DISK_TEMP_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct temp_file {
    int fd, journal; /* -1: not open */
    bool journaled;  /* there may be a journal */
    char *path;      /* of the .part; NULL once it has its final name; owned */
    char *final;     /* owned */
};

/* An empty one; folders that are missing are made. */
int temp_file_create(struct temp_file *t, const char *final, struct nc_err *err);
/* Goes on with `path`, which it takes over. -1 where that is somebody else's or can't be opened. */
int temp_file_adopt(struct temp_file *t, const char *final, char *path);
/* What its journal says; NULL: nothing. For the caller to free. */
char *temp_file_journal(const struct temp_file *t, size_t *len);
/* Adds to the journal, which begins with head. */
int temp_file_note(struct temp_file *t, const char *head, const char *line, size_t len,
                   struct nc_err *err);
/* Every byte is on the disk, and whatever went wrong on the way there is told. */
int temp_file_sync(const struct temp_file *t, struct nc_err *err);
/* It takes its final name, in place of what had it; temp_file_sync_folder makes that lasting. */
int temp_file_publish(struct temp_file *t, struct nc_err *err);
/* Closes it, and unless keep is set removes what has no final name. Accepts one whose create or
 * adopt failed. */
void temp_file_close(struct temp_file *t, bool keep);

/* The entries of the folder that holds `path` are on the disk. */
int temp_file_sync_folder(const char *path, struct nc_err *err);

#endif
