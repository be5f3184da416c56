#include "store.h"

#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct bucket {
    int64_t created;
    struct omap objects; /* key -> struct object */
};

struct object *object_new(const char *key)
{
    struct object *o = str_alloc(sizeof *o);
    o->refs = 1;
    o->key = str_copy(key);
    return o;
}

void object_unref(struct object *o)
{
    if (!o || atomic_fetch_sub(&o->refs, 1) != 1)
        return;
    extents_free(&o->data);
    pairs_free(&o->headers);
    free(o->key);
    free(o);
}

void store_part_free(struct part *p)
{
    if (!p)
        return;
    extents_free(&p->data);
    free(p);
}

static void upload_free(struct upload *u)
{
    for (size_t i = 0; i < u->count; i++)
        store_part_free(u->parts[i]);
    free(u->parts);
    pairs_free(&u->headers);
    free(u->bucket);
    free(u->key);
    free(u);
}

static void bucket_free(struct bucket *b)
{
    for (struct omap_node *n = b->objects.head[0]; n; n = n->next[0])
        object_unref(n->value);
    omap_free(&b->objects);
    free(b);
}

/* One write a change: the kernel keeps what was written even if this process is killed. */
static void record(struct store *s, struct buf *line)
{
    if (s->journal >= 0 && write(s->journal, buf_str(line), line->len) != (ssize_t)line->len)
        perror("ncdev: journal");
    buf_free(line);
}

static void line_init(struct buf *line)
{
    buf_init(line, 64 << 20);
}

/* Where part `number` is, or belongs. */
static size_t part_place(const struct upload *u, unsigned number)
{
    size_t lo = 0, hi = u->count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (u->parts[mid]->number < number)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void place_part(struct upload *u, struct part *p)
{
    size_t at = part_place(u, p->number);
    if (at < u->count && u->parts[at]->number == p->number) {
        store_part_free(u->parts[at]);
        u->parts[at] = p;
        return;
    }
    u->parts = realloc(u->parts, sizeof *u->parts * (u->count + 1));
    if (!u->parts)
        abort();
    memmove(&u->parts[at + 1], &u->parts[at], sizeof *u->parts * (u->count - at));
    u->parts[at] = p;
    u->count++;
}

/* --- start and end ----------------------------------------------------------------------- */

static void replay_put(struct store *s, struct journal_line *l)
{
    struct bucket *b = omap_get(&s->buckets, l->word[1]);
    struct object *o = object_new(l->word[2]);
    snprintf(o->etag, sizeof o->etag, "%s", l->word[4]);
    bool ok = b && str_u64(l->word[3], &o->size) && str_i64(l->word[5], &o->mtime) &&
              journal_extents(&o->data, &s->blobs, l->word[6]);
    journal_headers(&o->headers, l->word[7]);
    object_unref(ok ? omap_put(&b->objects, o->key, o) : o);
}

static void replay_upload(struct store *s, struct journal_line *l)
{
    struct upload *u = str_alloc(sizeof *u);
    snprintf(u->id, sizeof u->id, "%s", l->word[1]);
    u->bucket = str_copy(l->word[2]);
    u->key = str_copy(l->word[3]);
    str_i64(l->word[4], &u->started);
    journal_headers(&u->headers, l->word[5]);
    struct upload *old = omap_put(&s->uploads, u->id, u);
    if (old)
        upload_free(old);
}

static void replay_part(struct store *s, struct journal_line *l)
{
    struct upload *u = omap_get(&s->uploads, l->word[1]);
    struct part *p = str_alloc(sizeof *p);
    uint64_t number = 0;
    snprintf(p->etag, sizeof p->etag, "%s", l->word[4]);
    bool ok = str_u64(l->word[2], &number) && str_u64(l->word[3], &p->size) &&
              str_i64(l->word[5], &p->mtime);
    p->number = (unsigned)number;
    if (u && ok && journal_extents(&p->data, &s->blobs, l->word[6]))
        place_part(u, p);
    else
        store_part_free(p);
}

static void replay_bucket(struct store *s, struct journal_line *l)
{
    struct bucket *b = str_alloc(sizeof *b);
    str_i64(l->word[2], &b->created);
    b = omap_put(&s->buckets, l->word[1], b);
    if (b)
        bucket_free(b);
}

static void replay_rmbucket(struct store *s, struct journal_line *l)
{
    struct bucket *b = omap_remove(&s->buckets, l->word[1]);
    if (b)
        bucket_free(b);
}

static void replay_rm(struct store *s, struct journal_line *l)
{
    struct bucket *b = omap_get(&s->buckets, l->word[1]);
    if (b)
        object_unref(omap_remove(&b->objects, l->word[2]));
}

static void replay_end(struct store *s, struct journal_line *l)
{
    struct upload *u = omap_remove(&s->uploads, l->word[1]);
    if (u)
        upload_free(u);
}

static const struct {
    const char *verb;
    size_t words;
    void (*replay)(struct store *s, struct journal_line *l);
} verbs[] = {
    {"bucket", 3, replay_bucket}, {"rmbucket", 2, replay_rmbucket}, {"put", 8, replay_put},
    {"rm", 3, replay_rm},         {"upload", 6, replay_upload},     {"part", 7, replay_part},
    {"end", 2, replay_end},
};

static bool replay_line(struct store *s, const char *text, size_t n)
{
    struct journal_line l;
    bool ok = false;
    if (journal_parse(&l, text, n)) {
        for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
            if (strcmp(l.word[0], verbs[i].verb) == 0 && l.n == verbs[i].words) {
                verbs[i].replay(s, &l);
                ok = true;
            }
        }
    }
    journal_line_free(&l);
    return ok;
}

