/* Signed requests to one S3 bucket (or to the service itself) at one endpoint.
 *
 * A client holds what changes while it is in use: the keys (renewed by the caller), the region (a
 * server may correct it, once) and the clock offset (learnt from a refusal). Every attempt is
 * signed anew at the moment of sending. Over https the payload is not hashed; over http it is.
 *
 * Errors: err.code is the server's own code ("NoSuchKey", "SlowDown", ...); where an answer has no
 * body, AccessDenied, NotFound, PreconditionFailed or Http<status>; or one of net/http.h.
 */
#ifndef NC_S3_S3_H
#define NC_S3_S3_H

#include "net/http.h"
#include "net/url.h"
#include "s3/sign.h"

#include <pthread.h>

struct s3_config {
    const char *endpoint; /* NULL: AWS itself, in the region */
    const char *region;
    const char *bucket;                  /* NULL: the service */
    bool virtual_host;                   /* bucket in the host name; else in the path */
    const char *access, *secret, *token; /* token may be NULL */
    const char *ca_file;                 /* NULL: as other requests */
    bool renewable; /* keys come from where they can be read again: wait for s3_client_set_keys when
                       they have expired */
    unsigned attempts_max; /* 0: the pool's default */
    bool content_md5;      /* send the MD5 of every body along, for the server to check */
};

struct s3_client {
    struct url endpoint;
    char *bucket; /* "" for the service */
    char *ca_file;
    bool virtual_host, renewable, content_md5;
    unsigned attempts_max;
    struct retry_gate gate;
    pthread_mutex_t lock; /* guards the rest */
    char *access, *secret, *token, *region;
    struct signer signer;
    int64_t clock_offset_s;
    bool region_corrected;
    bool keys_expired; /* a server said so; cleared by s3_client_set_keys */
    unsigned keys_generation;
    bool keys_worked;    /* some request was granted */
    uint64_t refused_ms; /* since when none was with these keys, monotonic; 0: they are good */
};

/* Strings are copied. */
int s3_client_init(struct s3_client *c, const struct s3_config *config, struct nc_err *err);
void s3_client_free(struct s3_client *c); /* wipes the keys */
/* Any thread. The next attempt of every request is signed with these; the same again are no news.
 */
int s3_client_set_keys(struct s3_client *c, const char *access, const char *secret,
                       const char *token, struct nc_err *err);
/* Any thread: has a server said that the keys have expired since they were last set? */
bool s3_client_keys_expired(struct s3_client *c);
/* Any thread: whether both are the same service, entered with the same keys. */
bool s3_client_same_service(struct s3_client *a, struct s3_client *b);

struct s3_request {
    struct http_request http; /* first: hooks get back to us through it */
    struct s3_client *client;
    char *key;          /* raw bytes, NUL-terminated; "" for the bucket itself; owned */
    struct buf query;   /* percent-encoded "a=b&c"; url_query_add */
    struct buf headers; /* further headers, "Name: value\n"; all are signed */
    /* Reads a 2xx answer; NULL: it is taken as it is. Fills http.err when not HTTP_OK. */
    enum http_verdict (*read)(struct s3_request *r);
    void (*done)(struct s3_request *r); /* on a worker */
    void *owner;

    char what[160]; /* "GET s3://bucket/key", for messages */
    /* SHA-256 of the body in hex, set by the owner where it knows it; "": computed when needed. */
    char payload_hash[SHA256_HEX_SIZE + 8];
    char md5[MD5_BASE64_SIZE]; /* of the body, where the client wants it */
    char host[URL_HOST_SIZE];  /* of this attempt */
    char *redirect;            /* another address to use, from a 302 or 307; owned */
    bool bare;                 /* ... which gets no signature */
    bool skew_corrected;
    unsigned keys_generation; /* of this attempt */
};

/* method is a literal. -1 only without memory. */
int s3_request_init(struct s3_request *r, struct s3_client *c, const char *method, const char *key,
                    struct nc_err *err);
void s3_request_free(struct s3_request *r);
/* A header that is sent and signed. */
void s3_request_header(struct s3_request *r, const char *name, const char *value);
void s3_submit(struct http_pool *pool, struct s3_request *r);

/* The ETag of an answer as the server wrote it, quotes and all, or NULL. */
const char *s3_etag(const struct s3_request *r, char *out, size_t size);

#endif
