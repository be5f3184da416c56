/* One HTTP request on its way: parsed, its body taken in, its answer put together, sent and
 * counted. Each connection has a thread, so a handler may block (the faults do); a request
 * belongs to that thread. The order of things is in front.c. */
#ifndef NCDEV_REQUEST_H
#define NCDEV_REQUEST_H

#include "chunked.h"
#include "digest.h"
#include "server.h"

#include <microhttpd.h>

/* What becomes of the request's body. */
enum body_kind {
    BODY_DROP, /* read and forgotten */
    BODY_TEXT, /* kept as text, up to BODY_TEXT_MAX */
    BODY_BLOB, /* streamed into a blob */
};

#define BODY_TEXT_MAX (4u << 20)

struct body {
    enum body_kind kind;
    struct buf text;
    struct blob *blob;
    uint64_t size;     /* decoded bytes so far */
    uint64_t expected; /* decoded bytes announced; UINT64_MAX: not said */
    uint64_t raw;      /* bytes taken from the wire */
    bool is_chunked;   /* aws-chunked */
    struct chunked chunked;
    struct digest etag, sha256, md5, checksum;
    const char *payload_hash;    /* wanted SHA-256, hex; borrowed from the signature's result */
    char checksum_name[32];      /* x-amz-checksum-...; "" none */
    char etag_text[DIGEST_ETAG]; /* once it has ended */
    const char *wrong;           /* S3 code of the first thing wrong with it */
};

/* Bytes to answer with: extents of blobs, or a range of a file. */
struct source {
    struct extents extents;
    int fd; /* -1: extents; owned */
    uint64_t offset, size;
};

struct reply {
    int status; /* 0: none yet */
    struct pairs headers;
    struct buf text;
    struct source *source; /* owned; NULL: text */
};

struct request;

struct route {
    const char *op;
    enum body_kind body;
    void (*run)(struct request *r); /* the body is in; must reply */
};

struct request {
    struct server *srv;
    struct MHD_Connection *conn;
    uint64_t id;
    enum side side;
    bool started;
    bool refuse_now;            /* answer before the body is read */
    const char *method;         /* borrowed from MHD */
    char *uri;                  /* as it came */
    char *raw_path, *raw_query; /* inside uri, split */
    struct pairs query, headers;
    char *path;         /* decoded, without the first slash: what is logged and matched */
    char *bucket, *key; /* S3: NULL where not named */
    bool virtual_host;
    const struct route *route;
    struct sigv4_result sig;
    struct fault fault;
    bool faulted;
    struct body body;
    struct reply reply;
    uint64_t sent; /* body bytes handed to the socket by a reader */
    uint64_t acked_before;
    uint64_t start_ms;
    struct throttle slow; /* of a fault */
};

/* --- asking ------------------------------------------------------------------------------- */

const char *request_header(const struct request *r, const char *name); /* or NULL */
const char *request_query(const struct request *r, const char *name);  /* or NULL */
int64_t request_now(const struct request *r); /* the server's clock, a fault's offset with it */
bool request_is(const struct request *r, const char *method);
bool request_from_loopback(const struct request *r);
void request_base_url(const struct request *r, uint16_t port, struct buf *out);
bool request_is_head(const struct request *r);

/* --- answering ---------------------------------------------------------------------------- */

void reply_header(struct request *r, const char *name, const char *value);
void reply_headerf(struct request *r, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Starts a text body of that type; add to what is returned. */
struct buf *reply_text(struct request *r, int status, const char *type);
void reply_empty(struct request *r, int status);
void reply_clear(struct request *r); /* back to no answer */

/* What stands behind a file or object that is served: validators, and where the bytes are. */
struct content {
    const char *etag; /* without quotes */
    const char *type; /* NULL: none sent */
    int64_t mtime;
    uint64_t size;
    const struct extents *extents; /* NULL: fd */
    int fd;                        /* borrowed: it is duplicated */
};

/* GET or HEAD with ranges and conditions. Errors (304, 412, 416) go through `refuse`. */
void reply_content(struct request *r, const struct content *c,
                   void (*refuse)(struct request *r, int status, const char *code));

/* Errors in S3's XML; status and message go with the code. */
void reply_s3_error(struct request *r, int status, const char *code, const char *message,
                    const char *detail);

/* --- the pieces that front.c puts together -------------------------------------------------- */

void body_start(struct request *r, enum body_kind kind);
void body_take(struct request *r, const char *data, size_t n);
void body_end(struct request *r);
void body_free(struct body *b);
enum MHD_Result reply_send(struct request *r); /* hands the answer to MHD, as the faults want it */
void reply_free(struct reply *p);
void request_drop(struct request *r);        /* TCP reset, now */
void request_wait_hangup(struct request *r); /* until the client goes or the server stops */
uint64_t request_acked(const struct request *r);

/* The routes of each side; NULL: replied, or an error was. They may refuse early. */
const struct route *s3_route(struct request *r);
const struct route *hub_route(struct request *r);
const struct route *cdn_route(struct request *r);
const struct route *admin_route(struct request *r);
bool hub_claims(const struct request *r);
bool admin_claims(const struct request *r);
void admin_help(struct buf *out);

#endif
