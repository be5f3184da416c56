/* Hub repositories as folders: DIR/owner/name/ is revision "main" of owner/name,
 * DIR/owner/name@REV/ is its revision REV. A commit is a hash over paths, sizes and times, so it
 * holds while the files do, and every folder of a repository can be asked for by its commit: rename
 * name to name@old and make a new name, and the branch has moved. Files at a folder's top that
 * steer it: `.gated`,
 * `.private`, `.moved` (holds the new owner/name). Digests are computed once per path, size and
 * time, and kept beside the objects where the server has a root. Any thread. */
#ifndef NCDEV_HUB_REPO_H
#define NCDEV_HUB_REPO_H

#include "omap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct hub_file {
    char *path;
    uint64_t size;
    int64_t mtime_ns;
    bool lfs;
};

/* A folder as it was when looked at; counted. */
struct hub_snapshot {
    atomic_int refs;
    char *folder;
    char commit[41];
    struct hub_file *files; /* by path */
    size_t n;
    bool gated, is_private;
    char *moved; /* NULL: not */
    uint64_t looked_ms;
};

struct hub {
    const char *dir; /* NULL: no repositories */
    uint64_t lfs_over;
    pthread_mutex_t lock;
    pthread_cond_t computed;
    struct omap snapshots; /* folder -> struct hub_snapshot */
    struct omap digests;   /* file -> hexadecimal digest, "" while it is computed */
    FILE *cache;           /* NULL: digests are not kept */
};

void hub_repos_init(struct hub *h, const char *dir, uint64_t lfs_over, const char *root);
void hub_repos_free(struct hub *h);

enum hub_result { HUB_OK, HUB_NO_REPO, HUB_NO_REVISION };

/* repo: "owner/name"; rev: a branch or a commit. On HUB_OK and HUB_NO_REVISION, *out is a
 * reference (for HUB_NO_REVISION to main, which knows who may see it). */
enum hub_result hub_find(struct hub *h, const char *repo, const char *rev,
                         struct hub_snapshot **out);
void hub_unref(struct hub_snapshot *s); /* accepts NULL */
const struct hub_file *hub_find_file(const struct hub_snapshot *s, const char *path); /* or NULL */
int hub_open_file(const struct hub_snapshot *s, const struct hub_file *f); /* descriptor or -1 */

/* SHA-256 of an LFS file, git's blob SHA-1 of another. False: it can't be read. */
bool hub_digest(struct hub *h, const struct hub_snapshot *s, const struct hub_file *f,
                char hex[65]);
/* The LFS pointer of that content; returns its length. */
size_t hub_pointer(char out[256], const char *sha256, uint64_t size);
void hub_blob_sha1(const void *data, size_t n, char hex[41]);

#endif