static void replay(struct store *s, FILE *f)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    while ((n = getline(&text, &room, f)) > 0) {
        if (text[n - 1] != '\n' || !replay_line(s, text, (size_t)n - 1))
            break;
    }
    free(text);
}

/* Everything as it is now, in as few lines as that takes. */
static void write_state(struct store *s, FILE *f)
{
    struct buf line;
    line_init(&line);
    for (struct omap_node *b = s->buckets.head[0]; b; b = b->next[0]) {
        const struct bucket *bucket = b->value;
        journal_bucket(&line, b->key, bucket->created);
        for (struct omap_node *o = bucket->objects.head[0]; o; o = o->next[0]) {
            journal_put(&line, b->key, o->value);
            fwrite(buf_str(&line), 1, line.len, f);
            buf_clear(&line);
        }
        fwrite(buf_str(&line), 1, line.len, f);
        buf_clear(&line);
    }
    for (struct omap_node *n = s->uploads.head[0]; n; n = n->next[0]) {
        const struct upload *u = n->value;
        journal_upload(&line, u);
        for (size_t i = 0; i < u->count; i++)
            journal_part(&line, u->id, u->parts[i]);
        fwrite(buf_str(&line), 1, line.len, f);
        buf_clear(&line);
    }
    buf_free(&line);
}

static int open_journal(struct store *s, const char *root, struct nc_err *err)
{
    char path[4096], fresh[4096 + 8];
    if (snprintf(path, sizeof path, "%s/journal", root) >= (int)sizeof path)
        return nc_err_set(err, "ENAMETOOLONG", "root=%s: the name is too long", root);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *f = fopen(path, "re");
    if (f) {
        replay(s, f);
        fclose(f);
    }
    blob_folder_sweep(&s->blobs);
    f = fopen(fresh, "we");
    if (!f)
        return nc_err_sys(err, errno, "write %s", fresh);
    write_state(s, f);
    if (fclose(f) || rename(fresh, path))
        return nc_err_sys(err, errno, "write %s", path);
    s->journal = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    return s->journal < 0 ? nc_err_sys(err, errno, "open %s", path) : 0;
}

int store_open(struct store *s, const char *root, uint64_t keep, struct nc_err *err)
{
    *s = (struct store){.journal = -1, .blobs.keep = root ? 0 : keep};
    pthread_rwlock_init(&s->lock, NULL);
    if (root && mkdir(root, 0777) && errno != EEXIST)
        return nc_err_sys(err, errno, "make root=%s", root);
    int rc = blob_folder_open(&s->blobs, root);
    if (rc)
        return nc_err_sys(err, rc, "make root=%s/data", root);
    return root ? open_journal(s, root, err) : 0;
}

void store_close(struct store *s)
{
    /* What is let go of now stays on disk for the next start. */
    s->blobs.replaying = true;
    for (struct omap_node *n = s->buckets.head[0]; n; n = n->next[0])
        bucket_free(n->value);
    for (struct omap_node *n = s->uploads.head[0]; n; n = n->next[0])
        upload_free(n->value);
    omap_free(&s->buckets);
    omap_free(&s->uploads);
    blob_folder_close(&s->blobs);
    if (s->journal >= 0)
        close(s->journal);
    pthread_rwlock_destroy(&s->lock);
}

