#include "transfer/ends.h"

#include "disk/direct.h"
#include "disk/sparse.h"
#include "transfer/local_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { READ_STEP = 128 * 1024 };

struct source_dir {
    struct source base;
    struct local_files *folder;
    pthread_mutex_t lock; /* guards every file's source_data, a struct local_file */
};

static struct local_file *file_of(struct source_dir *s, struct file *f)
{
    pthread_mutex_lock(&s->lock);
    struct local_file *local = f->source_data;
    if (!local && (local = malloc(sizeof *local))) {
        local_file_init(local);
        f->source_data = local;
    }
    pthread_mutex_unlock(&s->lock);
    return local;
}

/* What a part is read from. */
struct reading {
    const struct source_dir *source;
    struct local_file *local;
    int direct; /* the same, past the page cache; or -1 */
};

/* The part's bytes as far as `until` in the file. */
static int read_stretch(const struct reading *r, struct part *p, uint64_t until, struct nc_err *err)
{
    const size_t step = r->direct >= 0 ? DIRECT_BLOCK : READ_STEP;
    while (p->offset + p->taken < until) {
        size_t room;
        uint64_t offset = p->offset + p->taken, left = until - offset;
        char *to = transfer_part_room(p, &room);
        if (room > step)
            room = step;
        if (room > left)
            room = (size_t)left;
        transfer_keep_pace(p->file->transfer, room);
        size_t got = r->direct >= 0 ? direct_read(r->direct, to, room, offset) : 0;
        if (got < room && local_file_read(r->local, r->source->folder, p->file, offset + got,
                                          to + got, room - got, err))
            return -1;
        if (transfer_part_took(p, room, err))
            return -1;
        atomic_fetch_add(transfer_bytes_in(p->file->transfer), room);
    }
    return 0;
}

static int read_data(const struct reading *r, struct part *p, struct nc_err *err)
{
    uint64_t end = p->offset + p->len, from, until;
    const struct stat *first = &r->local->first;
    bool holes = p->file->streamed && sparse_is(first);
    if (!holes || (uint64_t)first->st_size < end) /* what is beyond its end is no hole */
        return read_stretch(r, p, end, err);
    while (sparse_next_data(r->local->fd, p->offset + p->taken, end, &from, &until)) {
        size_t hole = (size_t)(from - (p->offset + p->taken));
        atomic_fetch_add(transfer_bytes_in(p->file->transfer), hole);
        if (transfer_part_skip(p, hole, err) || read_stretch(r, p, until, err))
            return -1;
    }
    size_t hole = p->len - p->taken;
    atomic_fetch_add(transfer_bytes_in(p->file->transfer), hole);
    return transfer_part_skip(p, hole, err);
}

static int read_part(const struct source_dir *s, struct local_file *local, struct part *p,
                     struct nc_err *err)
{
    struct reading r = {s, local, -1};
    if (transfer_part_begin(p, err))
        return -1;
    if (p->room >= DIRECT_BLOCK)
        r.direct = direct_open_cold(local->fd, p->offset, p->len);
    if (r.direct < 0) {
        /* All of it is asked for at once: a server is not left waiting between reads. */
        posix_fadvise(local->fd, (off_t)p->offset, (off_t)p->len, POSIX_FADV_WILLNEED);
        transfer_part_usual_blocks(p);
    }
    int rc = read_data(&r, p, err);
    if (r.direct >= 0)
        close(r.direct);
    return rc;
}

static void forget(struct source *self, struct file *f)
{
    (void)self;
    local_file_free(f->source_data);
    free(f->source_data);
    f->source_data = NULL;
}

static enum op fetch(struct source *self, struct part *p, struct nc_err *err)
{
    struct source_dir *s = (struct source_dir *)self;
    struct local_file *local = file_of(s, p->file);
    if (!local) {
        nc_err_set(err, "ENOMEM", "%s: out of memory", p->file->path);
        return OP_FAILED;
    }
    bool well = local_file_open(local, s->folder, p->file, err) == 0 &&
                read_part(s, local, p, err) == 0 && local_file_check(local, p->file, err) == 0;
    if (p->file->parts == 1 && !p->file->streamed) /* of small ones, very many may be under way */
        forget(self, p->file);
    return well ? OP_OVER : OP_FAILED;
}

static void on_part(struct source *self, struct part *part)
{
    (void)self;
    (void)part;
}

static void free_source(struct source *self)
{
    struct source_dir *s = (struct source_dir *)self;
    local_files_free(s->folder);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct source *source_dir_new(const char *root)
{
    struct source_dir *s = calloc(1, sizeof *s);
    if (!s || !(s->folder = local_files_new(root))) {
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    s->base = (struct source){true, fetch, on_part, on_part, forget, free_source};
    return &s->base;
}
