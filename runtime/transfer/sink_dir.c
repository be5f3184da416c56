#include "transfer/ends.h"

#include "disk/direct.h"
#include "disk/leftovers.h"
#include "disk/part_journal.h"
#include "disk/sparse.h"
#include "disk/temp_file.h"
#include "disk/writeback.h"
#include "transfer/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 128 * 1024, COPY_STEP = 2 * 1024 * 1024 };

struct sink_dir {
    struct sink base;
    char *root;
    char *from; /* the folder the files come from, where the kernel may copy them; or NULL */
    struct leftovers leftovers;
    struct writeback writeback;
};

struct dir_file {
    struct temp_file temp;
    int direct;              /* the same, past the page cache; or -1 */
    int from;                /* the source's file, to copy from in the kernel; or -1 */
    struct stat source;      /* as it was when from was opened */
    char *head;              /* of the journal; NULL: another run could not tell what this is */
    bool journaled;          /* there is one, of an earlier run or of this */
    pthread_mutex_t writing; /* it: parts are stored by several hands */
    struct writeback_span *spans; /* of each part, where it is streamed */
};

static int no_memory(const struct file *f, struct nc_err *err)
{
    return nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
}

static char *path_below(const char *root, const struct file *f)
{
    struct buf path;
    buf_init(&path, 64 * 1024);
    buf_printf(&path, "%s/%s", root, f->path);
    char *taken = buf_take(&path);
    buf_free(&path);
    return taken;
}

/* ---- opening: what is left of an earlier run, or a new one ---- */

static int pread_all(int fd, char *data, size_t len, uint64_t offset)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = pread(fd, data + at, len - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n ? errno : EIO; /* it is shorter than what was written */
            return -1;
        }
        at += (size_t)n;
    }
    return 0;
}

struct earlier {
    struct file *file;
    int fd;
    char *block;
    struct xxh3 hash;
};

/* A part counts when its bytes are those that were written: a crash may have lost any of them, and
 * what the source has now may be asked for by digest. */
static void look_at_part(void *arg, uint32_t index, const char *xxh3)
{
    struct earlier *e = arg;
    struct file *f = e->file;
    uint64_t offset = (uint64_t)index * f->part_size;
    uint64_t left = plan_part_len(f->size, f->part_size, index);
    char got[XXH3_HEX_SIZE];
    if (f->etags[index][0] || (f->expected && strcmp(f->expected[index], xxh3) != 0) ||
        xxh3_init(&e->hash))
        return;
    for (size_t len; left; left -= len, offset += len) {
        len = left < BLOCK ? (size_t)left : BLOCK;
        if (pread_all(e->fd, e->block, len, offset))
            return;
        xxh3_update(&e->hash, e->block, len);
    }
    xxh3_final_hex(&e->hash, got);
    if (strcmp(got, xxh3) == 0)
        transfer_keep_part(f, index, xxh3);
}

static bool goes_on(struct file *f, const struct temp_file *temp)
{
    struct earlier e = {f, temp->fd, malloc(BLOCK), {0}};
    struct stat st;
    size_t len;
    /* Of another length: it was not on the disk yet when all was lost. */
    bool sized = fstat(temp->fd, &st) == 0 && (uint64_t)st.st_size == f->size;
    char *text = f->version && sized ? temp_file_journal(temp, &len) : NULL;
    bool same = text && e.block &&
                part_journal_read(text, len, f->size, f->part_size, f->version, f->parts,
                                  look_at_part, &e) == 0;
    xxh3_free(&e.hash);
    free(e.block);
    free(text);
    return same;
}

/* All but one are removed, and that one too where it can't be gone on with. */
static bool adopt(struct sink_dir *s, struct file *f, struct dir_file *d, const char *final)
{
    bool found = false;
    char *path;
    while ((path = leftovers_take(&s->leftovers, final))) {
        struct temp_file temp;
        if (temp_file_adopt(&temp, final, path) == 0 && !found && f->streamed &&
            goes_on(f, &temp)) {
            found = true;
            d->temp = temp;
        } else {
            temp_file_close(&temp, false);
        }
    }
    d->journaled = f->found = found;
    f->direct &= !found; /* holes of the source are not written over what lies there */
    return found;
}

/* Space is asked for at once, so that a full disk is noticed before the bytes are on their way. In
 * memory that would touch every page twice, and a sparse file is to stay one. */
