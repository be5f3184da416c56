#include "archive/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/tree_writer.h"
#include "loop/loop.h"

enum { BLOCK = 256 * 1024 };

struct unpack {
    pthread_t thread;
    int fd;
    char *name;
    struct tree_writer *writer;
    uint64_t token;
    uint64_t room, declared; /* bytes that may be written, and that the entries so far said */
    char block[BLOCK];
    atomic_bool stop;
    struct unpack_result result;
    bool failed;
    struct nc_err err;
};

/* ---- reading ---- */

static la_ssize_t read_block(struct archive *a, void *arg, const void **data)
{
    struct unpack *u = arg;
    ssize_t n;
    do
        n = u->stop ? 0 : read(u->fd, u->block, sizeof u->block);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        archive_set_error(a, errno, "%s", strerror(errno));
    *data = u->block;
    return n;
}

/* What comes behind the end of the archive, for the sake of whoever writes it. */
static void drain(struct unpack *u)
{
    const void *data;
    struct archive *a = archive_read_new();
    while (a && read_block(a, u, &data) > 0)
        continue;
    archive_read_free(a);
}

static int broken(struct unpack *u, struct archive *a, const char *path, struct nc_err *err)
{
    const char *why = archive_error_string(a);
    return nc_err_set(err, "BadArchive", "%s%.300s%s%s", path ? "the entry \"" : "",
                      path ? path : "", path ? "\": " : "",
                      u->stop ? "it was stopped"
                      : why   ? why
                              : "it can't be read");
}

/* ---- entries ---- */

static int write_at(int fd, const char *data, size_t len, int64_t at, const char *path,
                    struct nc_err *err)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, data, len, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return nc_err_sys(err, n < 0 ? errno : ENOSPC, "write %s", path);
        data += n;
        len -= (size_t)n;
        at += n;
    }
    return 0;
}

/* The entry's data; what it leaves out is a hole. */
static int write_content(struct unpack *u, struct archive *a, int fd, const char *path,
                         int64_t size, struct nc_err *err)
{
    const void *data;
    size_t len;
    int64_t at;
    int rc;
    if (ftruncate(fd, size))
        return nc_err_sys(err, errno, "write %s", path);
    while ((rc = archive_read_data_block(a, &data, &len, &at)) == ARCHIVE_OK) {
        if (at < 0 || at > size || (int64_t)len > size - at)
            return nc_err_set(err, "BadArchive", "the entry \"%.300s\" holds more than its size",
                              path);
        if (write_at(fd, data, len, at, path, err))
            return -1;
    }
    return rc == ARCHIVE_EOF ? 0 : broken(u, a, path, err);
}

static int take_size(struct unpack *u, const char *path, int64_t size, struct nc_err *err)
{
    if (size < 0 || (uint64_t)size > u->room - u->declared)
        return nc_err_set(
            err, "ENOSPC",
            "the entry \"%.300s\" has a size of %lld bytes, which with the %llu before "
            "it is more than the %llu that are free",
            path, (long long)size, (unsigned long long)u->declared, (unsigned long long)u->room);
    u->declared += (uint64_t)size;
    return 0;
}

static int unpack_file(struct unpack *u, struct archive *a, struct archive_entry *e,
                       const char *path, struct nc_err *err)
{
    int64_t size = archive_entry_size_is_set(e) ? archive_entry_size(e) : -1;
    if (take_size(u, path, size, err))
        return -1;
    int fd = tree_writer_file(u->writer, path, archive_entry_perm(e), err);
    if (fd < 0)
        return -1;
    int rc = write_content(u, a, fd, path, size, err);
    if (rc == 0 && archive_entry_mtime_is_set(e)) {
        struct timespec times[2] = {
            {.tv_nsec = UTIME_OMIT},
            {.tv_sec = archive_entry_mtime(e), .tv_nsec = archive_entry_mtime_nsec(e)},
        };
        futimens(fd, times); /* a time that the file system can't hold is no reason to fail */
    }
    if (close(fd) && rc == 0)
        rc = nc_err_sys(err, errno, "write %s", path);
    if (rc == 0) {
        u->result.files++;
        u->result.bytes += (uint64_t)size;
    }
    return rc;
}

