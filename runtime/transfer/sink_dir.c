#include "transfer/ends.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 256 * 1024, WINDOW = 8 * 1024 * 1024 };

struct sink_dir {
    struct sink base;
    char *root;
};

struct dir_file {
    int fd;
    char *temp, *final; /* whole paths */
};

/* Makes every folder above the last '/' of path. */
static int make_folders(char *path, struct nc_err *err)
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        int rc = mkdir(path, 0777);
        int saved = errno;
        *p = '/';
        if (rc && saved != EEXIST)
            return nc_err_sys(err, saved, "make the folders of %s", path);
    }
    return 0;
}

static struct dir_file *new_file(const struct sink_dir *s, const struct file *f)
{
    uint32_t random = 0;
    struct dir_file *d = calloc(1, sizeof *d);
    struct buf path;
    if (!d)
        return NULL;
    d->fd = -1;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        random = (uint32_t)getpid();
    buf_init(&path, 64 * 1024);
    buf_printf(&path, "%s/%s", s->root, f->path);
    d->final = buf_take(&path);
    buf_printf(&path, "%s.%08x.part", d->final ? d->final : "", random);
    d->temp = buf_take(&path);
    buf_free(&path);
    if (d->final && d->temp)
        return d;
    free(d->final);
    free(d->temp);
    free(d);
    return NULL;
}

/* Space is asked for at once, so that a full disk is noticed before the bytes are on their way. */
static enum op open_file(struct sink *self, struct file *f, struct nc_err *err)
{
    struct dir_file *d = new_file((struct sink_dir *)self, f);
    if (!d) {
        nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
        return OP_FAILED;
    }
    f->sink_data = d;
    if (make_folders(d->temp, err))
        return OP_FAILED;
    d->fd = open(d->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (d->fd < 0) {
        nc_err_sys(err, errno, "create %s", d->temp);
        return OP_FAILED;
    }
    if (f->size && fallocate(d->fd, 0, 0, (off_t)f->size) && errno != EOPNOTSUPP &&
        errno != ENOSYS) {
        nc_err_sys(err, errno, "make room for %s (%llu bytes)", d->final,
                   (unsigned long long)f->size);
        return OP_FAILED;
    }
    return OP_OVER;
}

/* Writeback starts behind every window and is waited for one window later: NFS mounts stall when
 * dirty pages pile up. The hint may fail where a file system knows no such thing. */
static void write_back(int fd, uint64_t offset, size_t at, bool last)
{
    size_t start = (at - 1) / WINDOW * WINDOW;
    if (at % WINDOW && !last)
        return;
    sync_file_range(fd, (off_t)(offset + start), (off_t)(at - start), SYNC_FILE_RANGE_WRITE);
    if (start) {
        off_t before = (off_t)(offset + start - WINDOW);
        sync_file_range(fd, before, WINDOW,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
        posix_fadvise(fd, before, WINDOW, POSIX_FADV_DONTNEED);
    }
}

static enum op store(struct sink *self, struct part *part, struct nc_err *err)
{
    (void)self;
    const struct dir_file *d = part->file->sink_data;
    for (size_t at = 0; at < part->len;) {
        size_t len = part->len - at < BLOCK ? part->len - at : BLOCK;
        ssize_t n = pwrite(d->fd, part->data + at, len, (off_t)(part->offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            nc_err_sys(err, n ? errno : EIO, "write %s", d->temp);
            return OP_FAILED;
        }
        at += (size_t)n;
        write_back(d->fd, part->offset, at, at == part->len);
    }
    atomic_fetch_add(transfer_bytes_out(part->file->transfer), part->len);
    return OP_OVER;
}

static int sync_folder(const char *path, struct nc_err *err)
{
    struct buf folder;
    buf_init(&folder, 64 * 1024);
    buf_add(&folder, path, (size_t)(strrchr(path, '/') - path));
    int fd = open(buf_str(&folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || (fsync(fd) && errno != EINVAL) ? -1 : 0;
    if (rc)
        nc_err_sys(err, errno, "sync %s", buf_str(&folder));
    if (fd >= 0)
        close(fd);
    buf_free(&folder);
    return rc;
}

static enum op finish(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)self;
    struct dir_file *d = f->sink_data;
    int fd = d->fd;
    if (fsync(fd)) {
        nc_err_sys(err, errno, "sync %s", d->temp);
        return OP_FAILED;
    }
    d->fd = -1;
    if (close(fd)) {
        nc_err_sys(err, errno, "close %s", d->temp);
        return OP_FAILED;
    }
    if (rename(d->temp, d->final)) {
        nc_err_sys(err, errno, "rename %s", d->temp);
        return OP_FAILED;
    }
    free(d->temp);
    d->temp = NULL;
    return sync_folder(d->final, err) ? OP_FAILED : OP_OVER;
}

static enum op leave(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)err;
    self->forget(self, f);
    return OP_OVER;
}

static void cancel(struct sink *self, struct file *f, struct part *part)
{
    (void)self;
    (void)f;
    (void)part;
}

static void release(struct sink *self, struct part *part)
{
    (void)self;
    (void)part;
}

/* Also the end of every file that did not come to its own: its temporary name goes. */
static void forget(struct sink *self, struct file *f)
{
    (void)self;
    struct dir_file *d = f->sink_data;
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    if (d->temp)
        unlink(d->temp);
    free(d->temp);
    free(d->final);
    free(d);
    f->sink_data = NULL;
}

static void free_sink(struct sink *self)
{
    struct sink_dir *s = (struct sink_dir *)self;
    free(s->root);
    free(s);
}

struct sink *sink_dir_new(const char *root)
{
    struct sink_dir *s = calloc(1, sizeof *s);
    if (!s || !(s->root = strdup(root))) {
        free(s);
        return NULL;
    }
    s->base = (struct sink){
        .local = true,
        .open = open_file,
        .store = store,
        .finish = finish,
        .leave = leave,
        .cancel = cancel,
        .release = release,
        .forget = forget,
        .free = free_sink,
    };
    return &s->base;
}
