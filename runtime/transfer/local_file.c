#include "transfer/local_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct local_files {
    char *path;
    int root; /* descriptor of the folder, or -1 and the reason */
    int why;
};

struct local_files *local_files_new(const char *folder)
{
    struct local_files *l = calloc(1, sizeof *l);
    if (!l || !(l->path = strdup(folder))) {
        free(l);
        return NULL;
    }
    l->root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    l->why = errno;
    return l;
}

void local_files_free(struct local_files *l)
{
    if (!l)
        return;
    if (l->root >= 0)
        close(l->root);
    free(l->path);
    free(l);
}

void local_file_init(struct local_file *f)
{
    *f = (struct local_file){.fd = -1};
    pthread_mutex_init(&f->lock, NULL);
}

void local_file_free(struct local_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    pthread_mutex_destroy(&f->lock);
}

static int open_it(struct local_file *f, const struct local_files *l, const struct file *file,
                   struct nc_err *err)
{
    if (l->root < 0)
        return nc_err_sys(err, l->why, "open %s", l->path);
    int fd = openat(l->root, file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return nc_err_sys(err, errno, "open %s/%s", l->path, file->path);
    if (fstat(fd, &f->first)) {
        int saved = errno;
        close(fd);
        return nc_err_sys(err, saved, "look at %s/%s", l->path, file->path);
    }
    f->fd = fd;
    return 0;
}

int local_file_open(struct local_file *f, const struct local_files *l, const struct file *file,
                    struct nc_err *err)
{
    pthread_mutex_lock(&f->lock);
    int rc = f->fd >= 0 ? 0 : open_it(f, l, file, err);
    pthread_mutex_unlock(&f->lock);
    return rc ? rc : local_file_check(f, file, err);
}

int local_file_check(struct local_file *f, const struct file *file, struct nc_err *err)
{
    struct stat now;
    if (fstat(f->fd, &now))
        return nc_err_sys(err, errno, "look at %s", file->path);
    if (now.st_size != f->first.st_size || now.st_mtim.tv_sec != f->first.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != f->first.st_mtim.tv_nsec)
        return nc_err_set(err, "Changed", "%s: it was written to while it was read", file->path);
    return 0;
}

int local_file_read(struct local_file *f, const struct local_files *l, const struct file *file,
                    uint64_t offset, char *data, size_t len, struct nc_err *err)
{
    pthread_mutex_lock(&f->lock);
    int rc = f->fd >= 0 ? 0 : open_it(f, l, file, err);
    pthread_mutex_unlock(&f->lock);
    for (size_t at = 0; rc == 0 && at < len;) {
        ssize_t n = pread(f->fd, data + at, len - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = nc_err_sys(err, errno, "read %s/%s", l->path, file->path);
        else if (n == 0)
            rc = nc_err_set(err, "ShortBody", "read %s/%s: it ended after %llu of %llu bytes",
                            l->path, file->path, (unsigned long long)(offset + at),
                            (unsigned long long)file->size);
        at += n > 0 ? (size_t)n : 0;
    }
    return rc;
}
