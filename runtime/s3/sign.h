/* AWS Signature Version 4, in the form S3 wants it: the path is signed as it is sent, encoded once
 * and never normalised.
 *
 * https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 *
 * Sign when sending, at every attempt: a signature is good for 15 minutes around its time. A signer
 * keeps the key of the day and its buffers between calls; one signer belongs to one thread at a
 * time (give each thread its own, or guard it).
 */
#ifndef NC_S3_SIGN_H
#define NC_S3_SIGN_H

#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/text.h"

#define SIGN_UNSIGNED "UNSIGNED-PAYLOAD" /* the payload hash of a body sent over https */
#define SIGN_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGN_AUTHORIZATION_MAX 2048

/* Borrowed strings. */
struct sign_keys {
    const char *access;
    const char *secret;
    const char *token;   /* session token, or NULL */
    const char *region;  /* "us-east-1" */
    const char *service; /* "s3" */
};

struct sign_header {
    const char *name; /* any case */
    const char *value;
};

/* Borrowed strings. What is here must be what goes over the wire. */
struct sign_request {
    const char *method;
    const char *host;  /* the Host header: with the port unless it is the scheme's own */
    const char *path;  /* percent-encoded (url_encode with keep_slash) */
    const char *query; /* percent-encoded "a=b&c", any order; NULL or "" for none */
    const struct sign_header *headers; /* further headers to sign; see sign_v4 */
    size_t header_count;
    const char *payload_hash; /* hex SHA-256 of the body, or SIGN_UNSIGNED */
    int64_t time;             /* seconds since 1970, corrected for a known clock offset */
};

struct signer {
    struct hmac day;          /* keyed for what `day_of` stands for */
    unsigned char day_of[32]; /* digest of secret, day, region and service; zeros at first */
    struct sha256 hash;
    struct buf text; /* canonical request, then string to sign */
};

void signer_init(struct signer *s);
void signer_free(struct signer *s); /* accepts a zeroed struct; wipes the key */

/* Signs a request for the Authorization header. These headers are signed beside the listed ones and
 * must be sent with it:
 *     Host                  request->host
 *     X-Amz-Date            date, filled here
 *     X-Amz-Security-Token  keys->token, if there is one
 *     X-Amz-Content-Sha256  request->payload_hash, if the service is s3
 * List every other x-amz-* header that is sent; Range, If-Match and Content-Type may be listed.
 * Returns -1 with code "BadRequest" for a control character in a value, or too many headers or
 * parameters (32 and 64). Takes about a microsecond. */
int sign_v4(struct signer *s, const struct sign_keys *keys, const struct sign_request *request,
            char date[TEXT_AMZ_DATE_SIZE], char authorization[SIGN_AUTHORIZATION_MAX],
            struct nc_err *err);

/* Signs a request by its query, to be used by whoever holds the URL in the next expires_s seconds
 * (a week at most). Fills *query with the whole query: request->query, the X-Amz-* parameters and
 * the signature. The payload hash is SIGN_UNSIGNED where S3 is asked. */
int sign_query(struct signer *s, const struct sign_keys *keys, const struct sign_request *request,
               unsigned expires_s, struct buf *query, struct nc_err *err);

#endif
