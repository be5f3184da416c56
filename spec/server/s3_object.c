/* S3: objects. */
#include "s3.h"

#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- GET and HEAD ----------------------------------------------------------------------------- */

static void response_overrides(struct request *r)
{
    static const char *const names[] = {"content-type",  "content-language",    "expires",
                                        "cache-control", "content-disposition", "content-encoding"};
    char query[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(query, sizeof query, "response-%s", names[i]);
        if (request_query(r, query))
            reply_header(r, names[i], request_query(r, query));
    }
}

void s3_get_object(struct request *r)
{
    struct object *o = store_get(&r->srv->store, r->bucket, r->key);
    if (!o) {
        s3_error(r, store_bucket_exists(&r->srv->store, r->bucket) ? "NoSuchKey" : "NoSuchBucket");
        return;
    }
    struct content c = {.etag = o->etag,
                        .type = "binary/octet-stream",
                        .mtime = o->mtime,
                        .size = o->size,
                        .extents = &o->data,
                        .fd = -1};
    reply_content(r, &c, s3_refuse_content);
    if (r->reply.status == 200 || r->reply.status == 206) {
        for (size_t i = 0; i < o->headers.n; i++)
            reply_header(r, o->headers.v[i].name, o->headers.v[i].value);
        response_overrides(r);
    }
    object_unref(o);
}

/* --- writes ----------------------------------------------------------------------------------- */

static void publish(struct request *r, struct object *o, const struct store_condition *cond)
{
    enum store_result rc = store_put(&r->srv->store, r->bucket, o, cond);
    if (rc == STORE_OK)
        return;
    object_unref(o);
    s3_store_error(r, rc);
}

void s3_put_object(struct request *r)
{
    struct store_condition cond;
    char etag[128];
    if (r->body.wrong) {
        s3_error(r, r->body.wrong);
        return;
    }
    if (!s3_condition(r, &cond, etag))
        return;
    if (r->body.size > STORE_MAX_PART_SIZE) {
        s3_error(r, "EntityTooLarge");
        return;
    }
    struct object *o = object_new(r->key);
    o->size = r->body.size;
    o->mtime = request_now(r);
    snprintf(o->etag, sizeof o->etag, "%s", r->body.etag_text);
    s3_kept_headers(r, &o->headers);
    extents_add(&o->data, r->body.blob, 0, o->size);
    reply_empty(r, 200);
    reply_headerf(r, "ETag", "\"%s\"", r->body.etag_text);
    publish(r, o, &cond);
}

/* bucket/key or /bucket/key, percent-encoded; ?versionId is not ours. Returns the bucket, with
 * *key behind it in the same memory; NULL where there is no key. */
static char *split_source(const struct request *r, const char **key)
{
    const char *source = request_header(r, "x-amz-copy-source");
    source += *source == '/';
    char *bucket = str_decode(source, strcspn(source, "?"), false);
    char *slash = bucket ? strchr(bucket, '/') : NULL;
    if (slash && slash[1]) {
        *slash = '\0';
        *key = slash + 1;
        return bucket;
    }
    free(bucket);
    return NULL;
}

static bool same_etag(const char *header, const char *etag)
{
    size_t n = strlen(header);
    if (n >= 2 && header[0] == '"' && header[n - 1] == '"') {
        header++;
        n -= 2;
    }
    return n == strlen(etag) && memcmp(header, etag, n) == 0;
}

static bool source_allowed(const struct request *r, const struct object *o)
{
    const char *match = request_header(r, "x-amz-copy-source-if-match");
    const char *none = request_header(r, "x-amz-copy-source-if-none-match");
    int64_t t;
    if (match && !same_etag(match, o->etag))
        return false;
    if (!match &&
        str_parse_http_date(request_header(r, "x-amz-copy-source-if-unmodified-since"), &t) &&
        o->mtime > t)
        return false;
    if (none)
        return !same_etag(none, o->etag);
    return !str_parse_http_date(request_header(r, "x-amz-copy-source-if-modified-since"), &t) ||
           o->mtime > t;
}

struct object *s3_copy_source(struct request *r)
{
    const char *key;
    char *bucket = split_source(r, &key);
    if (!bucket) {
        s3_error(r, "InvalidArgument");
        return NULL;
    }
    struct object *o = store_get(&r->srv->store, bucket, key);
    if (!o)
        s3_error(r, store_bucket_exists(&r->srv->store, bucket) ? "NoSuchKey" : "NoSuchBucket");
    if (o && !source_allowed(r, o)) {
        s3_error(r, "PreconditionFailed");
        object_unref(o);
        o = NULL;
    }
    free(bucket);
    return o;
}

bool s3_etag_of(struct request *r, const struct extents *data, uint64_t size,
                char etag[DIGEST_ETAG])
{
    size_t room = 1 << 20;
    char *piece = str_alloc(room);
    struct extent_cache cache = {.fd = -1};
    struct digest d;
    digest_init(&d, r->srv->opt.fast_etag ? DIGEST_XXH3 : DIGEST_MD5);
    uint64_t at = 0;
    ssize_t n = 1;
    while (at < size && (n = extents_read(data, &cache, at, piece, room)) > 0) {
        digest_add(&d, piece, (size_t)n);
        at += (uint64_t)n;
    }
    digest_etag(&d, etag);
    extent_cache_free(&cache);
    free(piece);
    return at == size;
}