static int make_room(const struct sink_dir *s, const struct file *f, const struct dir_file *d,
                     struct nc_err *err)
{
    bool sparse = d->from >= 0 && sparse_is(&d->source);
    int rc = s->writeback.in_memory || sparse ? ftruncate(d->temp.fd, (off_t)f->size)
                                              : fallocate(d->temp.fd, 0, 0, (off_t)f->size);
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = ftruncate(d->temp.fd, (off_t)f->size);
    if (rc)
        return nc_err_sys(err, errno, "make room for %s (%llu bytes)", d->temp.final,
                          (unsigned long long)f->size);
    return 0;
}

/* The source's own blocks under a second name, where a file system can do that: nothing is read,
 * and nothing can go wrong on the way. */
static bool reflink(struct file *f, const struct dir_file *d)
{
    if (d->from < 0 || ioctl(d->temp.fd, FICLONE, d->from))
        return false;
    transfer_cloned(f);
    return true;
}

static int open_temp(struct sink_dir *s, struct file *f, struct dir_file *d, struct nc_err *err)
{
    char *final = path_below(s->root, f);
    if (!final)
        return no_memory(f, err);
    bool found = adopt(s, f, d, final);
    int rc = found ? 0 : temp_file_create(&d->temp, final, err);
    free(final);
    if (rc || found || !f->streamed || reflink(f, d))
        return rc;
    return make_room(s, f, d, err);
}

/* One that is not as it was listed comes by way of us, who tell what is wrong. */
static void open_source(const struct sink_dir *s, const struct file *f, struct dir_file *d)
{
    char *path = s->from ? path_below(s->from, f) : NULL;
    if (path)
        d->from = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    if (d->from >= 0 && (fstat(d->from, &d->source) || (uint64_t)d->source.st_size != f->size)) {
        close(d->from);
        d->from = -1;
    }
}

/* Past the page cache, for us who write and for the source that reads, takes larger blocks. Holes
 * are kept to a block, so that a sparse file has small ones. */
static void open_direct(struct file *f, struct dir_file *d)
{
    bool sparse = d->from >= 0 && sparse_is(&d->source);
    if (!f->streamed || sparse || f->part_size % DIRECT_ALIGN)
        return;
    d->direct = direct_open(d->temp.path, d->temp.fd);
    bool pays = d->direct >= 0 || (d->from >= 0 && direct_pays(d->from));
    bool larger = pays && transfer_larger_blocks(f, DIRECT_BLOCK);
    f->aside = larger && d->direct >= 0;
}

static char *journal_head(const struct file *f)
{
    struct buf head;
    if (!f->version || !part_journal_takes(f->version) || f->parts == 1)
        return NULL;
    buf_init(&head, 4096);
    part_journal_head(&head, f->size, f->part_size, f->version);
    char *taken = buf_take(&head);
    buf_free(&head);
    return taken;
}

static int prepare(struct sink_dir *s, struct file *f, struct nc_err *err)
{
    struct dir_file *d = calloc(1, sizeof *d);
    if (!d)
        return no_memory(f, err);
    f->sink_data = d;
    d->temp = (struct temp_file){.fd = -1, .journal = -1};
    d->from = d->direct = -1;
    pthread_mutex_init(&d->writing, NULL);
    d->head = journal_head(f);
    if (f->streamed && !(d->spans = calloc(f->parts, sizeof d->spans[0])))
        return no_memory(f, err);
    if (f->streamed)
        open_source(s, f, d);
    if (open_temp(s, f, d, err))
        return -1;
    open_direct(f, d);
    return 0;
}

/* A small file is made when its bytes are there. */
static enum op open_file(struct sink *self, struct file *f, struct nc_err *err)
{
    if (!f->streamed)
        return OP_OVER;
    return prepare((struct sink_dir *)self, f, err) ? OP_FAILED : OP_OVER;
}

/* ---- bytes ---- */

static int pwrite_all(const struct dir_file *d, int fd, const char *data, size_t len,
                      uint64_t offset, struct nc_err *err)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = pwrite(fd, data + at, len - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return nc_err_sys(err, n ? errno : EIO, "write %s", d->temp.path);
        at += (size_t)n;
    }
    return 0;
}

/* All of it that can go past the page cache does; the rest, an end that fills no page, does not. */
static int write_direct(const struct dir_file *d, const char *data, size_t len, uint64_t offset,
                        struct nc_err *err)
{
    size_t whole = len / DIRECT_ALIGN * DIRECT_ALIGN;
    int rc = whole ? pwrite_all(d, d->direct, data, whole, offset, err) : 0;
    if (rc && strcmp(err->code, "EINVAL") == 0) { /* it knew no better before it was tried */
        whole = 0;
        rc = 0;
    }
    return rc ? rc : pwrite_all(d, d->temp.fd, data + whole, len - whole, offset + whole, err);
}

