/* The transfer engine: moves a set of files from a source to a sink, many parts of many files at a
 * time, and checks every byte on the way.
 *
 * A file is cut into parts (transfer/plan.h); parts of one file come in any order. What becomes of
 * a part's bytes depends on the sink:
 *
 *   kept      in a buffer as long as the part, hashed there, then stored (a bucket; small files)
 *   streamed  hashed block by block as they come, and written by the sink (a folder); or, from a
 *             folder to a bucket, read once to be hashed and once more when they are sent
 *   direct    moved by the sink itself (on the server, by the kernel): no byte passes here
 *
 * A part whose digest is known beforehand is compared with it and fetched again alone where it is
 * wrong. A file's SHA-256, where one is expected or wanted, is computed in the order of its parts:
 * of a part whose turn it is as it comes, of the others from their buffer or from the sink. A file
 * is finished (made visible under its name) only when every part is stored and all digests are
 * those that were asked for. One that is kept and has a single part is checked before it is stored
 * at all.
 *
 * Memory is a budget: buffers in use never exceed it. No deadlock can come of that, since parts of
 * a file are claimed in order: whoever waits to be hashed waits for parts that have their buffers.
 * Between two servers each direction has half of the slots, so that the two halves of a pipe
 * overlap instead of running in step. The number of slots climbs while that makes it faster
 * (transfer/climb.h), unless it was given.
 *
 * A file that fails for a reason of its own (wrong digest, not found) does not stop the others; a
 * reason that all share (access refused, no network, disk full) ends the job. What an ended or
 * cancelled job has already stored stays, so that the next run can go on from there.
 *
 * Threads: the caller's thread makes, starts, watches and frees a transfer; requests run on the
 * HTTP pool's workers, and local work (reading, syncing, renaming) on threads of the transfer's
 * own, "hands"; only small streamed blocks are written by whoever receives them. A source or sink
 * is a vtable of calls that begin something; the end of it is reported by one of the
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
    char sha256[SHA256_HEX_SIZE];    /* expected, or ""; then the computed one */
    bool wanted_sha256;              /* one was expected */
    char blob[SHA1_HEX_SIZE];        /* expected git blob name, or "" */
    char *version;                   /* identifies the content, or NULL; owned */
    char *etag;                      /* the source's, as it must be, or NULL; owned */
    char (*expected)[XXH3_HEX_SIZE]; /* digest of each part, or NULL; owned */
    /* The plan. */
    uint64_t part_size;
    uint32_t parts;
    bool streamed; /* its parts are */
    bool direct;   /* its parts are, until the sink says that it can't */
    bool hashes;   /* its own digests are computed */
    bool aside;   /* streamed: hands write its blocks while others come, which a slow write needs */
    size_t block; /* streamed: bytes of a block. The sink's open may ask for more, and set aside */
    /* What has come of it. */
    enum file_state state;
    bool continued; /* some parts were stored by an earlier run, out of our reach: not hashed */
    bool found;   /* the sink goes on with what an earlier run has written: there are bytes in it */
    bool cloned;  /* the sink has made it out of the source's own blocks: no byte was read */
    bool hashing; /* a worker is at it, or a part that goes into it as it comes */
    bool failing;
    bool orphans; /* the sink may have begun more than it knows of */
    bool again;   /* start over once the sink has left it */
    uint8_t tries;
    uint32_t next;     /* part to claim next */
    uint32_t fetching; /* parts on their way */
    uint32_t hashed;   /* parts hashed, in order */
    uint32_t stored;
    uint32_t busy;                  /* operations in flight */
    uint64_t moved;                 /* bytes that came in this run */
    char (*digests)[XXH3_HEX_SIZE]; /* one a part; "" where not known */
    char (*etags)[64];              /* of stored parts, as the sink got them; "" = not stored */
    struct part **in_flight;        /* by index; NULL where there is no buffer */
    struct part *parked;            /* fetched before the sink was ready */
    struct sha256 hash;
    struct gitblob git;
    struct nc_err *err;     /* of a failed one; owned */
    struct file *next_file; /* in the transfer's list of its state */
    struct file *begun_prev, *begun_next;
    bool queued;  /* waits for an open, finish or leave to begin */
    bool rereads; /* waits for a hand to hash what is stored */
    /* The sink's and the source's own. */
    char *upload_id; /* owned; set by the caller to continue an upload */
    void *sink_data, *source_data;
};

