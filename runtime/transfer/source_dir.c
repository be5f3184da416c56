#include "transfer/ends.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct source_dir {
    struct source base;
    char *path;
    int root; /* descriptor of the folder, or -1 and the reason */
    int why;
};

static int read_range(const struct source_dir *s, int fd, const struct part *part,
                      struct nc_err *err)
{
    for (size_t at = 0; at < part->len;) {
        ssize_t n = pread(fd, part->data + at, part->len - at, (off_t)(part->offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return nc_err_sys(err, errno, "read %s/%s", s->path, part->file->path);
        if (n == 0)
            return nc_err_set(err, "ShortBody", "read %s/%s: it ended after %llu of %llu bytes",
                              s->path, part->file->path, (unsigned long long)(part->offset + at),
                              (unsigned long long)part->file->size);
        at += (size_t)n;
    }
    return 0;
}

static enum op fetch(struct source *self, struct part *part, struct nc_err *err)
{
    const struct source_dir *s = (struct source_dir *)self;
    if (s->root < 0) {
        nc_err_sys(err, s->why, "open %s", s->path);
        return OP_FAILED;
    }
    int fd = openat(s->root, part->file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        nc_err_sys(err, errno, "open %s/%s", s->path, part->file->path);
        return OP_FAILED;
    }
    int rc = read_range(s, fd, part, err);
    close(fd);
    if (rc)
        return OP_FAILED;
    atomic_fetch_add(transfer_bytes_in(part->file->transfer), part->len);
    return OP_OVER;
}

static void on_part(struct source *self, struct part *part)
{
    (void)self;
    (void)part;
}

static void forget(struct source *self, struct file *f)
{
    (void)self;
    (void)f;
}

static void free_source(struct source *self)
{
    struct source_dir *s = (struct source_dir *)self;
    if (s->root >= 0)
        close(s->root);
    free(s->path);
    free(s);
}

struct source *source_dir_new(const char *root)
{
    struct source_dir *s = calloc(1, sizeof *s);
    if (!s || !(s->path = strdup(root))) {
        free(s);
        return NULL;
    }
    s->base = (struct source){true, fetch, on_part, on_part, forget, free_source};
    s->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    s->why = errno;
    return &s->base;
}
