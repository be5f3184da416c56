/* Absolute http and https URLs, as written: nothing is normalised, because what is signed must be
 * what is sent (RFC 3986 for the grammar).
 *
 * A parsed URL holds its own copies; pure functions otherwise, any thread. Error messages name the
 * host at most: user names, paths and queries may hold secrets.
 */
#ifndef NC_NET_URL_H
#define NC_NET_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define URL_MAX 16384     /* bytes of a whole URL; signed CDN addresses reach a few thousand */
#define URL_HOST_SIZE 264 /* a host, ':' and a port */

struct url {
    bool tls;                      /* https */
    char host[256];                /* as written; an IPv6 address keeps its brackets */
    uint16_t port;                 /* the scheme's own where none was written */
    char authority[URL_HOST_SIZE]; /* host, and :port unless it is the scheme's own: the Host header
                                    */
    char *path;                    /* owned; begins with '/', percent-encoded as written */
    char *query;                   /* owned; without '?'; NULL where there was none */
};

/* "http(s)://host[:port][/path][?query]". A user name, a blank, a control character, a backslash,
 * any other scheme and more than URL_MAX bytes are refused (code "BadUrl"). A #fragment is dropped:
 * it is never sent. The caller frees *out with url_free, also after a failure. */
int url_parse(const char *text, struct url *out, struct nc_err *err);

/* The address a Location header means when it came from `base`. */
int url_resolve(const struct url *base, const char *location, struct url *out, struct nc_err *err);

void url_free(struct url *u); /* accepts a zeroed struct; leaves it zeroed */

/* Appends the whole URL. */
int url_format(const struct url *u, struct buf *out);

/* Same scheme, host and port: what decides whether a credential may follow a redirect. */
bool url_same_origin(const struct url *a, const struct url *b);

/* Appends s percent-encoded as S3 signs it: A-Z a-z 0-9 - . _ ~ stay, every other byte becomes
 * upper-case %XX, '/' too unless keep_slash. */
int url_encode(struct buf *out, const char *s, size_t len, bool keep_slash);

/* Appends s with %XX turned into bytes (and '+' into a blank where plus is set). -1, with out in an
 * unspecified state, when a % is not followed by two hex digits or out failed. */
int url_decode(struct buf *out, const char *s, size_t len, bool plus);

/* Appends "name=value", encoded, with '&' before it unless the query is empty. A NULL value leaves
 * the bare name. */
int url_query_add(struct buf *query, const char *name, const char *value);

#endif
