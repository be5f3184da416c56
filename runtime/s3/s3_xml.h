/* The XML that S3 speaks: answers into plain structs, request bodies out of them.
 *
 * https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations.html
 *
 * Parsers take a whole body. They are strict: a wrong root element, half a document, a missing
 * element that nothing works without, or a number that is none is code "MalformedXML"; nothing but
 * blanks is "EmptyResponse". Blanks in front are skipped, since a server keeps a slow answer alive
 * with them. An <Error> document where a result was expected is returned as the error it is: its
 * own code, its message, retryable where a second try may help (a 200 may hold one). A DOCTYPE is
 * refused, so there are no entities and nothing is ever fetched. The caller bounds the body.
 *
 * Every out struct is owned by the caller, who frees it also after a failure; a free accepts a
 * zeroed struct. Strings are UTF-8 as decoded; those of listings also from encoding-type=url. Pure
 * functions, any thread.
 */
#ifndef NC_S3_S3_XML_H
#define NC_S3_S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* An <Error>, each field cut at its size and empty where absent. */
struct s3_error {
    char code[64];
    char message[512];
    char region[64];    /* the bucket's own, with AuthorizationHeaderMalformed and redirects */
    char endpoint[256]; /* where to go instead, with PermanentRedirect */
    char bucket[128];
    char key[1025];
    char upload_id[256];
    char request_id[128];
    int64_t server_time; /* of RequestTimeTooSkewed, seconds since 1970; else 0 */
};

int s3_xml_error(const char *body, size_t len, struct s3_error *out, struct nc_err *err);

/* True for the codes that a later try may not meet again: InternalError, SlowDown, ... */
bool s3_code_retryable(const char *code);

struct s3_object {
    char *key;
    uint64_t size;
    char *etag;       /* as sent, quotes included; NULL where the server gives none */
    int64_t modified; /* seconds since 1970, 0 where the server gives none */
};

/* ListObjectsV2. */
struct s3_listing {
    struct s3_object *objects;
    size_t object_count;
    char **prefixes; /* CommonPrefixes */
    size_t prefix_count;
    bool truncated;
    char *next_token; /* never NULL or empty when truncated */
};

int s3_xml_listing(const char *body, size_t len, struct s3_listing *out, struct nc_err *err);
void s3_listing_free(struct s3_listing *l);

/* CreateMultipartUpload. The caller frees *upload_id. */
int s3_xml_upload_id(const char *body, size_t len, char **upload_id, struct nc_err *err);

/* CompleteMultipartUpload, CopyObject, UploadPartCopy: the new ETag, as sent. The caller frees it.
 * Success means a whole result document with an ETag in it, and nothing less; that of Complete may
 * be empty (Ceph RGW 16 writes <ETag></ETag>). */
int s3_xml_complete(const char *body, size_t len, char **etag, struct nc_err *err);
int s3_xml_copy(const char *body, size_t len, char **etag, struct nc_err *err);

struct s3_part {
    unsigned number; /* 1 to 10000 */
    uint64_t size;
    char *etag;
    int64_t modified;
};

/* ListParts. */
struct s3_parts {
    struct s3_part *parts;
    size_t count;
    bool truncated;
    unsigned next_marker; /* when truncated: not below any number here */
};

int s3_xml_parts(const char *body, size_t len, struct s3_parts *out, struct nc_err *err);
void s3_parts_free(struct s3_parts *p);

struct s3_upload {
    char *key;
    char *upload_id;
    int64_t initiated;
};

/* ListMultipartUploads. */
struct s3_uploads {
    struct s3_upload *uploads;
    size_t count;
    bool truncated;
    char *next_key; /* both set when truncated */
    char *next_upload_id;
};

int s3_xml_uploads(const char *body, size_t len, struct s3_uploads *out, struct nc_err *err);
void s3_uploads_free(struct s3_uploads *u);

struct s3_bucket {
    char *name;
    int64_t created;
};

struct s3_buckets {
    struct s3_bucket *buckets;
    size_t count;
};

int s3_xml_buckets(const char *body, size_t len, struct s3_buckets *out, struct nc_err *err);
void s3_buckets_free(struct s3_buckets *b);

/* GetBucketLocation: "us-east-1" for an empty one, "eu-west-1" for the old name EU. */
int s3_xml_location(const char *body, size_t len, char region[64], struct nc_err *err);

struct s3_delete_failure {
    char *key;
    char *code;
    char *message; /* "" where there is none */
};

/* DeleteObjects: what was not deleted. */
struct s3_delete_failures {
    struct s3_delete_failure *failures;
    size_t count;
};

int s3_xml_deleted(const char *body, size_t len, struct s3_delete_failures *out,
                   struct nc_err *err);
void s3_delete_failures_free(struct s3_delete_failures *f);

/* Keys that the Security Token Service hands out (AssumeRole and its variants). */
struct sts_keys {
    char *access;
    char *secret;
    char *token;
    int64_t expires; /* seconds since 1970; 0 where the service says nothing */
};

int s3_xml_sts(const char *body, size_t len, struct sts_keys *out, struct nc_err *err);
void sts_keys_free(struct sts_keys *k); /* wipes the secret */

/* Request bodies, appended. -1 when out failed, or when a key or ETag holds a control character
 * that XML can't express (such keys can only be deleted one by one). */
int s3_xml_build_complete(struct buf *out, const struct s3_part *parts, size_t count);
int s3_xml_build_delete(struct buf *out, const char *const *keys, size_t count);
int s3_xml_escape(struct buf *out, const char *s);

#endif
