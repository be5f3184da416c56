/* The transfer engine: moves a set of files from a source to a sink, many parts of many files at a
 * time, and checks every byte on the way.
 *
 * A file is cut into parts (transfer/plan.h). A part is fetched into a buffer, hashed, stored, and
 * its buffer used again; parts of one file arrive in any order and are hashed in order, so a file's
 * SHA-256 is known when its last part is. A file is finished (made visible under its name) only
 * when every part is stored and its digest is the one that was asked for. One that has a single
 * part is checked before it is stored at all.
 *
 * Memory is a budget: buffers in use never exceed it. No deadlock can come of that, since parts of
 * a file are claimed in order: whoever waits to be hashed waits for parts that have their buffers.
 * In each direction at most half of the parts in flight are on the wire, so that the two halves of
 * a pipe overlap instead of running in step.
 *
 * A file that fails for a reason of its own (wrong digest, not found) does not stop the others; a
 * reason that all share (access refused, no network, disk full) ends the job. What an ended or
 * cancelled job has already stored stays, so that the next run can go on from there.
 *
 * Threads: the caller's thread makes, starts, watches and frees a transfer; all else happens on the
 * HTTP pool's workers and, where one end is local, on threads of the transfer's own, so that
 * reading and writing files goes on beside each other and never in the caller's thread. A source or
 * sink is a vtable of calls that begin something; the end of it is reported by one of the
 * transfer_*_ended functions, at once or from a worker.
 */
#ifndef NC_TRANSFER_TRANSFER_H
#define NC_TRANSFER_TRANSFER_H

#include "base/digest.h"
#include "base/err.h"
#include "net/http.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transfer;
struct part;

/* Where a file stands. */
enum file_state {
    FILE_WAITING,   /* not begun */
    FILE_OPENING,   /* the sink prepares for it */
    FILE_OPEN,      /* parts may be stored */
    FILE_FINISHING, /* all stored and checked; the sink makes it visible */
    FILE_LEAVING,   /* failed; the sink removes what it has */
    FILE_DONE,
    FILE_FAILED,
};

struct file {
    struct transfer *transfer;
    /* What was asked for. */
    char *path; /* relative to source and sink, no leading '/'; owned */
    uint64_t size;
    char sha256[SHA256_HEX_SIZE]; /* expected, or "" */
    char blob[SHA1_HEX_SIZE];     /* expected git blob name, or "" */
    /* The plan. */
    uint64_t part_size;
    uint32_t parts;
    /* What has come of it. */
    enum file_state state;
    bool continued; /* some parts were stored by an earlier run: not hashed here */
    bool hashing;   /* a worker is at it */
    bool failing;
    bool orphans; /* the sink may have begun more than it knows of */
    bool again;   /* start over once the sink has left it */
    uint8_t tries;
    uint32_t next;   /* part to claim next */
    uint32_t hashed; /* parts hashed, in order */
    uint32_t stored;
    uint32_t busy;                  /* operations in flight */
    char (*digests)[XXH3_HEX_SIZE]; /* one a part; "" where not known */
    char (*etags)[64];              /* of stored parts, as the sink got them; "" = not stored */
    struct part **in_flight;        /* by index; NULL where there is no buffer */
    struct part *parked;            /* fetched before the sink was ready */
    struct sha256 hash;
    struct gitblob git;
    struct nc_err err;
    struct file *next_file; /* in the transfer's list of its state */
    bool queued;            /* waits for an open, finish or leave to begin */
    /* The sink's and the source's own. */
    char *upload_id; /* owned; set by the caller to continue an upload */
    void *sink_data, *source_data;
};

struct part {
    struct file *file;
    uint32_t index;
    uint64_t offset;
    size_t len;
    char *data;                   /* the buffer: len bytes */
    char sha256[SHA256_HEX_SIZE]; /* of these bytes, where the sink asks for it; else "" */
    bool fetching, fetched, hashed, storing, stored;
    struct part *next;                  /* in the ready or parked list */
    struct part *live_prev, *live_next; /* all that have a buffer */
    void *op;                           /* the source's or sink's request in flight */
};

/* What a call that begins an operation returns. */
enum op {
    OP_FAILED = -1, /* err is filled */
    OP_OVER = 0,    /* done already */
    OP_BEGUN = 1,   /* a transfer_*_ended call will follow, from a worker */
};

/* The transfer's lock is held in every call, so they must be short and never report an end from
 * within. part->op and the file's *_data are theirs, and safe under that lock. What is local has no
 * operation under way when its calls return, and those that do the work (fetch; open, store,
 * finish, leave) are made without the lock. */
