/* Every parser of S3's answers over the same bytes. */

#include <stdlib.h>
#include <string.h>

#include "s3/s3_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void lists(const char *body, size_t len)
{
    struct nc_err err;
    struct s3_listing l;
    if (s3_xml_listing(body, len, &l, &err) == 0) {
        check(!l.truncated || *l.next_token);
        for (size_t i = 0; i < l.object_count; i++)
            check(l.objects[i].key != NULL);
    }
    s3_listing_free(&l);
    struct s3_parts p;
    if (s3_xml_parts(body, len, &p, &err) == 0) {
        struct buf b;
        buf_init(&b, 1 << 24);
        s3_xml_build_complete(&b, p.parts, p.count);
        buf_free(&b);
        check(!p.truncated || p.next_marker > 0);
    }
    s3_parts_free(&p);
    struct s3_uploads u;
    if (s3_xml_uploads(body, len, &u, &err) == 0)
        check(!u.truncated || (*u.next_key && u.next_upload_id));
    s3_uploads_free(&u);
    struct s3_buckets b;
    s3_xml_buckets(body, len, &b, &err);
    s3_buckets_free(&b);
    struct s3_delete_failures f;
    s3_xml_deleted(body, len, &f, &err);
    s3_delete_failures_free(&f);
}

static void values(const char *body, size_t len)
{
    int (*const parsers[])(const char *, size_t, char **,
                           struct nc_err *) = {s3_xml_upload_id, s3_xml_complete, s3_xml_copy};
    struct nc_err err;
    for (int i = 0; i < 3; i++) {
        char *value;
        int rc = parsers[i](body, len, &value, &err);
        check(rc == 0 ? value && *value : !value && *err.code);
        free(value);
    }
    struct s3_error e;
    if (s3_xml_error(body, len, &e, &err) == 0)
        check(*e.code);
    char region[64];
    s3_xml_location(body, len, region, &err);
    struct sts_keys k;
    s3_xml_sts(body, len, &k, &err);
    sts_keys_free(&k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lists((const char *)data, size);
    values((const char *)data, size);
    return 0;
}
