/* Small conversions that S3 and the hub need: percent-encoding, XML text, hexadecimal, dates,
 * numbers, and lists of name/value pairs (query strings, headers, metadata). Pure; any thread. */
#ifndef NCDEV_TEXT_H
#define NCDEV_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Percent-encodes all but A-Za-z0-9-._~ (and '/' where keep_slash), upper-case, as AWS does. */
void str_encode(struct buf *out, const char *s, bool keep_slash);

/* Decodes n bytes of s; a '%' that starts no byte stays. `plus` turns '+' into a blank, as in
 * queries. Returns a fresh string, or NULL when it would hold a NUL. */
char *str_decode(const char *s, size_t n, bool plus);

/* XML character data; control characters become references, as S3 writes them. */
void str_xml(struct buf *out, const char *s);

/* A JSON string with its quotes; bytes that are not UTF-8 text become U+FFFD. */
void str_json(struct buf *out, const char *s);

void str_hex(char *out, const unsigned char *in, size_t n);         /* 2n digits and a NUL */
bool str_unhex(unsigned char *out, const char *hex, size_t n);      /* exactly 2n digits wanted */
size_t str_unbase64(unsigned char *out, size_t max, const char *s); /* 0 when malformed */

bool str_take_u64(const char **at, uint64_t *out); /* the digits at *at, which moves past them */
bool str_i64(const char *s, int64_t *out);         /* likewise the whole string, with a sign */
bool str_u64(const char *s, uint64_t *out);        /* decimal digits only, whole string */
bool str_size(const char *s,
              uint64_t *out); /* digits with an optional k, m or g (powers of 1024) */

void str_http_date(char out[32], int64_t s); /* Sun, 06 Nov 1994 08:49:37 GMT */
void str_iso_date(char out[32], int64_t s);  /* 1994-11-06T08:49:37.000Z */
bool str_parse_http_date(const char *s, int64_t *out);
bool str_parse_amz_date(const char *s, int64_t *out); /* 19941106T084937Z */

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
char *
str_copy(const char *s);   /* strdup that accepts NULL and never fails but by ending the process */
void *str_alloc(size_t n); /* zeroed memory, likewise */

struct pair {
    char *name;
    char *value; /* never NULL; a query's valueless name has "" */
};

struct pairs {
    struct pair *v; /* owned, with the strings */
    size_t n;
};

void pairs_add(struct pairs *p, const char *name, const char *value); /* copies both */
void pairs_set(struct pairs *p, const char *name, const char *value); /* replaces the first */
const char *pairs_get(const struct pairs *p,
                      const char *name);                   /* first of that name, any case; NULL */
void pairs_parse(struct pairs *p, const char *query);      /* a=1&b=%20&c */
void pairs_encode(const struct pairs *p, struct buf *out); /* the inverse, in order */
void pairs_copy(struct pairs *to, const struct pairs *from);
void pairs_free(struct pairs *p);

#endif
