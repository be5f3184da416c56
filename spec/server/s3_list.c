/* S3: ListObjects, versions 1 and 2. */
#include "s3.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct list {
    struct request *r;
    struct buf *out;
    struct store_query q;
    bool url; /* encoding-type=url */
};

static void name_element(const struct list *l, const char *element, const char *name)
{
    buf_printf(l->out, "<%s>", element);
    if (l->url)
        str_encode(l->out, name, true);
    else
        str_xml(l->out, name);
    buf_printf(l->out, "</%s>", element);
}

static const char *query_or(const struct request *r, const char *name, const char *otherwise)
{
    const char *value = request_query(r, name);
    return value ? value : otherwise;
}

/* False: replied with an error. */
static bool start(struct list *l, struct request *r)
{
    uint64_t max = 1000;
    const char *keys = request_query(r, "max-keys"), *type = request_query(r, "encoding-type");
    *l = (struct list){.r = r};
    if ((keys && *keys && !str_u64(keys, &max)) || (type && strcmp(type, "url") != 0)) {
        s3_error(r, "InvalidArgument");
        return false;
    }
    l->url = type != NULL;
    l->q.prefix = query_or(r, "prefix", "");
    l->q.delimiter = query_or(r, "delimiter", "");
    l->q.max = max < 1000 ? (size_t)max : 1000;
    return true;
}

static void object_element(const struct list *l, const struct object *o, bool owner)
{
    char date[32];
    str_iso_date(date, o->mtime);
    buf_puts(l->out, "<Contents>");
    name_element(l, "Key", o->key);
    s3_element(l->out, "LastModified", date);
    buf_printf(l->out, "<ETag>&quot;%s&quot;</ETag><Size>%" PRIu64 "</Size>", o->etag, o->size);
    if (owner)
        s3_owner(l->out, "Owner");
    buf_puts(l->out, "<StorageClass>STANDARD</StorageClass></Contents>");
}

/* The name a rule smuggles in. It may hold what a key can't, a NUL too: it is written as it is
 * in url encoding and decoded otherwise. */
static void added_element(const struct list *l)
{
    char *name = str_decode(l->r->fault.add_key, strlen(l->r->fault.add_key), false);
    buf_puts(l->out, "<Contents><Key>");
    if (l->url || !name)
        buf_puts(l->out, l->r->fault.add_key);
    else
        str_xml(l->out, name);
    buf_puts(l->out, "</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                     "<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>0</Size>"
                     "<StorageClass>STANDARD</StorageClass></Contents>");
    free(name);
}

static void names(const struct list *l, const struct store_listing *found, bool owner)
{
    for (size_t i = 0; i < found->count; i++) {
        if (found->names[i].object)
            object_element(l, found->names[i].object, owner);
    }
    if (*l->r->fault.add_key)
        added_element(l);
    for (size_t i = 0; i < found->count; i++) {
        if (found->names[i].prefix) {
            buf_puts(l->out, "<CommonPrefixes>");
            name_element(l, "Prefix", found->names[i].prefix);
            buf_puts(l->out, "</CommonPrefixes>");
        }
    }
}

static const char *last_name(const struct store_listing *found)
{
    if (!found->count)
        return "";
    const struct store_name *n = &found->names[found->count - 1];
    return n->prefix ? n->prefix : n->object->key;
}

static void head(const struct list *l, const struct store_listing *found)
{
    buf_puts(l->out, "<ListBucketResult xmlns=\"" S3_XMLNS "\">");
    s3_element(l->out, "Name", l->r->bucket);
    name_element(l, "Prefix", l->q.prefix);
    if (*l->q.delimiter)
        name_element(l, "Delimiter", l->q.delimiter);
    buf_printf(l->out, "<MaxKeys>%zu</MaxKeys><IsTruncated>%s</IsTruncated>", l->q.max,
               found->truncated ? "true" : "false");
    if (l->url)
        s3_element(l->out, "EncodingType", "url");
}

void s3_list_v1(struct request *r)
{
    struct list l;
    struct store_listing found;
    if (!start(&l, r))
        return;
    l.q.after = query_or(r, "marker", "");
    enum store_result rc = store_list(&r->srv->store, r->bucket, &l.q, &found);
    if (rc != STORE_OK) {
        s3_store_error(r, rc);
        return;
    }
    l.out = s3_xml(r);
    head(&l, &found);
    name_element(&l, "Marker", l.q.after);
    if (found.truncated && r->fault.no_token <= 0)
        name_element(&l, "NextMarker", r->fault.same_token > 0 ? l.q.after : last_name(&found));
    names(&l, &found, true);
    buf_puts(l.out, "</ListBucketResult>");
    store_listing_free(&found);
}

/* Tokens are the last name in hexadecimal: opaque enough. */
static char *token_name(const char *token)
{
    size_t n = strlen(token) / 2;
    char *name = str_alloc(n + 1);
    if (!str_unhex((unsigned char *)name, token, n)) {
        free(name);
        return NULL;
    }
    return name;
}

static void next_token(const struct list *l, const struct store_listing *found, const char *token)
{
    const char *last = last_name(found);
    size_t n = strlen(last);
    char *hex = str_alloc(2 * n + 1);
    str_hex(hex, (const unsigned char *)last, n);
    s3_element(l->out, "NextContinuationToken", l->r->fault.same_token > 0 && token ? token : hex);
    free(hex);
}

static void write_v2(struct list *l, const struct store_listing *found, const char *token)
{
    struct request *r = l->r;
    size_t added = *r->fault.add_key ? 1 : 0;
    l->out = s3_xml(r);
    head(l, found);
    buf_printf(l->out, "<KeyCount>%zu</KeyCount>", found->count + added);
    if (token)
        s3_element(l->out, "ContinuationToken", token);
    if (request_query(r, "start-after"))
        name_element(l, "StartAfter", request_query(r, "start-after"));
    if (found->truncated && r->fault.no_token <= 0)
        next_token(l, found, token);
    const char *owner = request_query(r, "fetch-owner");
    names(l, found, owner && strcmp(owner, "true") == 0);
    buf_puts(l->out, "</ListBucketResult>");
}

void s3_list_v2(struct request *r)
{
    struct list l;
    struct store_listing found;
    if (!start(&l, r))
        return;
    const char *token = request_query(r, "continuation-token");
    char *name = token ? token_name(token) : NULL;
    if (strcmp(request_query(r, "list-type"), "2") != 0 || (token && !name)) {
        s3_error(r, "InvalidArgument");
        return;
    }
    l.q.after = name ? name : query_or(r, "start-after", "");
    enum store_result rc = store_list(&r->srv->store, r->bucket, &l.q, &found);
    if (rc == STORE_OK)
        write_v2(&l, &found, token);
    else
        s3_store_error(r, rc);
    store_listing_free(&found);
    free(name);
}