static void copy_result(struct request *r, const char *etag)
{
    char date[32];
    str_iso_date(date, request_now(r));
    struct buf *out = s3_xml(r);
    buf_puts(out, "<CopyObjectResult xmlns=\"" S3_XMLNS "\">");
    s3_element(out, "LastModified", date);
    buf_printf(out, "<ETag>&quot;%s&quot;</ETag></CopyObjectResult>", etag);
}

/* The bytes are shared with the source; a copy of a multipart object has a plain ETag. */
static void copy_object(struct request *r, const struct object *from,
                        const struct store_condition *cond)
{
    const char *directive = request_header(r, "x-amz-metadata-directive");
    bool replace = directive && strcasecmp(directive, "REPLACE") == 0;
    struct object *o = object_new(r->key);
    o->size = from->size;
    o->mtime = request_now(r);
    extents_slice(&o->data, &from->data, 0, from->size);
    if (replace)
        s3_kept_headers(r, &o->headers);
    else
        pairs_copy(&o->headers, &from->headers);
    char etag[DIGEST_ETAG];
    if (!strchr(from->etag, '-')) {
        snprintf(o->etag, sizeof o->etag, "%s", from->etag);
    } else if (s3_etag_of(r, &o->data, o->size, etag)) {
        snprintf(o->etag, sizeof o->etag, "%s", etag);
    } else {
        object_unref(o);
        s3_error(r, "InternalError");
        return;
    }
    copy_result(r, o->etag);
    publish(r, o, cond);
}

void s3_copy_object(struct request *r)
{
    struct store_condition cond;
    char etag[128];
    if (!s3_condition(r, &cond, etag))
        return;
    struct object *from = s3_copy_source(r);
    if (!from)
        return;
    if (from->size > STORE_MAX_PART_SIZE)
        s3_error(r, "InvalidRequest");
    else
        copy_object(r, from, &cond);
    object_unref(from);
}

/* --- deletes ---------------------------------------------------------------------------------- */

void s3_delete_object(struct request *r)
{
    enum store_result rc = store_delete(&r->srv->store, r->bucket, r->key);
    if (rc == STORE_NO_BUCKET)
        s3_store_error(r, rc);
    else
        reply_empty(r, 204); /* of what is not there too */
}

static xmlNode *child(xmlNode *n, const char *name)
{
    for (xmlNode *c = n ? n->children : NULL; c; c = c->next) {
        if (c->type == XML_ELEMENT_NODE && strcmp((const char *)c->name, name) == 0)
            return c;
    }
    return NULL;
}

static void delete_named(struct request *r, struct buf *out, xmlNode *object, bool quiet)
{
    xmlChar *key = xmlNodeGetContent(child(object, "Key"));
    if (key && *key) {
        store_delete(&r->srv->store, r->bucket, (const char *)key);
        if (!quiet) {
            buf_puts(out, "<Deleted>");
            s3_element(out, "Key", (const char *)key);
            buf_puts(out, "</Deleted>");
        }
    }
    xmlFree(key);
}

static bool parse_delete(xmlNode *root, bool *quiet)
{
    size_t count = 0;
    if (!root || strcmp((const char *)root->name, "Delete") != 0)
        return false;
    for (xmlNode *n = root->children; n; n = n->next)
        count += n->type == XML_ELEMENT_NODE && strcmp((const char *)n->name, "Object") == 0;
    xmlNode *q = child(root, "Quiet");
    xmlChar *text = q ? xmlNodeGetContent(q) : NULL;
    *quiet = text && strcmp((const char *)text, "true") == 0;
    xmlFree(text);
    return count >= 1 && count <= 1000;
}

void s3_delete_objects(struct request *r)
{
    if (r->body.wrong || !store_bucket_exists(&r->srv->store, r->bucket)) {
        s3_error(r, r->body.wrong ? r->body.wrong : "NoSuchBucket");
        return;
    }
    xmlDoc *doc = xmlReadMemory(buf_str(&r->body.text), (int)r->body.text.len, NULL, NULL,
                                XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
    xmlNode *root = doc ? xmlDocGetRootElement(doc) : NULL;
    bool quiet;
    if (!parse_delete(root, &quiet)) {
        s3_error(r, "MalformedXML");
    } else {
        struct buf *out = s3_xml(r);
        buf_puts(out, "<DeleteResult xmlns=\"" S3_XMLNS "\">");
        for (xmlNode *n = root->children; n; n = n->next) {
            if (n->type == XML_ELEMENT_NODE && strcmp((const char *)n->name, "Object") == 0)
                delete_named(r, out, n, quiet);
        }
        buf_puts(out, "</DeleteResult>");
    }
    xmlFreeDoc(doc);
}
