#include "blob.h"

#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL (64 * 1024)

static void file_name(char name[24], uint64_t id)
{
    snprintf(name, 24, "%016" PRIx64, id);
}

int blob_folder_open(struct blob_folder *f, const char *path)
{
    *f = (struct blob_folder){.dir = -1, .next = 1, .keep = f->keep};
    pthread_mutex_init(&f->lock, NULL);
    if (!path)
        return 0;
    struct buf name;
    buf_init(&name, 4096);
    buf_printf(&name, "%s/data", path);
    int rc = mkdir(buf_str(&name), 0777) && errno != EEXIST ? errno : 0;
    if (!rc) {
        f->dir = open(buf_str(&name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = f->dir < 0 ? errno : 0;
    }
    f->replaying = true;
    buf_free(&name);
    return rc;
}

/* Takes a memfd of that size, or of less than twice that, out of those that are kept. */
static struct blob *reuse(struct blob_folder *f, uint64_t size)
{
    pthread_mutex_lock(&f->lock);
    struct blob **at = &f->kept;
    while (*at && ((*at)->room < size || (*at)->room / 2 > size))
        at = &(*at)->next;
    struct blob *b = *at;
    if (b) {
        *at = b->next;
        f->kept_bytes -= b->room;
        b->refs = 1;
    }
    pthread_mutex_unlock(&f->lock);
    return b;
}

static bool keep(struct blob *b)
{
    struct blob_folder *f = b->folder;
    if (!f->keep || !b->bytes || b->fd < 0)
        return false;
    pthread_mutex_lock(&f->lock);
    bool fits = b->room <= f->keep - f->kept_bytes;
    if (fits) {
        b->next = f->kept;
        f->kept = b;
        f->kept_bytes += b->room;
    }
    pthread_mutex_unlock(&f->lock);
    return fits;
}

static void release(struct blob *b)
{
    if (b->fd < 0)
        free(b->bytes);
    else if (b->bytes)
        munmap(b->bytes, b->room);
    if (b->fd >= 0)
        close(b->fd);
    free(b);
}

void blob_folder_close(struct blob_folder *f)
{
    for (struct blob *b = f->kept, *next; b; b = next) {
        next = b->next;
        release(b);
    }
    f->kept = NULL;
    if (f->dir >= 0)
        close(f->dir);
    f->dir = -1;
    omap_free(&f->ids);
    pthread_mutex_destroy(&f->lock);
}

void blob_folder_sweep(struct blob_folder *f)
{
    f->replaying = false;
    DIR *d = f->dir < 0 ? NULL : fdopendir(dup(f->dir));
    /* cppcheck-suppress readdirCalled ; the stream is this thread's own */
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.' && !omap_get(&f->ids, e->d_name))
            unlinkat(f->dir, e->d_name, 0);
    }
    if (d)
        closedir(d);
    omap_free(&f->ids);
}

struct blob *blob_create(struct blob_folder *f, uint64_t size)
{
    struct blob *b = f->keep && size > SMALL ? reuse(f, size) : NULL;
    if (b)
        return b;
    b = str_alloc(sizeof *b);
    *b = (struct blob){.folder = f, .refs = 1, .id = atomic_fetch_add(&f->next, 1), .fd = -1};
    b->room = f->dir < 0 ? size : 0;
    if (f->dir < 0 && size <= SMALL) {
        b->bytes = malloc(size + 1); /* all of it is written before anything reads it */
        if (!b->bytes)
            abort();
        return b;
    }
    char name[24];
    file_name(name, b->id);
    b->fd = f->dir < 0 ? memfd_create(name, MFD_CLOEXEC)
                       : openat(f->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (b->fd >= 0 && (f->dir >= 0 || ftruncate(b->fd, (off_t)size) == 0))
        return b;
    int saved = errno;
    if (b->fd >= 0)
        close(b->fd);
    free(b);
    errno = saved;
    return NULL;
}

int blob_write(struct blob *b, uint64_t offset, const void *data, size_t n)
{
    if (b->bytes) { /* small, or a memfd that has its pages */
        if (offset > b->room || n > b->room - offset)
            return EFBIG;
        memcpy(b->bytes + offset, data, n);
        return 0;
    }
    for (const char *p = data; n;) {
        ssize_t did = pwrite(b->fd, p, n, (off_t)offset);
        if (did < 0 && errno != EINTR)
            return errno;
        if (did > 0) {
            p += did;
            offset += (uint64_t)did;
            n -= (size_t)did;
        }
    }
    return 0;
}

void blob_seal(struct blob *b)
{
    if (b->folder->dir >= 0 && b->fd >= 0) {
        close(b->fd);
        b->fd = -1;
    } else if (b->fd >= 0 && !b->bytes) {
        b->bytes = mmap(NULL, b->room, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
        if (b->bytes == MAP_FAILED)
            b->bytes = NULL; /* then it is read through fd */
    }
}

struct blob *blob_replayed(struct blob_folder *f, uint64_t id)
{
    char name[24];
    file_name(name, id);
    struct blob *b = omap_get(&f->ids, name);
    if (b) {
        atomic_fetch_add(&b->refs, 1);
        return b;
    }
    b = str_alloc(sizeof *b);
    *b = (struct blob){.folder = f, .refs = 1, .id = id, .fd = -1};
    omap_put(&f->ids, name, b);
    if (id >= f->next)
        f->next = id + 1;
    return b;
}

void blob_unref(struct blob *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1 || keep(b))
        return;
    char name[24];
    file_name(name, b->id);
    if (b->folder->replaying)
        omap_remove(&b->folder->ids, name);
    else if (b->folder->dir >= 0)
        unlinkat(b->folder->dir, name, 0);
    release(b);
}

int blob_open(const struct blob *b)
{
    char name[24];
    file_name(name, b->id);
    if (b->folder->dir >= 0)
        return openat(b->folder->dir, name, O_RDONLY | O_CLOEXEC);
    return b->fd < 0 ? -1 : fcntl(b->fd, F_DUPFD_CLOEXEC, 0);
}

void extents_add(struct extents *e, struct blob *b, uint64_t offset, uint64_t size)
{
    if (size == 0)
        return;
    struct extent *v = realloc(e->v, sizeof *v * (e->n + 1));
    if (!v)
        abort();
    atomic_fetch_add(&b->refs, 1);
    v[e->n] = (struct extent){b, offset, size};
    e->v = v;
    e->n++;
}

void extents_slice(struct extents *to, const struct extents *from, uint64_t offset, uint64_t size)
{
    for (size_t i = 0; i < from->n && size; i++) {
        const struct extent *x = &from->v[i];
        if (offset >= x->size) {
            offset -= x->size;
            continue;
        }
        uint64_t take = x->size - offset < size ? x->size - offset : size;
        extents_add(to, x->blob, x->offset + offset, take);
        size -= take;
        offset = 0;
    }
}

void extents_free(struct extents *e)
{
    for (size_t i = 0; i < e->n; i++)
        blob_unref(e->v[i].blob);
    free(e->v);
    *e = (struct extents){0};
}

static ssize_t read_extent(const struct extent *x, struct extent_cache *cache, uint64_t skip,
                           void *out, size_t n)
{
    n = x->size - skip < n ? x->size - skip : n;
    if (x->blob->bytes) {
        memcpy(out, x->blob->bytes + x->offset + skip, n);
        return (ssize_t)n;
    }
    if (cache->blob != x->blob) {
        extent_cache_free(cache);
        *cache = (struct extent_cache){x->blob, blob_open(x->blob)};
    }
    return pread(cache->fd, out, n, (off_t)(x->offset + skip));
}

ssize_t extents_read(const struct extents *e, struct extent_cache *cache, uint64_t offset,
                     void *out, size_t n)
{
    for (size_t i = 0; i < e->n; i++) {
        if (offset < e->v[i].size)
            return read_extent(&e->v[i], cache, offset, out, n);
        offset -= e->v[i].size;
    }
    return 0;
}

void extent_cache_free(struct extent_cache *cache)
{
    if (cache->fd >= 0)
        close(cache->fd);
    *cache = (struct extent_cache){NULL, -1};
}