/* --- buckets ----------------------------------------------------------------------------- */

enum store_result store_bucket_create(struct store *s, const char *name, int64_t now)
{
    enum store_result rc = STORE_EXISTS;
    pthread_rwlock_wrlock(&s->lock);
    if (!omap_get(&s->buckets, name)) {
        struct bucket *b = str_alloc(sizeof *b);
        b->created = now;
        omap_put(&s->buckets, name, b);
        struct buf line;
        line_init(&line);
        journal_bucket(&line, name, now);
        record(s, &line);
        rc = STORE_OK;
    }
    pthread_rwlock_unlock(&s->lock);
    return rc;
}

enum store_result store_bucket_delete(struct store *s, const char *name)
{
    enum store_result rc = STORE_OK;
    pthread_rwlock_wrlock(&s->lock);
    struct bucket *b = omap_get(&s->buckets, name);
    if (!b)
        rc = STORE_NO_BUCKET;
    else if (b->objects.count)
        rc = STORE_NOT_EMPTY;
    else {
        bucket_free(omap_remove(&s->buckets, name));
        struct buf line;
        line_init(&line);
        journal_rmbucket(&line, name);
        record(s, &line);
    }
    pthread_rwlock_unlock(&s->lock);
    return rc;
}

bool store_bucket_exists(struct store *s, const char *name)
{
    pthread_rwlock_rdlock(&s->lock);
    bool yes = omap_get(&s->buckets, name) != NULL;
    pthread_rwlock_unlock(&s->lock);
    return yes;
}

void store_bucket_list(struct store *s, void (*each)(void *cls, const char *name, int64_t created),
                       void *cls)
{
    pthread_rwlock_rdlock(&s->lock);
    for (struct omap_node *n = s->buckets.head[0]; n; n = n->next[0])
        each(cls, n->key, ((struct bucket *)n->value)->created);
    pthread_rwlock_unlock(&s->lock);
}

/* --- objects ----------------------------------------------------------------------------- */

struct object *store_get(struct store *s, const char *bucket, const char *key)
{
    pthread_rwlock_rdlock(&s->lock);
    struct bucket *b = omap_get(&s->buckets, bucket);
    struct object *o = b ? omap_get(&b->objects, key) : NULL;
    if (o)
        atomic_fetch_add(&o->refs, 1);
    pthread_rwlock_unlock(&s->lock);
    return o;
}

static enum store_result check(const struct bucket *b, const char *key,
                               const struct store_condition *cond)
{
    const struct object *o = omap_get(&b->objects, key);
    if (cond->absent && o)
        return STORE_PRECONDITION;
    if (cond->etag && !o)
        return STORE_NO_KEY;
    if (cond->etag && strcmp(cond->etag, "*") != 0 && strcmp(cond->etag, o->etag) != 0)
        return STORE_PRECONDITION;
    return STORE_OK;
}

enum store_result store_put(struct store *s, const char *bucket, struct object *o,
                            const struct store_condition *cond)
{
    struct buf line;
    line_init(&line);
    journal_put(&line, bucket, o);
    struct object *old = NULL;
    pthread_rwlock_wrlock(&s->lock);
    struct bucket *b = omap_get(&s->buckets, bucket);
    enum store_result rc = b ? check(b, o->key, cond) : STORE_NO_BUCKET;
    if (rc == STORE_OK) {
        old = omap_put(&b->objects, o->key, o);
        record(s, &line);
    }
    pthread_rwlock_unlock(&s->lock);
    buf_free(&line);
    object_unref(old);
    return rc;
}

enum store_result store_delete(struct store *s, const char *bucket, const char *key)
{
    struct buf line;
    line_init(&line);
    journal_rm(&line, bucket, key);
    struct object *old = NULL;
    pthread_rwlock_wrlock(&s->lock);
    struct bucket *b = omap_get(&s->buckets, bucket);
    if (b)
        old = omap_remove(&b->objects, key);
    if (old)
        record(s, &line);
    pthread_rwlock_unlock(&s->lock);
    buf_free(&line);
    object_unref(old);
    return !b ? STORE_NO_BUCKET : old ? STORE_OK : STORE_NO_KEY;
}

/* --- listings ---------------------------------------------------------------------------- */

