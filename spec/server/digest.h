/* Incremental digests of a body as it streams by: MD5 (ETag, Content-MD5), SHA-256 (payload
 * hash), SHA-1, XXH3-128 (etag=fast) and the CRCs of x-amz-checksum-*. One owner each. */
#ifndef NCDEV_DIGEST_H
#define NCDEV_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

enum digest_kind {
    DIGEST_NONE,
    DIGEST_MD5,
    DIGEST_SHA1,
    DIGEST_SHA256,
    DIGEST_XXH3,
    DIGEST_CRC32,
    DIGEST_CRC32C,
    DIGEST_CRC64NVME,
};

#define DIGEST_MAX 32

struct digest {
    enum digest_kind kind;
    void *state; /* owned */
};

void digest_init(struct digest *d, enum digest_kind kind); /* ends the process without memory */
void digest_add(struct digest *d, const void *data, size_t n);
size_t digest_end(struct digest *d, unsigned char out[DIGEST_MAX]); /* its length; then as freed */
void digest_hex(struct digest *d, char *hex); /* the same as 2n digits; room for 2 * n + 1 */
/* As an ETag without its quotes: the digits, and behind an XXH3's a word, so that no client takes
 * it for the object's MD5. */
#define DIGEST_ETAG 40
void digest_etag(struct digest *d, char out[DIGEST_ETAG]);
void digest_free(struct digest *d); /* accepts a zeroed struct */

/* The kind of an "x-amz-checksum-..." header or of the word after it ("crc32c"); DIGEST_NONE. */
enum digest_kind digest_of_checksum(const char *name);

#endif
