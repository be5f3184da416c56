#include "transfer/check.h"

#include "transfer/fate.h"

#include <string.h>

enum { DIGEST_BLOCK = 64 * 1024 }; /* stays in a core's cache */

static bool digest_fits(struct file *f, struct nc_err *err)
{
    char got[SHA256_HEX_SIZE];
    char git[SHA1_HEX_SIZE];
    sha256_final_hex(&f->hash, got);
    if (f->sha256[0] && strcmp(got, f->sha256) != 0) {
        nc_err_set(err, "DigestMismatch",
                   "%s: its SHA-256 is %s where %s is expected: the bytes are not the published "
                   "ones",
                   f->path, got, f->sha256);
        return false;
    }
    if (f->blob[0]) {
        gitblob_final_hex(&f->git, git);
        if (strcmp(git, f->blob) != 0) {
            nc_err_set(err, "DigestMismatch",
                       "%s: its git blob name is %s where %s is expected: the bytes are not the "
                       "published ones",
                       f->path, git, f->blob);
            return false;
        }
    }
    memcpy(f->sha256, got, sizeof got);
    return true;
}

static void add_to_file(struct file *f, const char *data, size_t len)
{
    sha256_update(&f->hash, data, len);
    if (f->blob[0])
        gitblob_update(&f->git, data, len);
}

/* All digests of a part that has come, block by block, so that its bytes come from memory only
 * once: its own, the sink's, and the file's where it is this part's turn. Without the lock. */
int check_part(struct transfer *t, struct part *p, bool its_turn, struct nc_err *err)
{
    struct file *f = p->file;
    struct xxh3 own = {0};
    struct sha256 sent = {0};
    int rc = xxh3_init(&own) || (t->sink->digests && sha256_init(&sent)) ? -1 : 0;
    for (size_t at = 0, len; rc == 0 && at < p->len; at += len) {
        len = p->len - at < DIGEST_BLOCK ? p->len - at : DIGEST_BLOCK;
        xxh3_update(&own, p->data + at, len);
        if (t->sink->digests)
            sha256_update(&sent, p->data + at, len);
        if (its_turn)
            add_to_file(f, p->data + at, len);
    }
    if (rc == 0)
        xxh3_final_hex(&own, f->digests[p->index]);
    else
        nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
    if (rc == 0 && t->sink->digests)
        sha256_final_hex(&sent, p->sha256);
    xxh3_free(&own);
    sha256_free(&sent);
    return rc;
}

/* The next part of its file has gone into the file's digest. */
void check_hashed(struct transfer *t, struct part *p)
{
    struct file *f = p->file;
    struct nc_err err;
    p->hashed = true;
    f->hashed++;
    if (f->hashed == f->parts && !digest_fits(f, &err))
        fate_fail(t, f, &err);
    else if (p->stored)
        fate_release(t, p);
    else if (f->parts == 1)
        fate_queue_part(t, p); /* now that it is known to be right */
}

/* Hashes what has come before its turn; one worker a file, without the lock while it computes. */
void check_in_order(struct transfer *t, struct file *f)
{
    if (f->hashing || f->continued)
        return;
    f->hashing = true;
    while (f->hashed < f->parts && !f->failing && !t->stopping) {
        struct part *p = f->in_flight[f->hashed];
        if (!p || !p->fetched)
            break;
        state_unlock(t);
        add_to_file(f, p->data, p->len);
        state_lock(t);
        check_hashed(t, p);
    }
    f->hashing = false;
    fate_finish_when_whole(t, f);
    fate_leave_when_idle(t, f);
}