/* The first node past every key that starts with prefix (which ends in a delimiter). */
static struct omap_node *seek_past(const struct omap *m, const char *prefix)
{
    char *past = str_copy(prefix);
    size_t n = strlen(past);
    while (n && (unsigned char)past[n - 1] == 0xff)
        past[--n] = '\0';
    struct omap_node *node = NULL;
    if (n) {
        past[n - 1]++;
        node = omap_seek(m, past);
    }
    free(past);
    return node;
}

/* Takes over name.prefix. */
static void add_name(struct store_listing *out, struct store_name name)
{
    if ((out->count & (out->count - 1)) == 0) {
        size_t room = out->count ? out->count * 2 : 1;
        out->names = realloc(out->names, sizeof *out->names * room);
        if (!out->names)
            abort();
    }
    if (name.object)
        atomic_fetch_add(&name.object->refs, 1);
    out->names[out->count++] = name;
}

static void list_bucket(const struct bucket *b, const struct store_query *q,
                        struct store_listing *out)
{
    size_t plen = strlen(q->prefix);
    struct omap_node *n =
        omap_seek(&b->objects, strcmp(q->after, q->prefix) > 0 ? q->after : q->prefix);
    while (n && strncmp(n->key, q->prefix, plen) == 0) {
        const char *d = *q->delimiter ? strstr(n->key + plen, q->delimiter) : NULL;
        char *prefix = d ? strndup(n->key, (size_t)(d - n->key) + strlen(q->delimiter)) : NULL;
        bool wanted = strcmp(prefix ? prefix : n->key, q->after) > 0 || !*q->after;
        if (wanted && out->count == q->max) {
            out->truncated = true;
            free(prefix);
            return;
        }
        struct omap_node *next = prefix ? seek_past(&b->objects, prefix) : n->next[0];
        if (wanted)
            add_name(out, (struct store_name){prefix, prefix ? NULL : n->value});
        else
            free(prefix);
        n = next;
    }
}

enum store_result store_list(struct store *s, const char *bucket, const struct store_query *q,
                             struct store_listing *out)
{
    *out = (struct store_listing){0};
    pthread_rwlock_rdlock(&s->lock);
    struct bucket *b = omap_get(&s->buckets, bucket);
    if (b && q->max)
        list_bucket(b, q, out);
    pthread_rwlock_unlock(&s->lock);
    return b ? STORE_OK : STORE_NO_BUCKET;
}

void store_listing_free(struct store_listing *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->names[i].prefix);
        object_unref(l->names[i].object);
    }
    free(l->names);
    *l = (struct store_listing){0};
}

/* --- multipart --------------------------------------------------------------------------- */

enum store_result store_upload_create(struct store *s, const char *bucket, const char *key,
                                      const struct pairs *headers, int64_t now, char id[33])
{
    unsigned char random[16];
    if (RAND_bytes(random, sizeof random) != 1)
        abort();
    str_hex(id, random, sizeof random);
    struct upload *u = str_alloc(sizeof *u);
    memcpy(u->id, id, sizeof u->id);
    u->bucket = str_copy(bucket);
    u->key = str_copy(key);
    u->started = now;
    pairs_copy(&u->headers, headers);

    pthread_rwlock_wrlock(&s->lock);
    bool exists = omap_get(&s->buckets, bucket) != NULL;
    if (exists) {
        omap_put(&s->uploads, id, u);
        struct buf line;
        line_init(&line);
        journal_upload(&line, u);
        record(s, &line);
    }
    pthread_rwlock_unlock(&s->lock);
    if (!exists)
        upload_free(u);
    return exists ? STORE_OK : STORE_NO_BUCKET;
}

static struct upload *find_upload(struct store *s, const char *bucket, const char *key,
                                  const char *id)
{
    struct upload *u = omap_get(&s->uploads, id);
    return u && strcmp(u->bucket, bucket) == 0 && strcmp(u->key, key) == 0 ? u : NULL;
}

enum store_result store_upload_put(struct store *s, const char *bucket, const char *key,
                                   const char *id, struct part *part)
{
    struct buf line;
    line_init(&line);
    journal_part(&line, id, part);
    pthread_rwlock_wrlock(&s->lock);
    struct upload *u = find_upload(s, bucket, key, id);
    if (u) {
        place_part(u, part);
        record(s, &line);
    }
    pthread_rwlock_unlock(&s->lock);
    buf_free(&line);
    return u ? STORE_OK : STORE_NO_UPLOAD;
}

