#include "transfer/check.h"

#include "transfer/fate.h"
#include "transfer/plan.h"

#include <stdlib.h>
#include <string.h>

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

/* One part more is in the file's digests; false when they turn out wrong. */
static bool part_hashed(struct transfer *t, struct file *f)
{
    struct nc_err err;
    f->hashed++;
    if (f->hashed < f->parts || digest_fits(f, &err))
        return true;
    fate_fail(t, f, &err);
    return false;
}

/* A part that has its buffer is now in the file's digests. */
static void kept_hashed(struct transfer *t, struct part *p)
{
    struct file *f = p->file;
    p->hashed = true;
    if (!part_hashed(t, f))
        return;
    if (p->stored)
        fate_release(t, p);
    else if (f->parts == 1)
        fate_queue_part(t, p); /* now that it is known to be right */
}

static void swap_digests(struct file *f, struct part *p)
{
    struct sha256 hash = f->hash;
    struct gitblob git = f->git;
    f->hash = p->hash;
    f->git = p->git;
    p->hash = hash;
    p->git = git;
}

void check_turn_over(struct transfer *t, struct part *p, bool well)
{
    struct file *f = p->file;
    if (!p->in_turn)
        return;
    p->in_turn = false;
    if (well)
        swap_digests(f, p);
    if (well && f->streamed) {
        p->hashed = true;
        part_hashed(t, f);
    } else if (well) {
        kept_hashed(t, p);
    }
    f->hashing = false; /* until now, or the part might be gone with its file */
}

void check_in_order(struct transfer *t, struct file *f)
{
    if (!f->hashes || f->hashing)
        return;
    f->hashing = true;
    while (f->hashed < f->parts && !f->failing && !t->stopping) {
        struct part *p = f->streamed ? NULL : f->in_flight[f->hashed];
        if (!p || !p->fetched)
            break;
        state_unlock(t);
        add_to_file(f, p->data, p->len);
        state_lock(t);
        kept_hashed(t, p);
    }
    f->hashing = false;
    if (f->streamed && f->hashed < f->parts && f->etags[f->hashed][0] && !f->rereads &&
        !f->failing) {
        f->rereads = true;
        queue_add(&t->rereads, f);
    }
    fate_finish_when_whole(t, f);
    fate_leave_when_idle(t, f);
}

/* Without the lock. */
static int hash_stored(struct transfer *t, struct file *f, uint32_t index, struct nc_err *err)
{
    uint64_t offset = (uint64_t)index * f->part_size;
    uint64_t left = plan_part_len(f->size, f->part_size, index);
    char *block = malloc(BLOCK);
    int rc = block ? 0 : nc_err_set(err, "ENOMEM", "%s: out of memory", f->path);
    for (size_t len; rc == 0 && left; left -= len, offset += len) {
        len = left < BLOCK ? (size_t)left : BLOCK;
        rc = t->sink->read(t->sink, f, offset, block, len, err);
        if (rc)
            break;
        add_to_file(f, block, len);
        atomic_fetch_add(&t->bytes_read, len);
    }
    free(block);
    return rc;
}

void check_reread(struct transfer *t, struct file *f)
{
    struct nc_err err;
    f->rereads = false;
    if (f->hashing) /* a part that goes into it as it comes; its end calls us again */
        return;
    f->hashing = true;
    while (f->hashed < f->parts && f->etags[f->hashed][0] && !f->failing && !t->stopping) {
        state_unlock(t);
        int rc = hash_stored(t, f, f->hashed, &err);
        state_lock(t);
        if (rc)
            fate_fail(t, f, &err);
        else
            part_hashed(t, f);
    }
    f->hashing = false;
    fate_finish_when_whole(t, f);
    fate_leave_when_idle(t, f);
}
