/* Decodes aws-chunked bodies as they stream by: chunks of "SIZE;chunk-signature=..", and trailers
 * with a checksum. Three kinds, by x-amz-content-sha256:
 *   STREAMING-AWS4-HMAC-SHA256-PAYLOAD            every chunk's signature is verified
 *   STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER    and the trailer's
 *   STREAMING-UNSIGNED-PAYLOAD-TRAILER            no signatures
 * Source: "Signature calculations for the Authorization header: transferring payload in multiple
 * chunks", Amazon S3 API Reference. One owner. */
#ifndef NCDEV_CHUNKED_H
#define NCDEV_CHUNKED_H

#include "digest.h"
#include "sigv4.h"

struct chunked {
    struct sigv4_result seed;
    bool is_signed;
    bool has_trailer;
    int state;
    char line[1024]; /* the line being gathered */
    size_t line_len;
    uint64_t left; /* bytes of this chunk to come */
    char previous[65];
    char wanted[65];      /* this chunk's signature as sent */
    struct digest digest; /* of this chunk's data */
    struct buf trailer;   /* the trailer lines as they are signed: "name:value\n" */
    struct pairs trailers;
};

/* False where the kind is not known. */
bool chunked_init(struct chunked *c, const struct sigv4_result *seed);
/* Calls sink with decoded bytes. 0, or the S3 code of what is wrong with the body. */
const char *chunked_add(struct chunked *c, const char *data, size_t n,
                        void (*sink)(void *cls, const char *data, size_t n), void *cls);
bool chunked_complete(const struct chunked *c); /* the last chunk and the trailers have been seen */
void chunked_free(struct chunked *c);           /* accepts a zeroed struct */

#endif