enum store_result store_upload_abort(struct store *s, const char *bucket, const char *key,
                                     const char *id)
{
    pthread_rwlock_wrlock(&s->lock);
    struct upload *u = find_upload(s, bucket, key, id);
    if (u) {
        omap_remove(&s->uploads, id);
        struct buf line;
        line_init(&line);
        journal_end(&line, id);
        record(s, &line);
    }
    pthread_rwlock_unlock(&s->lock);
    if (u)
        upload_free(u);
    return u ? STORE_OK : STORE_NO_UPLOAD;
}

enum store_result store_upload_parts(struct store *s, const char *bucket, const char *key,
                                     const char *id,
                                     void (*each)(void *cls, const struct part *part), void *cls)
{
    pthread_rwlock_rdlock(&s->lock);
    struct upload *u = find_upload(s, bucket, key, id);
    for (size_t i = 0; u && i < u->count; i++)
        each(cls, u->parts[i]);
    pthread_rwlock_unlock(&s->lock);
    return u ? STORE_OK : STORE_NO_UPLOAD;
}

void store_uploads(struct store *s, const char *bucket,
                   void (*each)(void *cls, const struct upload *upload), void *cls)
{
    pthread_rwlock_rdlock(&s->lock);
    for (struct omap_node *n = s->uploads.head[0]; n; n = n->next[0]) {
        const struct upload *u = n->value;
        if (!bucket || strcmp(u->bucket, bucket) == 0)
            each(cls, u);
    }
    pthread_rwlock_unlock(&s->lock);
}

/* Finds the named parts and checks them as S3 does: ascending, known, same ETag, large enough. */
static enum store_result pick_parts(const struct upload *u, const struct store_named_part *named,
                                    size_t count, struct part **picked)
{
    for (size_t i = 0; i < count; i++) {
        if (i && named[i].number <= named[i - 1].number)
            return STORE_INVALID_ORDER;
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = part_place(u, named[i].number);
        if (at == u->count || u->parts[at]->number != named[i].number ||
            strcmp(u->parts[at]->etag, named[i].etag) != 0)
            return STORE_INVALID_PART;
        picked[i] = u->parts[at];
    }
    for (size_t i = 0; i + 1 < count; i++) {
        if (picked[i]->size < STORE_MIN_PART_SIZE)
            return STORE_TOO_SMALL;
    }
    return STORE_OK;
}

static struct object *join_parts(const struct upload *u, struct part *const *picked, size_t count,
                                 int64_t now)
{
    struct object *o = object_new(u->key);
    o->mtime = now;
    pairs_copy(&o->headers, &u->headers);
    for (size_t i = 0; i < count; i++) {
        extents_slice(&o->data, &picked[i]->data, 0, picked[i]->size);
        o->size += picked[i]->size;
    }
    return o;
}

/* The object appears and the upload ends in one line pair, written at once. */
static struct object *publish(struct store *s, struct bucket *b, struct upload *u, struct object *o)
{
    struct object *old = omap_put(&b->objects, o->key, o);
    omap_remove(&s->uploads, u->id);
    struct buf line;
    line_init(&line);
    journal_put(&line, u->bucket, o);
    journal_end(&line, u->id);
    record(s, &line);
    return old;
}

enum store_result store_upload_complete(struct store *s, const char *bucket, const char *key,
                                        const char *id, const struct store_named_part *named,
                                        size_t count, const struct store_condition *cond,
                                        void (*etag_of)(char out[72], struct part *const *parts,
                                                        size_t count),
                                        int64_t now, struct object **out)
{
    struct part **picked = str_alloc(sizeof *picked * count);
    struct object *old = NULL;
    pthread_rwlock_wrlock(&s->lock);
    struct bucket *b = omap_get(&s->buckets, bucket);
    struct upload *u = find_upload(s, bucket, key, id);
    enum store_result rc = !b ? STORE_NO_BUCKET : !u ? STORE_NO_UPLOAD : check(b, key, cond);
    if (rc == STORE_OK)
        rc = pick_parts(u, named, count, picked);
    if (rc == STORE_OK) {
        *out = join_parts(u, picked, count, now);
        etag_of((*out)->etag, picked, count);
        atomic_fetch_add(&(*out)->refs, 1);
        old = publish(s, b, u, *out);
    }
    pthread_rwlock_unlock(&s->lock);
    if (rc == STORE_OK)
        upload_free(u);
    object_unref(old);
    free(picked);
    return rc;
}
