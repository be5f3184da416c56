#include "base/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/xxh3_avx2.h"

/* The header compiled into this file is six times as fast as the shared library's entry points. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Fetching an algorithm takes locks and string look-ups in OpenSSL 3, so it happens once. */
static EVP_MD *md_sha256, *md_sha1, *md_md5;
static pthread_once_t fetched = PTHREAD_ONCE_INIT;

static void fetch(void)
{
    md_sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    md_sha1 = EVP_MD_fetch(NULL, "SHA1", NULL);
    md_md5 = EVP_MD_fetch(NULL, "MD5", NULL);
}

static int start(void **ctx, EVP_MD *const *md)
{
    if (*ctx) /* the context knows its algorithm: this only resets the state */
        return EVP_DigestInit_ex(*ctx, NULL, NULL) == 1 ? 0 : -1;
    pthread_once(&fetched, fetch);
    if (!*md)
        return -1;
    *ctx = EVP_MD_CTX_new();
    if (*ctx && EVP_DigestInit_ex(*ctx, *md, NULL) == 1)
        return 0;
    EVP_MD_CTX_free(*ctx);
    *ctx = NULL;
    return -1;
}

static int copy(void **to, const void *from)
{
    if (!*to)
        *to = EVP_MD_CTX_new();
    return *to && EVP_MD_CTX_copy_ex(*to, from) == 1 ? 0 : -1;
}

int sha256_init(struct sha256 *h)
{
    return start(&h->ctx, &md_sha256);
}

void sha256_update(struct sha256 *h, const void *data, size_t len)
{
    EVP_DigestUpdate(h->ctx, data, len);
}

void sha256_final(struct sha256 *h, unsigned char out[32])
{
    EVP_DigestFinal_ex(h->ctx, out, NULL);
}

void sha256_final_hex(struct sha256 *h, char out[SHA256_HEX_SIZE])
{
    unsigned char raw[32];
    sha256_final(h, raw);
    text_hex(raw, sizeof raw, out);
}

void sha256_free(struct sha256 *h)
{
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
}

int sha256_copy(struct sha256 *to, const struct sha256 *from)
{
    return copy(&to->ctx, from->ctx);
}

int sha256_hex(const void *data, size_t len, char out[SHA256_HEX_SIZE])
{
    struct sha256 h = {0};
    if (sha256_init(&h))
        return -1;
    sha256_update(&h, data, len);
    sha256_final_hex(&h, out);
    sha256_free(&h);
    return 0;
}

/* By hand rather than through EVP_MAC: two more blocks to hash, which is less than what copying
 * OpenSSL's keyed contexts costs. */
int hmac_key(struct hmac *h, const void *key, size_t len)
{
    unsigned char block[64] = {0};
    if (len > sizeof block) {
        if (sha256_init(&h->hash))
            return -1;
        sha256_update(&h->hash, key, len);
        sha256_final(&h->hash, block);
    } else if (len) {
        memcpy(block, key, len);
    }
    for (size_t i = 0; i < sizeof block; i++) {
        h->inner[i] = block[i] ^ 0x36;
        h->outer[i] = block[i] ^ 0x5c;
    }
    OPENSSL_cleanse(block, sizeof block);
    return 0;
}

int hmac_sign(struct hmac *h, const void *data, size_t len, unsigned char out[32])
{
    if (sha256_init(&h->hash))
        return -1;
    sha256_update(&h->hash, h->inner, sizeof h->inner);
    sha256_update(&h->hash, data, len);
    unsigned char digest[32];
    sha256_final(&h->hash, digest);
    if (sha256_init(&h->hash))
        return -1;
    sha256_update(&h->hash, h->outer, sizeof h->outer);
    sha256_update(&h->hash, digest, sizeof digest);
    sha256_final(&h->hash, out);
    return 0;
}

void hmac_free(struct hmac *h)
{
    sha256_free(&h->hash);
    OPENSSL_cleanse(h, sizeof *h);
}

int gitblob_init(struct gitblob *h, uint64_t size)
{
    if (start(&h->ctx, &md_sha1))
        return -1;
    char head[32];
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size);
    gitblob_update(h, head, (size_t)n + 1);
    return 0;
}

void gitblob_update(struct gitblob *h, const void *data, size_t len)
{
    EVP_DigestUpdate(h->ctx, data, len);
}

void gitblob_final_hex(struct gitblob *h, char out[SHA1_HEX_SIZE])
{
    unsigned char raw[20];
    EVP_DigestFinal_ex(h->ctx, raw, NULL);
    text_hex(raw, sizeof raw, out);
}

void gitblob_free(struct gitblob *h)
{
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
}

int gitblob_copy(struct gitblob *to, const struct gitblob *from)
{
    return copy(&to->ctx, from->ctx);
}

static void canonical_hex(XXH128_hash_t hash, char out[XXH3_HEX_SIZE])
{
    XXH128_canonical_t raw;
    XXH128_canonicalFromHash(&raw, hash);
    text_hex(raw.digest, sizeof raw.digest, out);
}

int xxh3_init(struct xxh3 *h)
{
    if (!h->state)
        h->state = XXH3_createState();
    return h->state && XXH3_128bits_reset(h->state) == XXH_OK ? 0 : -1;
}

void xxh3_update(struct xxh3 *h, const void *data, size_t len)
{
    if (len && xxh3_avx2_fits())
        xxh3_avx2_update(h->state, data, len);
    else if (len)
        XXH3_128bits_update(h->state, data, len);
}

void xxh3_final_hex(struct xxh3 *h, char out[XXH3_HEX_SIZE])
{
    canonical_hex(XXH3_128bits_digest(h->state), out);
}

void xxh3_free(struct xxh3 *h)
{
    XXH3_freeState(h->state);
    h->state = NULL;
}

void xxh3_hex(const void *data, size_t len, char out[XXH3_HEX_SIZE])
{
    canonical_hex(XXH3_128bits(data, len), out);
}

int md5_init(struct md5 *h)
{
    return start(&h->ctx, &md_md5);
}

void md5_update(struct md5 *h, const void *data, size_t len)
{
    EVP_DigestUpdate(h->ctx, data, len);
}

void md5_final_base64(struct md5 *h, char out[MD5_BASE64_SIZE])
{
    unsigned char raw[16];
    EVP_DigestFinal_ex(h->ctx, raw, NULL);
    EVP_EncodeBlock((unsigned char *)out, raw, sizeof raw);
}

void md5_free(struct md5 *h)
{
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
}

int md5_base64(const void *data, size_t len, char out[MD5_BASE64_SIZE])
{
    struct md5 h = {0};
    if (md5_init(&h))
        return -1;
    md5_update(&h, data, len);
    md5_final_base64(&h, out);
    md5_free(&h);
    return 0;
}
