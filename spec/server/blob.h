/* The bytes of objects and parts: write-once blobs, each a file in a folder, or, in a store
 * without a folder, a memfd (heap memory where small, so that descriptors last). Blobs are
 * counted: an object that is overwritten while it is being read keeps its bytes until the last
 * reader lets go, then they are deleted. An extent is a range of a blob; objects and parts are
 * lists of extents, so that completing an upload or copying an object moves no byte.
 *
 * With `keep` a memfd that ends is the room of a later blob, which spares the kernel a page for
 * each 4 KiB. What sendfile gave to a client that has not read it yet would change under it, so
 * that is for benches, where nobody deletes what another still reads. */
#ifndef NCDEV_BLOB_H
#define NCDEV_BLOB_H

#include "omap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct blob_folder {
    int dir;                   /* descriptor of the folder, -1: everything in memory */
    atomic_uint_fast64_t next; /* id of the next blob */
    pthread_mutex_t lock;      /* guards ids */
    struct omap ids;           /* while a journal is replayed: id -> blob */
    bool replaying;            /* blobs that end are forgotten, not unlinked */
    uint64_t keep;             /* bytes of ended memfds that `kept` may hold; set before use */
    uint64_t kept_bytes;
    struct blob *kept; /* a list: their pages are there already */
};

struct blob {
    struct blob_folder *folder;
    atomic_int refs;
    uint64_t id;
    int fd;      /* memory: the memfd; folder: open while it is written, else -1 */
    char *bytes; /* in memory: the content, of `room` bytes; once sealed where there is a memfd */
    size_t room;
    struct blob *next; /* in `kept` */
};

struct extent {
    struct blob *blob; /* one reference */
    uint64_t offset;
    uint64_t size;
};

struct extents {
    struct extent *v; /* owned */
    size_t n;
};

/* Opens or makes the folder `path`/data; path NULL keeps everything in memory. 0, or errno. */
int blob_folder_open(struct blob_folder *f, const char *path);
void blob_folder_close(struct blob_folder *f);
void blob_folder_sweep(struct blob_folder *f); /* replay is over: unlinks what nothing refers to */

/* A new empty blob with one reference, to take `size` bytes; NULL with errno set. */
struct blob *blob_create(struct blob_folder *f, uint64_t size);
int blob_write(struct blob *b, uint64_t offset, const void *data, size_t n); /* 0, or errno */
void blob_seal(struct blob *b);                                              /* no more writes */
struct blob *blob_replayed(struct blob_folder *f, uint64_t id);              /* takes a reference */
void blob_unref(struct blob *b);                                             /* accepts NULL */

/* A descriptor of its own for reading, -1 where the blob has none (then use bytes) or on error.
 * Of a sealed blob in memory both are there: sendfile copies less, bytes need no call. */
int blob_open(const struct blob *b);

void extents_add(struct extents *e, struct blob *b, uint64_t offset,
                 uint64_t size); /* takes a reference */
void extents_slice(struct extents *to, const struct extents *from, uint64_t offset, uint64_t size);
void extents_free(struct extents *e);

/* Reads up to n bytes at offset; 0 at the end, -1 on error. *cache holds a descriptor between
 * calls (start with fd -1; extent_cache_free at the end). */
struct extent_cache {
    const struct blob *blob;
    int fd;
};
ssize_t extents_read(const struct extents *e, struct extent_cache *cache, uint64_t offset,
                     void *out, size_t n);
void extent_cache_free(struct extent_cache *cache);

#endif
