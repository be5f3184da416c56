/* Buckets, objects and multipart uploads: an index in memory under one lock, the bytes in blobs,
 * and a journal (root/journal) with a line for each change, replayed and rewritten at start, so
 * that a restart finds everything as it was. Keys never become file names. Any thread.
 *
 * Objects are immutable and counted: store_get returns a reference that stays readable whatever
 * happens to the key meanwhile. */
#ifndef NCDEV_STORE_H
#define NCDEV_STORE_H

#include "base/err.h"
#include "blob.h"
#include "text.h"

#include <pthread.h>
#include <stdatomic.h>

#define STORE_MAX_PART 10000
#define STORE_MIN_PART_SIZE (UINT64_C(5) << 20)
#define STORE_MAX_PART_SIZE (UINT64_C(5) << 30)

enum store_result {
    STORE_OK,
    STORE_EXISTS,
    STORE_NO_BUCKET,
    STORE_NO_KEY,
    STORE_NO_UPLOAD,
    STORE_NOT_EMPTY,
    STORE_PRECONDITION,
    STORE_INVALID_PART,
    STORE_INVALID_ORDER,
    STORE_TOO_SMALL,
};

struct object {
    atomic_int refs;
    char *key;
    char etag[72]; /* without quotes */
    uint64_t size;
    int64_t mtime;        /* seconds since 1970 */
    struct pairs headers; /* Content-Type, x-amz-meta-* and such, as they are sent back */
    struct extents data;
};

struct part {
    unsigned number;
    char etag[40];
    uint64_t size;
    int64_t mtime;
    struct extents data;
};

struct upload {
    char id[33];
    char *bucket;
    char *key;
    int64_t started;
    struct pairs headers;
    struct part **parts; /* by number */
    size_t count;
};

struct store {
    pthread_rwlock_t lock;
    struct omap buckets; /* name -> struct bucket */
    struct omap uploads; /* id -> struct upload */
    struct blob_folder blobs;
    int journal; /* -1 in memory */
};

/* root NULL: in memory, where `keep` bytes of what is deleted are kept as room for what comes (see
 * blob.h). The folder is made where it does not exist. */
int store_open(struct store *s, const char *root, uint64_t keep, struct nc_err *err);
void store_close(struct store *s);

enum store_result store_bucket_create(struct store *s, const char *name, int64_t now);
enum store_result store_bucket_delete(struct store *s, const char *name);
bool store_bucket_exists(struct store *s, const char *name);
void store_bucket_list(struct store *s, void (*each)(void *cls, const char *name, int64_t created),
                       void *cls);

struct object *object_new(const char *key); /* one reference */
void object_unref(struct object *o);        /* accepts NULL */

/* A condition on a write, looked at under the lock that publishes it. */
struct store_condition {
    bool absent;      /* If-None-Match: * */
    const char *etag; /* If-Match, without quotes; NULL: none */
};

struct object *store_get(struct store *s, const char *bucket, const char *key); /* or NULL */
/* Publishes o under o->key; takes over the caller's reference only with STORE_OK. */
enum store_result store_put(struct store *s, const char *bucket, struct object *o,
                            const struct store_condition *cond);
enum store_result store_delete(struct store *s, const char *bucket, const char *key);

struct store_query {
    const char *prefix;    /* "" for all */
    const char *delimiter; /* "" for none */
    const char *after;     /* names up to and with this one are left out; "" for none */
    size_t max;
};

struct store_name {
    char *prefix;          /* a common prefix, or */
    struct object *object; /* a reference */
};

struct store_listing {
    struct store_name *names; /* owned; store_listing_free */
    size_t count;
    bool truncated;
};

enum store_result store_list(struct store *s, const char *bucket, const struct store_query *q,
                             struct store_listing *out);
void store_listing_free(struct store_listing *l);

/* Fills id. */
enum store_result store_upload_create(struct store *s, const char *bucket, const char *key,
                                      const struct pairs *headers, int64_t now, char id[33]);
/* Takes over part with STORE_OK. */
enum store_result store_upload_put(struct store *s, const char *bucket, const char *key,
                                   const char *id, struct part *part);
enum store_result store_upload_abort(struct store *s, const char *bucket, const char *key,
                                     const char *id);
void store_part_free(struct part *p); /* accepts NULL */

/* Calls each with every part in order, under the lock. */
enum store_result store_upload_parts(struct store *s, const char *bucket, const char *key,
                                     const char *id,
                                     void (*each)(void *cls, const struct part *part), void *cls);
/* Calls each with every upload of the bucket (NULL: of all), in no order, under the lock. */
void store_uploads(struct store *s, const char *bucket,
                   void (*each)(void *cls, const struct upload *upload), void *cls);

struct store_named_part {
    unsigned number;
    char etag[72]; /* without quotes */
};

/* Makes the object of the named parts. `etag_of` combines the parts' ETags. On success *out is a
 * reference to it and the upload is gone. */
enum store_result store_upload_complete(struct store *s, const char *bucket, const char *key,
                                        const char *id, const struct store_named_part *named,
                                        size_t count, const struct store_condition *cond,
                                        void (*etag_of)(char out[72], struct part *const *parts,
                                                        size_t count),
                                        int64_t now, struct object **out);

#endif
