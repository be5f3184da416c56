#include "hub_repo.h"

#include "base/clock.h"
#include "digest.h"
#include "text.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRESH_MS 250 /* a snapshot younger than this still serves those who name its commit */
#define MAX_DEPTH 32

static void load_digests(struct hub *h, const char *root)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/hub-digests", root) >= (int)sizeof path)
        return;
    h->cache = fopen(path, "a+e");
    char *line = NULL;
    size_t room = 0;
    while (h->cache && getline(&line, &room, h->cache) > 0) {
        char *blank = strchr(line, ' '), *end = strchr(line, '\n');
        if (!blank || !end)
            continue;
        *blank = *end = '\0';
        free(omap_put(&h->digests, blank + 1, str_copy(line)));
    }
    free(line);
}

void hub_repos_init(struct hub *h, const char *dir, uint64_t lfs_over, const char *root)
{
    *h = (struct hub){.dir = dir, .lfs_over = lfs_over};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->computed, NULL);
    if (dir && root)
        load_digests(h, root);
}

void hub_repos_free(struct hub *h)
{
    for (struct omap_node *n = h->snapshots.head[0]; n; n = n->next[0])
        hub_unref(n->value);
    for (struct omap_node *n = h->digests.head[0]; n; n = n->next[0])
        free(n->value);
    omap_free(&h->snapshots);
    omap_free(&h->digests);
    if (h->cache)
        fclose(h->cache);
    pthread_cond_destroy(&h->computed);
    pthread_mutex_destroy(&h->lock);
}

void hub_unref(struct hub_snapshot *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    for (size_t i = 0; i < s->n; i++)
        free(s->files[i].path);
    free(s->files);
    free(s->folder);
    free(s->moved);
    free(s);
}

/* --- looking at a folder ---------------------------------------------------------------------- */

static char *joined(const char *a, const char *b)
{
    struct buf s;
    buf_init(&s, 1 << 16);
    buf_printf(&s, "%s%s%s", a, *a ? "/" : "", b);
    char *out = buf_take(&s);
    return out ? out : str_copy("");
}

static char *read_moved(int fd)
{
    char text[256];
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    text[strcspn(text, " \r\n")] = '\0';
    return str_copy(text);
}

/* True where name steers the folder and is no file of the repository. */
static bool steers(struct hub_snapshot *s, int dir, const char *name)
{
    if (strcmp(name, ".gated") == 0)
        return s->gated = true;
    if (strcmp(name, ".private") == 0)
        return s->is_private = true;
    if (strcmp(name, ".moved") != 0)
        return false;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && !s->moved)
        s->moved = read_moved(fd);
    return true;
}

static void add_file(struct hub *h, struct hub_snapshot *s, char *path, const struct stat *st)
{
    if ((s->n & (s->n - 1)) == 0) {
        s->files = realloc(s->files, sizeof *s->files * (s->n ? s->n * 2 : 1));
        if (!s->files)
            abort();
    }
    s->files[s->n++] = (struct hub_file){
        .path = path,
        .size = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .lfs = (uint64_t)st->st_size > h->lfs_over || str_ends(path, ".safetensors") ||
               str_ends(path, ".bin"),
    };
}

/* Takes over fd. */
static void walk(struct hub *h, struct hub_snapshot *s, int fd, const char *at, int depth)
{
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    /* cppcheck-suppress readdirCalled ; the stream is this thread's own */
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            (!*at && steers(s, dirfd(d), e->d_name)) || fstatat(dirfd(d), e->d_name, &st, 0))
            continue;
        char *path = joined(at, e->d_name);
        if (S_ISREG(st.st_mode)) {
            add_file(h, s, path, &st);
            continue;
        }
        if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
            walk(h, s, openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path,
                 depth + 1);
        free(path);
    }
    closedir(d);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

static void name_commit(struct hub_snapshot *s)
{
    struct digest d;
    digest_init(&d, DIGEST_SHA1);
    for (size_t i = 0; i < s->n; i++) {
        char facts[64];
        int n = snprintf(facts, sizeof facts, "\n%" PRIu64 " %" PRId64 "\n", s->files[i].size,
                         s->files[i].mtime_ns);
        digest_add(&d, s->files[i].path, strlen(s->files[i].path));
        digest_add(&d, facts, (size_t)n);
    }
    digest_hex(&d, s->commit);
}

/* The folder as it is now, or was max_age milliseconds ago at most; a reference, or NULL. Under the
 * lock. */
static struct hub_snapshot *look(struct hub *h, const char *folder, uint64_t max_age)
{
    struct hub_snapshot *s = omap_get(&h->snapshots, folder);
    if (s && clock_ms() - s->looked_ms < max_age) {
        atomic_fetch_add(&s->refs, 1);
        return s;
    }
    hub_unref(omap_remove(&h->snapshots, folder));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    s = str_alloc(sizeof *s);
    s->refs = 2;
    s->folder = str_copy(folder);
    walk(h, s, fd, "", 0);
    if (s->n)
        qsort(s->files, s->n, sizeof *s->files, by_path);
    name_commit(s);
    s->looked_ms = clock_ms();
    omap_put(&h->snapshots, folder, s);
    return s;
}

/* --- finding ---------------------------------------------------------------------------------- */

/* Another folder name@... of the repository with that commit. */
static struct hub_snapshot *look_for_commit(struct hub *h, const char *folder, const char *commit)
{
    char *owner = str_copy(folder), *name = strrchr(owner, '/');
    *name++ = '\0';
    struct hub_snapshot *found = NULL;
    DIR *d = opendir(owner);
    /* cppcheck-suppress readdirCalled ; the stream is this thread's own */
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        size_t n = strlen(name);
        if (strncmp(e->d_name, name, n) != 0 || e->d_name[n] != '@')
            continue;
        char *path = joined(owner, e->d_name);
        struct hub_snapshot *s = look(h, path, FRESH_MS);
        if (s && strcmp(s->commit, commit) == 0)
            found = s;
        else
            hub_unref(s);
        free(path);
    }
    if (d)
        closedir(d);
    free(owner);
    return found;
}