static int unpack_entry(struct unpack *u, struct archive *a, struct archive_entry *e,
                        struct nc_err *err)
{
    /* As the archive has it where that can be said in the current locale, which is "C". */
    const char *path = archive_entry_pathname(e);
    const char *hard = archive_entry_hardlink(e);
    if (!path)
        path = archive_entry_pathname_utf8(e);
    if (!hard)
        hard = archive_entry_hardlink_utf8(e);
    if (!path || !*path)
        return nc_err_set(err, "BadArchive", "an entry has no name");
    if (hard)
        return tree_writer_hardlink(u->writer, path, hard, err);
    switch (archive_entry_filetype(e)) {
    case AE_IFREG:
        return unpack_file(u, a, e, path, err);
    case AE_IFDIR:
        return tree_writer_folder(u->writer, path, archive_entry_perm(e), err);
    case AE_IFLNK: {
        const char *target = archive_entry_symlink(e);
        if (!target)
            target = archive_entry_symlink_utf8(e);
        return tree_writer_symlink(u->writer, path, target ? target : "", err);
    }
    default:
        return nc_err_set(err, "BadPath", "the entry \"%.300s\" is a device or a pipe", path);
    }
}

/* ---- the thread ---- */

static int unpack_all(struct unpack *u, struct archive *a, struct nc_err *err)
{
    struct archive_entry *e;
    int rc = archive_read_open(a, u, NULL, read_block, NULL);
    if (rc != ARCHIVE_OK)
        return broken(u, a, NULL, err);
    while ((rc = archive_read_next_header(a, &e)) == ARCHIVE_OK || rc == ARCHIVE_WARN) {
        if (unpack_entry(u, a, e, err))
            return -1;
    }
    return rc == ARCHIVE_EOF && !u->stop ? 0 : broken(u, a, NULL, err);
}

/* ARCHIVE_WARN would mean that another program has to unpack it, which an image may not have. */
static struct archive *new_reader(void)
{
    struct archive *a = archive_read_new();
    if (a && archive_read_support_filter_gzip(a) == ARCHIVE_OK &&
        archive_read_support_filter_zstd(a) == ARCHIVE_OK &&
        archive_read_support_format_tar(a) == ARCHIVE_OK)
        return a;
    archive_read_free(a);
    return NULL;
}

static void *run(void *arg)
{
    struct unpack *u = arg;
    struct archive *a = new_reader();
    struct nc_err err;
    u->failed = a ? unpack_all(u, a, &err) != 0
                  : nc_err_set(&err, "Unsupported", "libarchive has neither zlib nor zstd") != 0;
    archive_read_free(a);
    if (u->failed) {
        nc_err_set(&u->err, err.code, "unpack %s: %s", u->name, err.message);
    } else {
        drain(u);
    }
    close(u->fd); /* whoever writes is told so */
    u->fd = -1;
    loop_post(loop_main(), u->token, 0);
    return NULL;
}

/* ---- the main thread ---- */

/* Signals are for the main thread. */
static int start_thread(struct unpack *u, struct nc_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&u->thread, NULL, run, u);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        u->thread = 0;
    return failed ? nc_err_sys(err, failed, "start a thread") : 0;
}

int unpack_start(struct unpack **out, const struct unpack_options *opt, struct nc_err *err)
{
    struct unpack *u = calloc(1, sizeof *u);
    if (!u) {
        close(opt->fd);
        return nc_err_sys(err, ENOMEM, "unpack %s", opt->name);
    }
    u->fd = opt->fd;
    u->token = opt->token;
    u->name = strdup(opt->name);
    int rc = u->name ? tree_writer_new(&u->writer, opt->folder, err)
                     : nc_err_sys(err, ENOMEM, "unpack %s", opt->name);
    if (rc == 0) {
        u->room = tree_writer_room(u->writer);
        rc = start_thread(u, err);
    }
    if (rc) {
        unpack_free(u);
        return -1;
    }
    *out = u;
    return 0;
}

int unpack_result(const struct unpack *u, struct unpack_result *out, struct nc_err *err)
{
    *out = u->result;
    if (u->failed)
        *err = u->err;
    return u->failed ? -1 : 0;
}

void unpack_free(struct unpack *u)
{
    if (!u)
        return;
    u->stop = true;
    if (u->thread)
        pthread_join(u->thread, NULL);
    if (u->fd >= 0)
        close(u->fd);
    tree_writer_free(u->writer);
    free(u->name);
    free(u);
}
