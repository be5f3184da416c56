/* HTTP/1.1 requests on a pool of worker threads.
 *
 * Each worker owns one libcurl multi handle and its connections. A request is a struct that its
 * owner embeds in something larger, fills and submits; from then until its `done` hook it belongs
 * to the pool, and the hooks run on the worker's thread. Hooks may submit other requests, or the
 * same one again. Nothing here knows S3 or the hub: `prepare` writes what is to be sent before
 * each attempt (signing needs the time of sending) and `judge` reads the answer.
 *
 * What the pool itself guarantees: TLS 1.2 or newer, verified; redirects never followed; no
 * content decoding; a body of the wrong length, a 200 to a ranged request or a Content-Range that
 * does not fit is a failure, never a result; a request that moves less than 1 KiB in its stall
 * time is cut; retries with backoff (net/retry.h), on a fresh connection after a network failure;
 * few of them where answers come whole and are wrong, since the next will most likely be, too.
 *
 * Errors: err.code is one of DnsFailed, ConnectFailed, TlsFailed, Timeout, NetworkError,
 * ShortBody, LongBody, BadRange, Cancelled, or what judge put there.
 */
#ifndef NC_NET_HTTP_H
#define NC_NET_HTTP_H

#include "base/buf.h"
#include "base/err.h"
#include "net/pace.h"
#include "net/retry.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_pool;
struct http_request;
struct http_transfer; /* the pool's own part of a request in flight */

enum http_verdict {
    HTTP_OK,     /* the answer is what was asked for */
    HTTP_AGAIN,  /* send at once, not counted as a failure (a redirect followed by hand) */
    HTTP_LATER,  /* send in a second, not counted as a failure: somebody is to mend it */
    HTTP_RETRY,  /* err is filled; try again after a backoff while attempts last */
    HTTP_FAILED, /* err is filled and final */
};

struct http_hooks {
    /* Is there something to wait for before the next attempt? Then asked again in a second, for as
     * long as it says so. NULL: never. */
    bool (*hold)(struct http_request *r);
    /* Before each attempt: set url and headers. -1 with r->err filled ends the request. */
    int (*prepare)(struct http_request *r);
    /* After an answer came whole, whatever its status. NULL: any status is HTTP_OK. */
    enum http_verdict (*judge)(struct http_request *r);
    /* Once, at the very end; r->failed says how. The request may be freed or used again here. */
    void (*done)(struct http_request *r);
};

struct http_request {
    /* Set by the owner before http_submit. */
    const struct http_hooks *hooks;
    const char *method;      /* a literal */
    const char *what;        /* for messages: "GET s3://bucket/key"; borrowed until done */
    const char *ca_file;     /* PEM bundle, borrowed; NULL: as net/trust.h finds one */
    struct retry_gate *gate; /* may be NULL */
    const void *body;        /* borrowed until done; sent with a Content-Length */
    size_t body_len;
    bool has_body; /* send a body even if it is empty */
    /* Instead of `body`: fills len bytes of it, from offset on. What was asked for once may be
     * asked for again: an attempt, or a connection that turns out dead, starts over. */
    int (*give)(struct http_request *r, size_t offset, char *out, size_t len);
    void *dest; /* where a 2xx body of exactly dest_len bytes goes; NULL: into text */
    size_t dest_len;
    /* Instead of `dest`: the same body piece by piece, in order. `begun` may be NULL; it comes
     * before the first piece of each attempt, and for an empty body, too: start over. Each of these
     * three returns 0, or -1 with r->err filled, which ends the request for good. */
    int (*begun)(struct http_request *r);
    int (*take)(struct http_request *r, const char *data, size_t len);
    bool ranged;          /* that body is bytes range_start.. of the file: only a 206 that says */
    uint64_t range_start; /* so will do */
    size_t text_max;      /* most that is kept of any other body; 0: 64 KiB */
    bool text_whole;      /* a body over text_max is a failure, instead of being cut */
    bool once; /* no second sending that attempts does not count: libcurl itself repeats a request
                  when a connection that was used before turns out dead, so take a new one */
    bool cut_late; /* a GET: sent again over another connection, twice at most, where its first byte
                      is much later than those of such requests at its gate (net/latency.h) */
    unsigned attempts_max; /* 0: 5 */
    uint32_t give_up_ms; /* no new attempt later than this where nobody ever answered; 0: 12,000 */
    uint32_t stall_ms;   /* 0: 30,000 */
    uint32_t total_ms;   /* bound on one attempt; 0: none */
    struct pace *pace;   /* body bytes wait their turn there, either way; may be NULL */
    _Atomic uint64_t *moved; /* added to as body bytes come and go; may be NULL */

    /* Written by prepare. */
    struct buf url;     /* absolute, as it goes over the wire */
    struct buf headers; /* "Name: value\n" lines */

    /* The answer. Valid in judge and done. */
    int status;      /* 0: none came */
    struct buf head; /* the answer's "name: value\n" lines, names in lower case */
    struct buf text; /* body, where neither dest nor take had any of it */
    size_t received; /* bytes of body in dest or text, or taken */
    bool failed;     /* err is filled */
    struct nc_err err;
    unsigned attempts;  /* attempts made */
    unsigned refusals;  /* of these, answered with 503 or 429 */
    unsigned late_cuts; /* further ones, cut because their first byte was late */

    /* The pool's own. */
    struct http_transfer *transfer;
    struct http_request *next;
    uint64_t start_after_ms;
    uint64_t first_ms;
    unsigned free_again; /* HTTP_AGAINs so far */
    unsigned excused;    /* attempts that the pool itself let run out */
    bool answered;       /* some attempt got a status */
    bool wrong;          /* the answer came whole but is not what was asked for */
    bool fresh;          /* use a new connection */
    atomic_bool cancelled;
    unsigned worker;
};

struct http_options {
    unsigned threads; /* 0: one for each CPU we may use, 2 to 64 */
};

/* The pool's threads start at once and have all signals blocked. */
int http_pool_new(struct http_pool **out, const struct http_options *options, struct nc_err *err);
/* Cancels what is in flight, waits for every done hook, joins. NULL is allowed. */
void http_pool_free(struct http_pool *pool);
unsigned http_pool_threads(const struct http_pool *pool);

/* Buffers of a zeroed request; http_request_free releases them and leaves it zeroed but for the
 * hooks. A request may be submitted again without either. */
void http_request_init(struct http_request *r, const struct http_hooks *hooks);
void http_request_free(struct http_request *r);

/* Any thread. From a worker's own hook the request stays on that worker, unless another has clearly
 * less to do. */
void http_submit(struct http_pool *pool, struct http_request *r);
/* Any thread; the request still ends through its done hook, with code "Cancelled". The caller
 * knows that it has not ended. */
void http_cancel(struct http_pool *pool, struct http_request *r);

/* The value of an answer's header, or NULL; `name` in lower case. The text is copied into out. */
const char *http_header(const struct http_request *r, const char *name, char *out, size_t size);

/* For prepare: starts url and headers over; adds one header. */
void http_request_reset(struct http_request *r);
void http_add_header(struct http_request *r, const char *name, const char *value);

#endif