static bool plain_name(const char *s, bool one_slash)
{
    size_t n = strlen(s);
    const char *slash = strchr(s, '/');
    if (n == 0 || n > 512 || strstr(s, "..") || s[0] == '.' || strchr(s, '@') != NULL)
        return false;
    return one_slash ? slash && slash != s && slash[1] && slash[1] != '.' && !strchr(slash + 1, '/')
                     : !slash;
}

enum hub_result hub_find(struct hub *h, const char *repo, const char *rev,
                         struct hub_snapshot **out)
{
    char folder[4096], other[4096 + 520];
    *out = NULL;
    if (!h->dir || !plain_name(repo, true) ||
        snprintf(folder, sizeof folder, "%s/%s", h->dir, repo) >= (int)sizeof folder)
        return HUB_NO_REPO;
    pthread_mutex_lock(&h->lock);
    bool is_branch = strcmp(rev, "main") == 0;
    struct hub_snapshot *head = look(h, folder, is_branch ? 0 : FRESH_MS), *s = NULL;
    if (head && (is_branch || strcmp(rev, head->commit) == 0)) {
        s = head;
    } else if (head && plain_name(rev, false)) {
        snprintf(other, sizeof other, "%s@%s", folder, rev);
        s = look(h, other, 0);
        if (!s && strlen(rev) == 40)
            s = look_for_commit(h, folder, rev);
    }
    pthread_mutex_unlock(&h->lock);
    *out = s ? s : head;
    if (s && s != head)
        hub_unref(head);
    return !head ? HUB_NO_REPO : s ? HUB_OK : HUB_NO_REVISION;
}

static int against_path(const void *path, const void *file)
{
    return strcmp(path, ((const struct hub_file *)file)->path);
}

const struct hub_file *hub_find_file(const struct hub_snapshot *s, const char *path)
{
    return s->n ? bsearch(path, s->files, s->n, sizeof *s->files, against_path) : NULL;
}

int hub_open_file(const struct hub_snapshot *s, const struct hub_file *f)
{
    char *path = joined(s->folder, f->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    return fd;
}

/* --- digests ---------------------------------------------------------------------------------- */

static bool digest_file(int fd, const struct hub_file *f, char hex[65])
{
    struct digest d;
    size_t room = 1 << 20;
    char *piece = str_alloc(room);
    uint64_t left = f->size;
    digest_init(&d, f->lfs ? DIGEST_SHA256 : DIGEST_SHA1);
    if (!f->lfs) {
        int n = snprintf(piece, room, "blob %" PRIu64, f->size);
        digest_add(&d, piece, (size_t)n + 1); /* with its NUL */
    }
    ssize_t n;
    while (left && (n = read(fd, piece, room)) > 0) {
        digest_add(&d, piece, (size_t)n);
        left -= (uint64_t)n < left ? (uint64_t)n : left;
    }
    digest_hex(&d, hex);
    free(piece);
    return left == 0;
}

/* What a digest is filed under: the file and what would change with its content. */
static char *digest_key(const struct hub_snapshot *s, const struct hub_file *f)
{
    struct buf key;
    buf_init(&key, 1 << 16);
    str_encode(&key, s->folder, true);
    buf_putc(&key, '/');
    str_encode(&key, f->path, true);
    buf_printf(&key, ":%" PRIu64 ":%" PRId64 ":%s", f->size, f->mtime_ns, f->lfs ? "lfs" : "git");
    return buf_take(&key);
}

static bool compute(struct hub *h, const struct hub_snapshot *s, const struct hub_file *f,
                    const char *key, char hex[65])
{
    free(omap_put(&h->digests, key, str_copy(""))); /* others wait for it */
    pthread_mutex_unlock(&h->lock);
    int fd = hub_open_file(s, f);
    bool ok = fd >= 0 && digest_file(fd, f, hex);
    if (fd >= 0)
        close(fd);
    pthread_mutex_lock(&h->lock);
    free(ok ? omap_put(&h->digests, key, str_copy(hex)) : omap_remove(&h->digests, key));
    if (ok && h->cache) {
        fprintf(h->cache, "%s %s\n", hex, key);
        fflush(h->cache);
    }
    pthread_cond_broadcast(&h->computed);
    return ok;
}

bool hub_digest(struct hub *h, const struct hub_snapshot *s, const struct hub_file *f, char hex[65])
{
    char *key = digest_key(s, f);
    if (!key)
        return false;
    pthread_mutex_lock(&h->lock);
    const char *known;
    while ((known = omap_get(&h->digests, key)) && !*known)
        pthread_cond_wait(&h->computed, &h->lock);
    bool ok = known != NULL;
    if (known)
        snprintf(hex, 65, "%s", known);
    else
        ok = compute(h, s, f, key, hex);
    pthread_mutex_unlock(&h->lock);
    free(key);
    return ok;
}

size_t hub_pointer(char out[256], const char *sha256, uint64_t size)
{
    return (size_t)snprintf(
        out, 256, "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %" PRIu64 "\n",
        sha256, size);
}

void hub_blob_sha1(const void *data, size_t n, char hex[41])
{
    struct digest d;
    char head[32];
    int len = snprintf(head, sizeof head, "blob %zu", n);
    digest_init(&d, DIGEST_SHA1);
    digest_add(&d, head, (size_t)len + 1);
    digest_add(&d, data, n);
    digest_hex(&d, hex);
}
