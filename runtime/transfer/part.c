#include "transfer/part.h"

#include "transfer/blocks.h"

#include <stdlib.h>
#include <string.h>

enum { WHOLE = 16, SMALL_WEIGHT = 4, SMALL_LEN = 1024 * 1024 };

size_t part_need(const struct file *f, size_t len)
{
    return f->direct ? 0 : f->streamed && len > f->block ? f->block : len;
}

unsigned part_weight(const struct part *p)
{
    return part_is_small(p->len) ? SMALL_WEIGHT : WHOLE;
}

bool part_is_small(uint64_t len)
{
    return len <= SMALL_LEN;
}

static int no_memory(const struct part *p, struct nc_err *err)
{
    return nc_err_set(err, "ENOMEM", "%s: out of memory", p->file->path);
}

/* Goes on with the file's digests where no other part does and all parts before this one are in
 * them. */
static int take_turn(struct part *p)
{
    struct file *f = p->file;
    struct transfer *t = f->transfer;
    pthread_mutex_lock(&t->lock);
    if (!p->in_turn && f->hashes && !f->hashing && f->hashed == p->index)
        f->hashing = p->in_turn = true;
    bool turn = p->in_turn;
    pthread_mutex_unlock(&t->lock);
    if (!turn)
        return 0;
    return sha256_copy(&p->hash, &f->hash) || (f->blob[0] && gitblob_copy(&p->git, &f->git)) ? -1
                                                                                             : 0;
}

int transfer_part_begin(struct part *p, struct nc_err *err)
{
    if (p->file->aside && blocks_begin_again(p, err))
        return -1;
    p->rewrites |= p->taken > 0;
    p->taken = p->held = 0;
    if (xxh3_init(&p->own) || (p->file->transfer->sink->digests && sha256_init(&p->sent)) ||
        take_turn(p))
        return no_memory(p, err);
    p->aside = p->file->aside && (!p->file->hashes || p->in_turn);
    return 0;
}

/* They stay in a core's cache from the source to the sink. */
void transfer_part_usual_blocks(struct part *p)
{
    if (p->file->streamed && !p->aside && p->room > BLOCK)
        p->room = BLOCK;
}

static void digest(struct part *p, const char *data, size_t len)
{
    xxh3_update(&p->own, data, len);
    if (p->file->transfer->sink->digests)
        sha256_update(&p->sent, data, len);
    if (!p->in_turn)
        return;
    sha256_update(&p->hash, data, len);
    if (p->file->blob[0])
        gitblob_update(&p->git, data, len);
}

char *transfer_part_room(struct part *p, size_t *room)
{
    size_t left = p->len - p->taken;
    size_t at = p->file->streamed ? p->held : p->taken;
    *room = p->room - at < left ? p->room - at : left;
    return p->data + at;
}

/* A full block, or the last one, goes to the sink. */
static int write_block(struct part *p, struct nc_err *err)
{
    struct sink *sink = p->file->transfer->sink;
    size_t held = p->held;
    if (held < p->room && p->taken < p->len)
        return 0;
    p->held = 0;
    if (!sink->write)
        return 0;
    if (p->aside && !p->file->transfer->source->local) /* else this is a hand itself */
        return blocks_hand_over(p, p->taken - held, held, err);
    return sink->write(sink, p, p->taken - held, p->data, held, err);
}

int transfer_part_took(struct part *p, size_t n, struct nc_err *err)
{
    if (!n)
        return 0;
    bool streamed = p->file->streamed;
    digest(p, p->data + (streamed ? p->held : p->taken), n); /* while it is in a core's cache */
    p->taken += n;
    p->held += streamed ? n : 0;
    return streamed ? write_block(p, err) : 0;
}

int transfer_part_take(struct part *p, const char *data, size_t len, struct nc_err *err)
{
    for (size_t at = 0, n; at < len; at += n) {
        char *to = transfer_part_room(p, &n);
        if (n > len - at)
            n = len - at;
        memcpy(to, data + at, n);
        if (transfer_part_took(p, n, err))
            return -1;
    }
    return 0;
}

int transfer_part_skip(struct part *p, size_t n, struct nc_err *err)
{
    static const char zeros[64 * 1024];
    for (size_t step; n; n -= step) {
        /* Into the buffer, up to the end of a block; or over what was written before. */
        if (!p->file->streamed || p->held || p->rewrites || p->file->found) {
            char *to = transfer_part_room(p, &step);
            step = step < n ? step : n;
            memset(to, 0, step);
            if (transfer_part_took(p, step, err))
                return -1;
        } else {
            step = n < sizeof zeros ? n : sizeof zeros;
            digest(p, zeros, step);
            p->taken += step;
        }
    }
    return 0;
}

const struct nc_err *part_end(struct part *p, struct nc_err *err)
{
    struct file *f = p->file;
    if (p->taken != p->len) {
        nc_err_set(err, "ShortBody", "%s: part %u ended after %zu of %zu bytes", f->path,
                   (unsigned)p->index + 1, p->taken, p->len);
        return err;
    }
    char *own = f->digests[p->index];
    xxh3_final_hex(&p->own, own);
    if (f->transfer->sink->digests)
        sha256_final_hex(&p->sent, p->sha256);
    if (!f->expected || strcmp(own, f->expected[p->index]) == 0)
        return NULL;
    nc_err_set(err, "DigestMismatch",
               "%s: part %u has the XXH3-128 %s where %s is expected: its bytes are not the ones "
               "of the copy's manifest",
               f->path, (unsigned)p->index + 1, own, f->expected[p->index]);
    return err;
}

void part_free(struct part *p)
{
    free(p->fetch_err);
    xxh3_free(&p->own);
    sha256_free(&p->sent);
    sha256_free(&p->hash);
    gitblob_free(&p->git);
}