/* What is hashed after its turn is read again. */
static bool is_read_again(const struct part *p)
{
    return p->file->hashes && !p->in_turn && !p->hashed;
}

static int write_block(struct sink *self, struct part *p, size_t at, const char *data, size_t len,
                       struct nc_err *err)
{
    struct sink_dir *s = (struct sink_dir *)self;
    struct dir_file *d = p->file->sink_data;
    struct writeback_span *span = &d->spans[p->index];
    atomic_fetch_add(transfer_bytes_out(p->file->transfer), len);
    if (p->aside)
        return write_direct(d, data, len, p->offset + at, err);
    if (at == 0)
        writeback_drop(&s->writeback, span); /* of an attempt that failed */
    for (size_t n; len; len -= n, at += n, data += n) {
        n = len < BLOCK ? len : BLOCK;
        if (pwrite_all(d, d->temp.fd, data, n, p->offset + at, err))
            return -1;
        writeback_wrote(&s->writeback, span, d->temp.fd, p->offset, n, is_read_again(p));
    }
    return 0;
}

static int read_block(struct sink *self, struct file *f, uint64_t offset, char *data, size_t len,
                      struct nc_err *err)
{
    (void)self;
    const struct dir_file *d = f->sink_data;
    if (pread_all(d->temp.fd, data, len, offset))
        return nc_err_sys(err, errno, "read back %s", d->temp.path);
    return 0;
}

static int note_part(const struct part *p, struct nc_err *err)
{
    struct dir_file *d = p->file->sink_data;
    char line[PART_JOURNAL_LINE_SIZE];
    if (!d->head)
        return 0;
    size_t len = part_journal_line(line, p->index, p->file->digests[p->index]);
    pthread_mutex_lock(&d->writing);
    int rc = temp_file_note(&d->temp, d->head, line, len, err);
    d->journaled |= rc == 0;
    pthread_mutex_unlock(&d->writing);
    return rc;
}

static int write_small(const struct file *f, const struct part *p, struct nc_err *err)
{
    const struct dir_file *d = f->sink_data;
    return pwrite_all(d, d->temp.fd, p->data, p->len, 0, err);
}

static enum op store(struct sink *self, struct part *p, struct nc_err *err)
{
    struct sink_dir *s = (struct sink_dir *)self;
    struct file *f = p->file;
    if (f->streamed) {
        struct dir_file *d = f->sink_data;
        writeback_end(&s->writeback, &d->spans[p->index], d->temp.fd, p->offset, is_read_again(p));
        return note_part(p, err) ? OP_FAILED : OP_OVER;
    }
    if (prepare(s, f, err) || write_small(f, p, err))
        return OP_FAILED;
    atomic_fetch_add(transfer_bytes_out(f->transfer), p->len);
    return OP_OVER;
}

/* ---- copies in the kernel ---- */

/* Why it stops short of the disk is told by the way around it; a full disk is one there, too. */
static int cant_copy(const struct file *f, struct nc_err *err)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return nc_err_sys(err, errno, "write %s", f->path);
    return nc_err_set(err, "NoDirectCopy", "%s: the kernel can't copy it", f->path);
}

static int copy_stretch(struct sink_dir *s, const struct part *p, uint64_t from, uint64_t until,
                        struct nc_err *err)
{
    const struct dir_file *d = p->file->sink_data;
    struct writeback_span span = {0};
    int rc = 0;
    for (uint64_t at = from; at < until && rc == 0;) {
        loff_t in = (loff_t)at, out = (loff_t)at;
        size_t len = until - at < COPY_STEP ? (size_t)(until - at) : COPY_STEP;
        errno = 0;
        ssize_t n = copy_file_range(d->from, &in, d->temp.fd, &out, len, 0);
        if (n <= 0) {
            rc = cant_copy(p->file, err);
            break;
        }
        writeback_wrote(&s->writeback, &span, d->temp.fd, from, (size_t)n, false);
        at += (uint64_t)n;
    }
    writeback_end(&s->writeback, &span, d->temp.fd, from, false);
    return rc;
}

