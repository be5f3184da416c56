/* Files of a folder (source_data of those of source_dir_new) as several parts read them, from any
 * thread: opened once, and noticed when somebody writes to them in the meantime. Private to
 * transfer/. */
#ifndef NC_TRANSFER_LOCAL_FILE_H
#define NC_TRANSFER_LOCAL_FILE_H

#include "transfer/transfer.h"

#include <pthread.h>
#include <sys/stat.h>

/* The folder; NULL only without memory. */
struct local_files;
struct local_files *local_files_new(const char *folder);
void local_files_free(struct local_files *l); /* NULL is allowed */

struct local_file {
    pthread_mutex_t lock;
    int fd;            /* -1 until it is first read */
    struct stat first; /* as it was then */
};

void local_file_init(struct local_file *f);
void local_file_free(struct local_file *f);
/* Opens it where it is not open. -1: it is not there, or is not what it was at first ("Changed").
 */
int local_file_open(struct local_file *f, const struct local_files *l, const struct file *file,
                    struct nc_err *err);
/* Exactly these bytes; opens it first. */
int local_file_read(struct local_file *f, const struct local_files *l, const struct file *file,
                    uint64_t offset, char *data, size_t len, struct nc_err *err);
/* -1, "Changed": it is not what it was when it was opened. */
int local_file_check(struct local_file *f, const struct file *file, struct nc_err *err);

#endif
