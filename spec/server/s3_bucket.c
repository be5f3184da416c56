/* S3: buckets. */
#include "s3.h"

#include <ctype.h>
#include <string.h>

static void bucket_element(void *cls, const char *name, int64_t created)
{
    struct buf *out = cls;
    char date[32];
    str_iso_date(date, created);
    buf_puts(out, "<Bucket>");
    s3_element(out, "Name", name);
    s3_element(out, "CreationDate", date);
    buf_puts(out, "</Bucket>");
}

void s3_list_buckets(struct request *r)
{
    struct buf *out = s3_xml(r);
    buf_puts(out, "<ListAllMyBucketsResult xmlns=\"" S3_XMLNS "\">");
    s3_owner(out, "Owner");
    buf_puts(out, "<Buckets>");
    store_bucket_list(&r->srv->store, bucket_element, out);
    buf_puts(out, "</Buckets></ListAllMyBucketsResult>");
}

static bool valid_name(const char *s)
{
    size_t n = strlen(s);
    if (n < 3 || n > 63 || !isalnum((unsigned char)s[0]) || !isalnum((unsigned char)s[n - 1]) ||
        strstr(s, ".."))
        return false;
    return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-") == n;
}

void s3_create_bucket(struct request *r)
{
    if (!valid_name(r->bucket)) {
        s3_error(r, "InvalidBucketName");
        return;
    }
    enum store_result rc = store_bucket_create(&r->srv->store, r->bucket, request_now(r));
    /* us-east-1 alone says 200 to a bucket that is there and ours. */
    if (rc == STORE_EXISTS && strcmp(r->srv->opt.region, "us-east-1") != 0) {
        s3_store_error(r, rc);
        return;
    }
    reply_empty(r, 200);
    reply_headerf(r, "Location", "/%s", r->bucket);
}

void s3_head_bucket(struct request *r)
{
    if (!store_bucket_exists(&r->srv->store, r->bucket)) {
        s3_error(r, "NoSuchBucket");
        return;
    }
    reply_empty(r, 200);
    reply_header(r, "x-amz-bucket-region", r->srv->opt.region);
}

void s3_delete_bucket(struct request *r)
{
    enum store_result rc = store_bucket_delete(&r->srv->store, r->bucket);
    if (rc != STORE_OK)
        s3_store_error(r, rc);
    else
        reply_empty(r, 204);
}

void s3_bucket_location(struct request *r)
{
    if (!store_bucket_exists(&r->srv->store, r->bucket)) {
        s3_error(r, "NoSuchBucket");
        return;
    }
    const char *region = r->srv->opt.region;
    buf_printf(s3_xml(r), "<LocationConstraint xmlns=\"" S3_XMLNS "\">%s</LocationConstraint>",
               strcmp(region, "us-east-1") == 0 ? "" : region);
}

void s3_bucket_versioning(struct request *r)
{
    if (store_bucket_exists(&r->srv->store, r->bucket))
        buf_puts(s3_xml(r), "<VersioningConfiguration xmlns=\"" S3_XMLNS "\"/>");
    else
        s3_error(r, "NoSuchBucket");
}