static bool is_changed(const struct dir_file *d)
{
    const struct stat *a = &d->source;
    struct stat b;
    return fstat(d->from, &b) || a->st_size != b.st_size || a->st_mtim.tv_sec != b.st_mtim.tv_sec ||
           a->st_mtim.tv_nsec != b.st_mtim.tv_nsec;
}

static enum op copy(struct sink *self, struct part *p, struct nc_err *err)
{
    struct sink_dir *s = (struct sink_dir *)self;
    const struct dir_file *d = p->file->sink_data;
    uint64_t at = p->offset, end = p->offset + p->len, from, until;
    if (d->from < 0) {
        errno = 0;
        cant_copy(p->file, err);
        return OP_FAILED;
    }
    while (sparse_next_data(d->from, at, end, &from, &until)) {
        if (copy_stretch(s, p, from, until, err))
            return OP_FAILED;
        at = until;
    }
    if (is_changed(d)) {
        nc_err_set(err, "Changed", "%s/%s: it was changed while it was copied", s->from,
                   p->file->path);
        return OP_FAILED;
    }
    atomic_fetch_add(transfer_bytes_in(p->file->transfer), p->len);
    atomic_fetch_add(transfer_bytes_out(p->file->transfer), p->len);
    return OP_OVER;
}

/* ---- the end ---- */

static int sync_files(struct sink *self, struct file *const *files, size_t n, struct nc_err *err)
{
    if (((struct sink_dir *)self)->writeback.in_memory)
        return 0;
    /* All are on their way before the first is waited for. */
    for (size_t i = 0; i < n; i++) {
        const struct dir_file *d = files[i]->sink_data;
        sync_file_range(d->temp.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    for (size_t i = 0; i < n; i++) {
        const struct dir_file *d = files[i]->sink_data;
        if (temp_file_sync(&d->temp, err))
            return -1;
    }
    return 0;
}

static enum op finish(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)self;
    struct dir_file *d = f->sink_data;
    return temp_file_publish(&d->temp, err) ? OP_FAILED : OP_OVER;
}

static const char *final_of(const struct file *f)
{
    return ((const struct dir_file *)f->sink_data)->temp.final;
}

static bool same_folder(const char *a, const char *b)
{
    size_t len = (size_t)(strrchr(a, '/') - a);
    return len == (size_t)(strrchr(b, '/') - b) && memcmp(a, b, len) == 0;
}

static int settle(struct sink *self, struct file *const *files, size_t n, struct nc_err *err)
{
    if (((struct sink_dir *)self)->writeback.in_memory)
        return 0;
    for (size_t i = 0; i < n; i++) {
        size_t before = 0;
        while (before < i && !same_folder(final_of(files[before]), final_of(files[i])))
            before++;
        if (before == i && temp_file_sync_folder(final_of(files[i]), err))
            return -1;
    }
    return 0;
}

/* Also the end of every file that did not come to its own. */
static void forget(struct sink *self, struct file *f, bool keep)
{
    struct sink_dir *s = (struct sink_dir *)self;
    struct dir_file *d = f->sink_data;
    for (uint32_t i = 0; d->spans && i < f->parts; i++)
        writeback_drop(&s->writeback, &d->spans[i]);
    if (d->from >= 0)
        close(d->from);
    if (d->direct >= 0)
        close(d->direct);
    temp_file_close(&d->temp, keep && d->journaled);
    pthread_mutex_destroy(&d->writing);
    free(d->spans);
    free(d->head);
    free(d);
    f->sink_data = NULL;
}

static enum op leave(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)err;
    if (f->sink_data)
        forget(self, f, false);
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

static void free_sink(struct sink *self)
{
    struct sink_dir *s = (struct sink_dir *)self;
    leftovers_free(&s->leftovers);
    free(s->from);
    free(s->root);
    free(s);
}

struct sink *sink_dir_new(const char *root, const char *from)
{
    struct sink_dir *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    leftovers_init(&s->leftovers);
    s->root = strdup(root);
    s->from = from ? strdup(from) : NULL;
    if (!s->root || (from && !s->from)) {
        free_sink(&s->base);
        return NULL;
    }
    writeback_init(&s->writeback, root);
    s->base = (struct sink){
        .local = true,
        .streamed = true,
        .open = open_file,
        .write = write_block,
        .read = read_block,
        .store = store,
        .copy = from ? copy : NULL,
        .sync = sync_files,
        .finish = finish,
        .settle = settle,
        .leave = leave,
        .cancel = cancel,
        .release = release,
        .forget = forget,
        .free = free_sink,
    };
    return &s->base;
}
