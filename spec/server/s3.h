/* What the S3 handlers share. Each handler replies on its own thread; see request.h. */
#ifndef NCDEV_S3_H
#define NCDEV_S3_H

#include "request.h"

#define S3_XMLNS "http://s3.amazonaws.com/doc/2006-03-01/"

/* Answers with the error of that code: its status and words come from a table. */
void s3_error(struct request *r, const char *code);
void s3_error_detail(struct request *r, const char *code, const char *detail);
void s3_store_error(struct request *r, enum store_result rc);
void s3_refuse_content(struct request *r, int status, const char *code); /* for reply_content */

struct buf *s3_xml(struct request *r); /* 200 application/xml, declaration written */
void s3_element(struct buf *out, const char *name, const char *value);
void s3_owner(struct buf *out, const char *element);

/* Conditions of a write from its headers; etag: room for the If-Match value. False: replied. */
bool s3_condition(struct request *r, struct store_condition *cond, char etag[128]);
/* The headers that are kept with an object: Content-Type and such, x-amz-meta-*. */
void s3_kept_headers(const struct request *r, struct pairs *out);

/* The object that x-amz-copy-source names, with its conditions checked; NULL: replied. */
struct object *s3_copy_source(struct request *r);
/* The ETag of these bytes, read through; false: they can't be read. */
bool s3_etag_of(struct request *r, const struct extents *data, uint64_t size,
                char etag[DIGEST_ETAG]);

/* Handlers: s3_bucket.c */
void s3_list_buckets(struct request *r);
void s3_create_bucket(struct request *r);
void s3_head_bucket(struct request *r);
void s3_delete_bucket(struct request *r);
void s3_bucket_location(struct request *r);
void s3_bucket_versioning(struct request *r);
/* s3_list.c */
void s3_list_v1(struct request *r);
void s3_list_v2(struct request *r);
/* s3_object.c */
void s3_get_object(struct request *r);
void s3_put_object(struct request *r);
void s3_copy_object(struct request *r);
void s3_delete_object(struct request *r);
void s3_delete_objects(struct request *r);
/* s3_multipart.c */
void s3_create_upload(struct request *r);
void s3_upload_part(struct request *r);
void s3_upload_part_copy(struct request *r);
void s3_complete_upload(struct request *r);
void s3_abort_upload(struct request *r);
void s3_list_parts(struct request *r);
void s3_list_uploads(struct request *r);

#endif