struct source {
    bool local;
    /* Fill part->data; ends with transfer_part_fetched. */
    enum op (*fetch)(struct source *self, struct part *part, struct nc_err *err);
    /* Stop part's fetch soon; it still ends. */
    void (*cancel)(struct source *self, struct part *part);
    void (*release)(struct source *self, struct part *part); /* of part->op, after the end */
    void (*forget)(struct source *self, struct file *file);  /* of file->source_data */
    void (*free)(struct source *self);
};

struct sink {
    bool local;   /* also: all slots may fetch, since storing needs no network */
    bool digests; /* store needs part->sha256 */
    /* Prepare for file's parts; ends with transfer_file_ended. */
    enum op (*open)(struct sink *self, struct file *file, struct nc_err *err);
    /* Keep part->data; ends with transfer_part_stored. */
    enum op (*store)(struct sink *self, struct part *part, struct nc_err *err);
    /* Make the file whole under its name; ends with transfer_file_ended. */
    enum op (*finish)(struct sink *self, struct file *file, struct nc_err *err);
    /* Remove what was stored of it, as well as can be; ends with transfer_file_ended. */
    enum op (*leave)(struct sink *self, struct file *file, struct nc_err *err);
    /* Stop what is in flight for the part, or, where part is NULL, for the file; it still ends. */
    void (*cancel)(struct sink *self, struct file *file, struct part *part);
    void (*release)(struct sink *self, struct part *part);
    void (*forget)(struct sink *self, struct file *file);
    void (*free)(struct sink *self);
};

struct transfer_options {
    struct http_pool *pool;
    struct source *source; /* both are taken over, whatever transfer_new returns */
    struct sink *sink;
    uint64_t memory;    /* budget for buffers in bytes; 0: as limits allow */
    unsigned parallel;  /* parts in flight, both directions together; 0: by CPUs */
    uint64_t part_size; /* 0: by file size */
    uint32_t stall_ms;  /* a part's request that moves nothing for so long is cut; 0: 30,000 */
    void (*ended)(void *arg); /* once, on any thread: everything has come to rest. May only
                                 signal. */
    void *arg;
};

struct transfer_stats {
    uint64_t bytes_total, bytes_done; /* done: of finished files and stored parts */
    uint64_t bytes_in, bytes_out;     /* over the wire so far, parts that failed not counted */
    uint64_t files_total, files_done, files_failed;
    uint64_t retries;
    uint64_t moved_ms; /* when bytes last moved, monotonic */
    uint64_t memory;   /* the budget, bytes */
    unsigned parallel;
};

int transfer_new(struct transfer **out, const struct transfer_options *options, struct nc_err *err);
/* Before the start. The strings are copied; sha256 and blob may be NULL. part_size 0: the
 * transfer's. */
struct file *transfer_add(struct transfer *t, const char *path, uint64_t size, const char *sha256,
                          const char *blob, uint64_t part_size, struct nc_err *err);
/* Before the start: file is continued under upload_id; its stored parts have these ETags. */
int transfer_continue(struct file *file, const char *upload_id, struct nc_err *err);
int transfer_has_part(struct file *file, uint32_t index, const char *etag);
/* Where threads can't be had, the job ends at once with that reason. */
void transfer_start(struct transfer *t);
/* Ends soon, by `ended`; what was stored stays. */
void transfer_cancel(struct transfer *t);
/* Cancels if need be and waits until all is at rest. NULL is allowed. */
void transfer_free(struct transfer *t);

void transfer_stats(struct transfer *t, struct transfer_stats *out);
/* The next file that has come to FILE_DONE or FILE_FAILED, once each, or NULL. Borrowed. */
struct file *transfer_next_ended(struct transfer *t);
/* True when a reason that all files share has ended the job; *err is that reason. */
bool transfer_failed(struct transfer *t, struct nc_err *err);

/* For sources and sinks, from a worker, as the last thing their operation does. err NULL: success;
 * it is copied. */
void transfer_part_fetched(struct part *part, const struct nc_err *err);
void transfer_part_stored(struct part *part, const char *etag, const struct nc_err *err);
void transfer_file_ended(struct file *file, const struct nc_err *err);

_Atomic uint64_t *transfer_bytes_in(struct transfer *t);
_Atomic uint64_t *transfer_bytes_out(struct transfer *t);
struct http_pool *transfer_pool(struct transfer *t);
/* Sets how patient the request of a part is. */
void transfer_bound(struct transfer *t, struct http_request *r);
void transfer_note_retries(struct transfer *t, unsigned attempts);

#endif
