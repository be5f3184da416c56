#include "digest.h"

#include "text.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#define XXH_INLINE_ALL /* six times as fast as through the shared library */
#include <xxhash.h>

/* A reflected CRC, eight bytes at a time ("slicing by 8"), whatever its width up to 64. */
struct crc {
    const struct crc_table *table;
    uint64_t value;
};

struct crc_table {
    enum digest_kind kind;
    uint64_t polynomial; /* reflected */
    size_t bytes;
    uint64_t t[8][256];
};

static struct crc_table tables[] = {
    {.kind = DIGEST_CRC32, .polynomial = 0xedb88320u, .bytes = 4},
    {.kind = DIGEST_CRC32C, .polynomial = 0x82f63b78u, .bytes = 4},
    {.kind = DIGEST_CRC64NVME, .polynomial = 0x9a6c9329ac4bc9b5u, .bytes = 8},
};

static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++) {
        struct crc_table *c = &tables[k];
        for (unsigned i = 0; i < 256; i++) {
            uint64_t v = i;
            for (int bit = 0; bit < 8; bit++)
                v = v & 1 ? v >> 1 ^ c->polynomial : v >> 1;
            c->t[0][i] = v;
        }
        for (unsigned s = 1; s < 8; s++) {
            for (unsigned i = 0; i < 256; i++)
                c->t[s][i] = c->t[s - 1][i] >> 8 ^ c->t[0][c->t[s - 1][i] & 255];
        }
    }
}

static void crc_add(struct crc *c, const unsigned char *p, size_t n)
{
    const struct crc_table *k = c->table;
    uint64_t v = c->value, word;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8); /* little endian, as all our machines are */
        v ^= word;
        uint64_t next = 0;
        for (unsigned s = 0; s < 8; s++)
            next ^= k->t[7 - s][v >> (8 * s) & 255];
        v = next;
    }
    for (; n; p++, n--)
        v = v >> 8 ^ k->t[0][(v ^ *p) & 255];
    c->value = v;
}

/* Fetched once: looking an algorithm up takes locks, for each body, in OpenSSL 3. */
static EVP_MD *algorithms[DIGEST_SHA256 + 1];
static pthread_once_t algorithms_once = PTHREAD_ONCE_INIT;

static void fetch_algorithms(void)
{
    algorithms[DIGEST_MD5] = EVP_MD_fetch(NULL, "MD5", NULL);
    algorithms[DIGEST_SHA1] = EVP_MD_fetch(NULL, "SHA1", NULL);
    algorithms[DIGEST_SHA256] = EVP_MD_fetch(NULL, "SHA256", NULL);
}

static bool is_evp(enum digest_kind kind)
{
    return kind == DIGEST_MD5 || kind == DIGEST_SHA1 || kind == DIGEST_SHA256;
}

void digest_init(struct digest *d, enum digest_kind kind)
{
    *d = (struct digest){.kind = kind};
    if (is_evp(kind)) {
        pthread_once(&algorithms_once, fetch_algorithms);
        d->state = EVP_MD_CTX_new();
        if (!d->state || EVP_DigestInit_ex(d->state, algorithms[kind], NULL) != 1)
            abort();
    } else if (kind == DIGEST_XXH3) {
        d->state = XXH3_createState();
        if (!d->state)
            abort();
        XXH3_128bits_reset(d->state);
    } else if (kind != DIGEST_NONE) {
        pthread_once(&tables_once, make_tables);
        struct crc *c = d->state = str_alloc(sizeof *c);
        c->table = &tables[kind - DIGEST_CRC32];
        c->value = c->table->bytes == 8 ? UINT64_MAX : UINT32_MAX;
    }
}

void digest_add(struct digest *d, const void *data, size_t n)
{
    if (d->kind == DIGEST_NONE || n == 0)
        return;
    if (is_evp(d->kind))
        EVP_DigestUpdate(d->state, data, n);
    else if (d->kind == DIGEST_XXH3)
        XXH3_128bits_update(d->state, data, n);
    else
        crc_add(d->state, data, n);
}

size_t digest_end(struct digest *d, unsigned char out[DIGEST_MAX])
{
    unsigned n = 0;
    if (is_evp(d->kind)) {
        EVP_DigestFinal_ex(d->state, out, &n);
    } else if (d->kind == DIGEST_XXH3) {
        XXH128_canonical_t c;
        XXH128_canonicalFromHash(&c, XXH3_128bits_digest(d->state));
        n = sizeof c.digest;
        memcpy(out, c.digest, n);
    } else if (d->kind != DIGEST_NONE) {
        const struct crc *c = d->state;
        for (n = 0; n < c->table->bytes; n++) /* big endian on the wire */
            out[n] = (unsigned char)(~c->value >> (8 * (c->table->bytes - 1 - n)));
    }
    digest_free(d);
    return n;
}

void digest_hex(struct digest *d, char *hex)
{
    unsigned char md[DIGEST_MAX] = {0};
    size_t n = digest_end(d, md);
    str_hex(hex, md, n);
}

void digest_etag(struct digest *d, char out[DIGEST_ETAG])
{
    char hex[2 * DIGEST_MAX + 1];
    const char *kind = d->kind == DIGEST_XXH3 ? "-xxh3" : "";
    digest_hex(d, hex);
    snprintf(out, DIGEST_ETAG, "%.32s%s", hex, kind);
}

void digest_free(struct digest *d)
{
    if (is_evp(d->kind))
        EVP_MD_CTX_free(d->state);
    else if (d->kind == DIGEST_XXH3)
        XXH3_freeState(d->state);
    else
        free(d->state);
    *d = (struct digest){0};
}

enum digest_kind digest_of_checksum(const char *name)
{
    static const struct {
        const char *word;
        enum digest_kind kind;
    } words[] = {{"crc32", DIGEST_CRC32},
                 {"crc32c", DIGEST_CRC32C},
                 {"crc64nvme", DIGEST_CRC64NVME},
                 {"sha1", DIGEST_SHA1},
                 {"sha256", DIGEST_SHA256}};
    const char *prefix = "x-amz-checksum-";
    if (strncasecmp(name, prefix, strlen(prefix)) == 0)
        name += strlen(prefix);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(name, words[i].word) == 0)
            return words[i].kind;
    }
    return DIGEST_NONE;
}
