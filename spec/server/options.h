/* ncdev's options: `name=value` words. Strings are borrowed from argv. */
#ifndef NCDEV_OPTIONS_H
#define NCDEV_OPTIONS_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_MAX_FAULTS 64

struct options {
    const char *root;   /* folder of the objects */
    bool memory;        /* objects are kept in memory instead; root holds the hub's digests alone */
    uint64_t keep;      /* bytes of deleted objects in memory that new ones take their place in */
    const char *hub;    /* folder of hub repositories, owner/name/... */
    const char *host;   /* address to listen on */
    uint64_t port;      /* of S3, hub and admin; 0: any free one */
    uint64_t cdn_port;  /* of the hub's CDN; 0: any free one */
    const char *bucket; /* made at start */
    uint64_t keys;      /* empty objects many/0000000, many/0000001, ... in it from the start */
    const char *region;
    const char *access_key;
    const char *secret_key;
    const char *session_token; /* wanted with every request where set */
    const char *hf_token;      /* the hub's valid token; where not set, any token is */
    uint64_t lfs_over;         /* hub files of more bytes than this are LFS files */
    uint64_t page;             /* entries in a page of the hub's tree */
    int64_t expires_s;         /* life of a CDN URL */
    int64_t sts_expires_s;     /* life of credentials from STS, container and metadata */
    const char *container_token;
    uint64_t rate;        /* bytes a second, each direction of S3 and of the CDN; 0: no limit */
    uint64_t idle_s;      /* connections that say nothing for so long are closed */
    int64_t clock;        /* seconds that the server's clock is ahead */
    bool fast_etag;       /* ETags by XXH3 instead of MD5 */
    const char *tls_cert; /* PEM files: serve https */
    const char *tls_key;
    const char *faults[OPTIONS_MAX_FAULTS];
    unsigned fault_count;
};

void options_default(struct options *o);
int options_parse(struct options *o, int argc, char **argv, struct nc_err *err);
void options_help(struct buf *out);

#endif
