/* The store's journal: one line a change, fields separated by blanks and percent-encoded.
 *
 *     bucket NAME CREATED              made            rmbucket NAME            deleted
 *     put BUCKET KEY SIZE ETAG MTIME EXTENTS HEADERS   rm BUCKET KEY
 *     upload ID BUCKET KEY STARTED HEADERS             end ID                   completed or
 * aborted part ID NUMBER SIZE ETAG MTIME EXTENTS
 *
 * EXTENTS is id:offset:size,... or "-"; HEADERS a query string or "-". A line that is cut or does
 * not read ends the replay: it was being written when the server died. */
#ifndef NCDEV_JOURNAL_H
#define NCDEV_JOURNAL_H

#include "store.h"

void journal_bucket(struct buf *out, const char *name, int64_t created);
void journal_rmbucket(struct buf *out, const char *name);
void journal_put(struct buf *out, const char *bucket, const struct object *o);
void journal_rm(struct buf *out, const char *bucket, const char *key);
void journal_upload(struct buf *out, const struct upload *u);
void journal_part(struct buf *out, const char *id, const struct part *p);
void journal_end(struct buf *out, const char *id);

/* A line taken apart; strings are fresh and owned. */
struct journal_line {
    char *word[9]; /* the fields, decoded where they are names; NULL past the end */
    size_t n;
};

bool journal_parse(struct journal_line *l, const char *text, size_t n);
void journal_line_free(struct journal_line *l);
bool journal_extents(struct extents *out, struct blob_folder *f, const char *text);
void journal_headers(struct pairs *out, const char *text);

#endif