struct part {
    struct file *file;
    uint32_t index;
    uint64_t offset;
    size_t len;
    bool direct;                  /* as the file was when this was claimed */
    char *data;                   /* kept: len bytes; streamed: a block; direct: NULL */
    size_t room;                  /* bytes of data */
    size_t taken;                 /* bytes that have come */
    size_t held;                  /* ... and lie in the block */
    char sha256[SHA256_HEX_SIZE]; /* of these bytes, where the sink asks for it; else "" */
    bool in_turn;                 /* goes into the file's digests as it comes */
    bool aside;                   /* of such a file, and not to be read again for its digests */
    bool rewrites;                /* an attempt before this one has left bytes in the sink */
    uint8_t tries;
    bool fetching, fetched, hashed, storing, stored;
    uint32_t blocks; /* handed over and not written yet */
    bool come;       /* the fetch has ended, with fetch_err (owned) or well */
    struct nc_err *fetch_err;
    struct xxh3 own;
    struct sha256 sent;
    struct sha256 hash; /* the file's, gone on with */
    struct gitblob git;
    struct part *next;                  /* in the ready or parked list */
    struct part *live_prev, *live_next; /* all there are */
    uint64_t sink_mark;                 /* the sink's own */
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
 * operation under way when its calls return, and those that do the work (fetch; open, store, copy,
 * sync, finish, settle, leave) are made without the lock, on a hand. */
struct source {
    bool local;
    /* Bring the part's bytes by way of transfer_part_begin and transfer_part_take; ends with
     * transfer_part_fetched. */
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
    /* Local: takes blocks of all but small files, which then need an open first; those others need
     * none, unless they are empty. */
    bool streamed;
    /* Prepare for file's parts; ends with transfer_file_ended. A streamed file may be found to have
     * parts of an earlier run here (transfer_keep_part). */
    enum op (*open)(struct sink *self, struct file *file, struct nc_err *err);
    /* Streamed: keep these bytes of the part, at `at` within it. Any thread, without the lock; must
     * stand being called for the same bytes again. NULL: store fetches them by itself. */
    int (*write)(struct sink *self, struct part *part, size_t at, const char *data, size_t len,
                 struct nc_err *err);
    /* Streamed: give back bytes of stored parts. Without the lock. */
    int (*read)(struct sink *self, struct file *file, uint64_t offset, char *data, size_t len,
                struct nc_err *err);
    /* Keep part->data; streamed: all its bytes have been written and are right. Ends with
     * transfer_part_stored. */
    enum op (*store)(struct sink *self, struct part *part, struct nc_err *err);
    /* Move the part without our reading it; NULL: never. Ends with transfer_part_stored; the code
     * "NoDirectCopy" means that it has to come by way of us. */
    enum op (*copy)(struct sink *self, struct part *part, struct nc_err *err);
    /* Local; this and settle: both, or NULL: nothing to do. Before files are finished: their bytes
     * are safe on the disk. */
    int (*sync)(struct sink *self, struct file *const *files, size_t n, struct nc_err *err);
    /* Make the file whole under its name; ends with transfer_file_ended. */
    enum op (*finish)(struct sink *self, struct file *file, struct nc_err *err);
    /* After files were finished: their names are safe as well. */
    int (*settle)(struct sink *self, struct file *const *files, size_t n, struct nc_err *err);
    /* Remove what was stored of it, as well as can be; ends with transfer_file_ended. */
    enum op (*leave)(struct sink *self, struct file *file, struct nc_err *err);
    /* Stop what is in flight for the part, or, where part is NULL, for the file; it still ends. */
    void (*cancel)(struct sink *self, struct file *file, struct part *part);
    void (*release)(struct sink *self, struct part *part);
    /* keep: what was stored of it may be gone on with by another run. */
    void (*forget)(struct sink *self, struct file *file, bool keep);
    void (*free)(struct sink *self);
};

struct transfer_options {
    struct http_pool *pool;
    struct source *source; /* both are taken over, whatever transfer_new returns */
    struct sink *sink;
    uint64_t memory;     /* budget for buffers in bytes; 0: as limits allow */
    unsigned parallel;   /* parts in flight, both directions together; 0: by CPUs, and climbing */
    uint64_t part_size;  /* 0: by file size */
    uint64_t limit_rate; /* bytes a second, in each direction; 0: no limit */
    uint32_t stall_ms;   /* a part's request that moves nothing for so long is cut; 0: 30,000 */
    bool sha256;         /* every file's is computed, also where none is expected */
    bool growing;        /* files are added after the start too, until transfer_no_more */
    void (*ended)(void *arg); /* once, on any thread: everything has come to rest. May only
                                 signal. */
    void *arg;
};

struct transfer_stats {
    uint64_t bytes_total, bytes_done; /* done: of finished files and stored parts */
    uint64_t bytes_in, bytes_out;     /* over the wire so far, parts that failed not counted */
    uint64_t files_total, files_done, files_failed, files_waiting;
    uint64_t retries;
    uint64_t moved_ms; /* when bytes last moved, or were read back, monotonic */
    uint64_t memory;   /* the budget, bytes */
    unsigned parallel; /* as it stands now */
};

int transfer_new(struct transfer **out, const struct transfer_options *options, struct nc_err *err);

/* A file to be moved; strings are copied, all but path may be NULL. */
struct transfer_file {
    const char *path;
    uint64_t size;
    const char *sha256, *blob, *version, *etag;
    uint64_t part_size; /* 0: the transfer's */
};

/* Before the start, or where the transfer grows, until transfer_no_more; what was added after the
 * start begins with the next transfer_go_on or transfer_no_more, and until then the file is
 * borrowed. */
struct file *transfer_add(struct transfer *t, const struct transfer_file *wanted,
                          struct nc_err *err);
/* Right after transfer_add: file is continued under upload_id; its stored parts have these ETags.
 */
int transfer_continue(struct file *file, const char *upload_id, struct nc_err *err);
int transfer_has_part(struct file *file, uint32_t index, const char *etag);
/* Right after transfer_add: the digest that part `index` must have. All parts, or none. */
int transfer_expect(struct file *file, uint32_t index, const char *xxh3, struct nc_err *err);
/* Where threads can't be had, the job ends at once with that reason. */
void transfer_start(struct transfer *t);
void transfer_go_on(struct transfer *t);
/* A growing one has all its files. */
void transfer_no_more(struct transfer *t);
/* Ends soon, by `ended`; what was stored stays. */
void transfer_cancel(struct transfer *t);
/* Cancels if need be, and waits until all is at rest. */
void transfer_stop(struct transfer *t);
/* After the end: the next file after `before` (NULL: the first) whose upload was begun and neither
 * completed nor given up, or NULL. Borrowed. */
const struct file *transfer_next_unfinished(struct transfer *t, const struct file *before);
/* Stops it first. NULL is allowed. */
void transfer_free(struct transfer *t);

void transfer_stats(struct transfer *t, struct transfer_stats *out);
/* The next file that has come to FILE_DONE or FILE_FAILED, once each, or NULL. Borrowed until the
 * next call. */
struct file *transfer_next_ended(struct transfer *t);
/* True when a reason that all files share has ended the job; *err is that reason. */
bool transfer_failed(struct transfer *t, struct nc_err *err);

/* For sources, in a fetch, without the lock: the part's bytes, from its first to its last. Errors
 * end the fetch. */

/* At the beginning of every attempt. */
int transfer_part_begin(struct part *part, struct nc_err *err);
/* Where the next bytes may be put, and how many of them; then, how many were. */
char *transfer_part_room(struct part *part, size_t *room);
int transfer_part_took(struct part *part, size_t n, struct nc_err *err);
/* After the beginning: larger blocks than usual are of no use to the source for this part. */
void transfer_part_usual_blocks(struct part *part);
/* Both, for bytes that lie elsewhere. More than the part has left is an error of the caller's. */
int transfer_part_take(struct part *part, const char *data, size_t len, struct nc_err *err);
/* The next n bytes are zeros, and of a hole. */
int transfer_part_skip(struct part *part, size_t n, struct nc_err *err);

/* Waits until these bytes may move, where both ends are local and there is a limit. Without the
 * lock, on a hand. */
void transfer_keep_pace(struct transfer *t, size_t bytes);

/* For sources and sinks, from a worker, as the last thing their operation does. err NULL: success;
 * it is copied. */
void transfer_part_fetched(struct part *part, const struct nc_err *err);
void transfer_part_stored(struct part *part, const char *etag, const struct nc_err *err);
void transfer_file_ended(struct file *file, const struct nc_err *err);
/* For a sink in its open of a streamed file: an earlier run has stored this part, with this digest.
 */
void transfer_keep_part(struct file *file, uint32_t index, const char *xxh3);
/* Likewise: it would rather have blocks of so many bytes. False where the budget has no room for a
 * few of them; they stay as they are then. */
bool transfer_larger_blocks(struct file *file, size_t block);
/* Likewise: the sink has made the whole file out of the source's own blocks. */
void transfer_cloned(struct file *file);

_Atomic uint64_t *transfer_bytes_in(struct transfer *t);
_Atomic uint64_t *transfer_bytes_out(struct transfer *t);
struct http_pool *transfer_pool(struct transfer *t);
/* Sets how patient the request of a part is, and the rate that it keeps to. After its hooks and its
 * body have been set. */
void transfer_bound(struct transfer *t, struct http_request *r);
/* Counts what a request's attempts say about the service. */
void transfer_note(struct transfer *t, const struct http_request *r);

#endif
