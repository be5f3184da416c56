/* Digests: SHA-256, HMAC-SHA256, git's blob SHA-1, XXH3-128, and MD5 where a protocol wants it.
 *
 * The incremental ones are structs that own a context and may be started again any number of times
 * without allocating: zero the struct, then init / update / final as often as needed, free at the
 * end. One owner at a time; the functions themselves are safe on any thread. An init that runs out
 * of memory returns -1; after a successful init nothing can fail.
 */
#ifndef NC_BASE_DIGEST_H
#define NC_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX_SIZE 65 /* 64 digits and the NUL */
#define SHA1_HEX_SIZE 41
#define XXH3_HEX_SIZE 33
#define MD5_BASE64_SIZE 25

struct sha256 {
    void *ctx;
};

int sha256_init(struct sha256 *h); /* starts or starts over */
void sha256_update(struct sha256 *h, const void *data, size_t len);
void sha256_final(struct sha256 *h, unsigned char out[32]);
void sha256_final_hex(struct sha256 *h, char out[SHA256_HEX_SIZE]);
void sha256_free(struct sha256 *h); /* accepts a zeroed struct */
/* to, zeroed or used before, goes on from where from stands. */
int sha256_copy(struct sha256 *to, const struct sha256 *from);

/* One shot. -1 only when memory ran out. */
int sha256_hex(const void *data, size_t len, char out[SHA256_HEX_SIZE]);

/* A keyed HMAC: set the key once, then authenticate many messages with it. */
struct hmac {
    struct sha256 hash;
    unsigned char inner[64]; /* the key xor 0x36, and xor 0x5c (RFC 2104) */
    unsigned char outer[64];
};

int hmac_key(struct hmac *h, const void *key, size_t len);
int hmac_sign(struct hmac *h, const void *data, size_t len, unsigned char out[32]);
void hmac_free(struct hmac *h); /* wipes the key */

/* The object name git (and the hub, for small files) gives to a file: SHA-1 over "blob <len>\0" and
 * the content. The length has to be known when it starts. */
struct gitblob {
    void *ctx;
};

int gitblob_init(struct gitblob *h, uint64_t size);
void gitblob_update(struct gitblob *h, const void *data, size_t len);
void gitblob_final_hex(struct gitblob *h, char out[SHA1_HEX_SIZE]);
void gitblob_free(struct gitblob *h);
int gitblob_copy(struct gitblob *to, const struct gitblob *from);

/* XXH3-128 without a seed, in the canonical form that `xxhsum -H2` prints. Not cryptographic: it
 * finds bad parts, it does not prove good ones. */
struct xxh3 {
    void *state;
};

int xxh3_init(struct xxh3 *h);
void xxh3_update(struct xxh3 *h, const void *data, size_t len);
void xxh3_final_hex(struct xxh3 *h, char out[XXH3_HEX_SIZE]);
void xxh3_free(struct xxh3 *h);
void xxh3_hex(const void *data, size_t len, char out[XXH3_HEX_SIZE]);

/* MD5, as the value of a Content-MD5 header (RFC 1864). */
struct md5 {
    void *ctx;
};

int md5_init(struct md5 *h);
void md5_update(struct md5 *h, const void *data, size_t len);
void md5_final_base64(struct md5 *h, char out[MD5_BASE64_SIZE]);
void md5_free(struct md5 *h);
int md5_base64(const void *data, size_t len, char out[MD5_BASE64_SIZE]);

#endif
