#include "transfer/ends.h"

#include "disk/sparse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_STEP = 128 * 1024 };

struct source_dir {
    struct source base;
    char *path;
    int root; /* descriptor of the folder, or -1 and the reason */
    int why;
    pthread_mutex_t lock; /* guards every file's source_data: its struct stat at the first part */
};

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_ino == b->st_ino &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* One that somebody writes to while we read would come out as neither the old nor the new. */
static int check_same(struct source_dir *s, int fd, struct file *f, struct nc_err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return nc_err_sys(err, errno, "look at %s/%s", s->path, f->path);
    pthread_mutex_lock(&s->lock);
    struct stat *first = f->source_data;
    if (!first && (first = f->source_data = malloc(sizeof st)))
        *first = st;
    bool same = first && same_file(first, &st);
    pthread_mutex_unlock(&s->lock);
    if (!first)
        return nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
    if (!same)
        return nc_err_set(err, "Changed", "%s/%s: it was changed while it was read", s->path,
                          f->path);
    return 0;
}

static int read_stretch(const struct source_dir *s, int fd, struct part *p, uint64_t until,
                        struct nc_err *err)
{
    const struct file *f = p->file;
    while (p->offset + p->taken < until) {
        size_t room;
        uint64_t offset = p->offset + p->taken, left = until - offset;
        char *to = transfer_part_room(p, &room);
        if (room > READ_STEP)
            room = READ_STEP;
        ssize_t n = pread(fd, to, room < left ? room : (size_t)left, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return nc_err_sys(err, errno, "read %s/%s", s->path, f->path);
        if (n == 0)
            return nc_err_set(err, "ShortBody", "read %s/%s: it ended after %llu of %llu bytes",
                              s->path, f->path, (unsigned long long)offset,
                              (unsigned long long)f->size);
        atomic_fetch_add(transfer_bytes_in(f->transfer), (uint64_t)n);
        if (transfer_part_took(p, (size_t)n, err))
            return -1;
    }
    return 0;
}

static int read_part(const struct source_dir *s, int fd, struct part *p, struct nc_err *err)
{
    uint64_t end = p->offset + p->len, from, until;
    struct stat st;
    if (transfer_part_begin(p, err))
        return -1;
    bool holes = p->file->streamed && fstat(fd, &st) == 0 && sparse_is(&st);
    if (!holes || (uint64_t)st.st_size < end) /* what is beyond its end is no hole */
        return read_stretch(s, fd, p, end, err);
    while (sparse_next_data(fd, p->offset + p->taken, end, &from, &until)) {
        uint64_t hole = from - (p->offset + p->taken);
        atomic_fetch_add(transfer_bytes_in(p->file->transfer), hole);
        if (transfer_part_skip(p, (size_t)hole, err) || read_stretch(s, fd, p, until, err))
            return -1;
    }
    size_t hole = p->len - p->taken;
    atomic_fetch_add(transfer_bytes_in(p->file->transfer), hole);
    return transfer_part_skip(p, hole, err);
}

static enum op fetch(struct source *self, struct part *p, struct nc_err *err)
{
    struct source_dir *s = (struct source_dir *)self;
    struct file *f = p->file;
    if (s->root < 0) {
        nc_err_sys(err, s->why, "open %s", s->path);
        return OP_FAILED;
    }
    int fd = openat(s->root, f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        nc_err_sys(err, errno, "open %s/%s", s->path, f->path);
        return OP_FAILED;
    }
    bool well = check_same(s, fd, f, err) == 0 && read_part(s, fd, p, err) == 0 &&
                check_same(s, fd, f, err) == 0;
    close(fd);
    return well ? OP_OVER : OP_FAILED;
}

static void on_part(struct source *self, struct part *part)
{
    (void)self;
    (void)part;
}

static void forget(struct source *self, struct file *f)
{
    (void)self;
    free(f->source_data);
    f->source_data = NULL;
}

static void free_source(struct source *self)
{
    struct source_dir *s = (struct source_dir *)self;
    if (s->root >= 0)
        close(s->root);
    pthread_mutex_destroy(&s->lock);
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
    pthread_mutex_init(&s->lock, NULL);
    s->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    s->why = errno;
    return &s->base;
}
