/* What the two files of the bucket sink share. Private to transfer/.
 *
 *   sink_s3.c       bytes that come by way of us
 *   sink_s3_copy.c  copies inside the server
 */
#ifndef NC_TRANSFER_SINK_S3_H
#define NC_TRANSFER_SINK_S3_H

#include "transfer/ends.h"
#include "transfer/local_file.h"

enum {
    SINK_S3_STALL_MS = 300 * 1000, /* putting a large object together takes a server a while */
    SINK_S3_ANSWER_MAX = 1024 * 1024,
};

struct sink_s3 {
    struct sink base;
    struct s3_client *client;
    char *prefix;
    struct local_files *from; /* the source's; bodies are read from it; NULL: the parts' buffers */
    struct s3_client *copy_from; /* whose objects can be copied inside the server, or NULL */
    char *copy_prefix;
};

/* One file's own requests: create, complete and abort, one at a time, begun under the transfer's
 * lock; the look at the object after a Complete that failed, begun by a worker; and the look at the
 * object that is copied, which `request` may wait for. */
struct s3_file {
    struct s3_request request, look, source;
    bool in_use;         /* request is */
    bool source_in_use;  /* likewise */
    atomic_bool looking; /* look is under way */
    atomic_bool asking;  /* source is, and request only comes after it */
    struct file *file;
    struct buf body;
    struct nc_err why; /* of the Complete */
    char source_etag[80];
};

struct s3_part_op {
    struct s3_request request; /* first: hooks get back to us through it */
    struct sink_s3 *sink;
    struct part *part;
    char etag[80]; /* of a copied one */
};

struct s3_file *sink_s3_file(struct file *f); /* NULL without memory */
/* A request about the part's object: of an upload, where it has several parts. */
struct s3_part_op *sink_s3_part_op(struct sink_s3 *s, struct part *part, struct nc_err *err);

/* Looks at the object that file is copied from, to be sure that it still is the one, and then sends
 * the file's request, where one is ready; ends with transfer_file_ended unless that request does.
 */
enum op sink_s3_ask_source(struct sink_s3 *s, struct file *f, struct nc_err *err);

#endif
