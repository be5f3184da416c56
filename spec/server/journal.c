#include "journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void words(struct buf *out, const char *verb, const char *a, const char *b)
{
    buf_puts(out, verb);
    buf_putc(out, ' ');
    str_encode(out, a, false);
    if (b) {
        buf_putc(out, ' ');
        str_encode(out, b, false);
    }
}

static void extents(struct buf *out, const struct extents *e)
{
    for (size_t i = 0; i < e->n; i++)
        buf_printf(out, "%s%" PRIu64 ":%" PRIu64 ":%" PRIu64, i ? "," : " ", e->v[i].blob->id,
                   e->v[i].offset, e->v[i].size);
    if (e->n == 0)
        buf_puts(out, " -");
}

static void headers(struct buf *out, const struct pairs *h)
{
    buf_puts(out, h->n ? " " : " -");
    pairs_encode(h, out);
    buf_putc(out, '\n');
}

void journal_bucket(struct buf *out, const char *name, int64_t created)
{
    words(out, "bucket", name, NULL);
    buf_printf(out, " %" PRId64 "\n", created);
}

void journal_rmbucket(struct buf *out, const char *name)
{
    words(out, "rmbucket", name, NULL);
    buf_putc(out, '\n');
}

void journal_put(struct buf *out, const char *bucket, const struct object *o)
{
    words(out, "put", bucket, o->key);
    buf_printf(out, " %" PRIu64 " %s %" PRId64, o->size, o->etag, o->mtime);
    extents(out, &o->data);
    headers(out, &o->headers);
}

void journal_rm(struct buf *out, const char *bucket, const char *key)
{
    words(out, "rm", bucket, key);
    buf_putc(out, '\n');
}

void journal_upload(struct buf *out, const struct upload *u)
{
    buf_printf(out, "upload %s", u->id);
    words(out, "", u->bucket, u->key);
    buf_printf(out, " %" PRId64, u->started);
    headers(out, &u->headers);
}

void journal_part(struct buf *out, const char *id, const struct part *p)
{
    buf_printf(out, "part %s %u %" PRIu64 " %s %" PRId64, id, p->number, p->size, p->etag,
               p->mtime);
    extents(out, &p->data);
    buf_putc(out, '\n');
}

void journal_end(struct buf *out, const char *id)
{
    buf_printf(out, "end %s\n", id);
}

bool journal_parse(struct journal_line *l, const char *text, size_t n)
{
    *l = (struct journal_line){0};
    const char *end = text + n;
    while (text < end && l->n < sizeof l->word / sizeof *l->word) {
        const char *blank = memchr(text, ' ', (size_t)(end - text));
        size_t len = (size_t)((blank ? blank : end) - text);
        /* Headers stay encoded: they are a query string. They alone hold a '='. */
        bool encoded = memchr(text, '=', len) != NULL;
        char *word = encoded ? strndup(text, len) : str_decode(text, len, false);
        if (!word)
            return false;
        l->word[l->n++] = word;
        text += len + 1;
    }
    return l->n > 0;
}

void journal_line_free(struct journal_line *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->word[i]);
    *l = (struct journal_line){0};
}

bool journal_extents(struct extents *out, struct blob_folder *f, const char *text)
{
    while (strcmp(text, "-") != 0 && *text) {
        uint64_t id, offset, size;
        if (!str_take_u64(&text, &id) || *text++ != ':' || !str_take_u64(&text, &offset) ||
            *text++ != ':' || !str_take_u64(&text, &size))
            return false;
        struct blob *b = blob_replayed(f, id);
        extents_add(out, b, offset, size);
        blob_unref(b);
        text += *text == ',';
    }
    return true;
}

void journal_headers(struct pairs *out, const char *text)
{
    if (strcmp(text, "-") != 0)
        pairs_parse(out, text);
}
