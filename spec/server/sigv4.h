/* Verifies AWS Signature Version 4, written from the server's side and apart from the client's
 * signer (runtime/s3/sign.c), so that each checks the other. Strict where S3 is: the path is
 * decoded and encoded once, never normalised; host and every x-amz-* header must be signed.
 * Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API Reference.
 * Pure; any thread. */
#ifndef NCDEV_SIGV4_H
#define NCDEV_SIGV4_H

#include "text.h"

#define SIGV4_MAX_SKEW_S 900

struct sigv4_keys {
    const char *access_key;
    const char *secret_key;
    const char *session_token; /* "" where none is wanted */
    const char *region;
};

struct sigv4_request {
    const char *method;
    const char *path;  /* as it came, percent-encoded */
    const char *query; /* as it came, without '?'; "" where none */
    const struct pairs *headers;
};

/* What a verified request says about its body. */
struct sigv4_result {
    char payload[65];      /* x-amz-content-sha256, or UNSIGNED-PAYLOAD */
    unsigned char key[32]; /* the signing key, and what chunk signatures go on from */
    char date[17];         /* 20130524T000000Z */
    char scope[128];       /* 20130524/us-east-1/s3/aws4_request */
    char signature[65];    /* the seed of the first chunk */
};

struct sigv4_refusal {
    int status;
    const char *code;
    char message[512];
    struct buf detail; /* more XML elements; owned */
};

/* True where the request carries a signature of any kind (of version 2 too). */
bool sigv4_present(const struct sigv4_request *r);

/* 0, or -1 with *no filled (buf_free its detail). now: the server's clock in seconds. */
int sigv4_verify(const struct sigv4_request *r, const struct sigv4_keys *keys, int64_t now,
                 struct sigv4_result *out, struct sigv4_refusal *no);

/* The signature of a piece of an aws-chunked body. kind: "PAYLOAD" or "TRAILER"; previous: the
 * signature before it; data_sha256: hex. For PAYLOAD the hash of the empty string goes before. */
void sigv4_chunk(const struct sigv4_result *seed, const char *kind, const char *previous,
                 const char *data_sha256, char out[65]);

void sigv4_sha256_hex(const void *data, size_t n, char out[65]);
bool sigv4_same(const char *a, const char *b); /* in constant time */

#endif
