/* S3: multipart uploads, with the real limits. */
#include "s3.h"

#include <inttypes.h>
#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void s3_create_upload(struct request *r)
{
    char id[33];
    struct pairs headers = {0};
    s3_kept_headers(r, &headers);
    enum store_result rc =
        store_upload_create(&r->srv->store, r->bucket, r->key, &headers, request_now(r), id);
    pairs_free(&headers);
    if (rc != STORE_OK) {
        s3_store_error(r, rc);
        return;
    }
    struct buf *out = s3_xml(r);
    buf_puts(out, "<InitiateMultipartUploadResult xmlns=\"" S3_XMLNS "\">");
    s3_element(out, "Bucket", r->bucket);
    s3_element(out, "Key", r->key);
    s3_element(out, "UploadId", id);
    buf_puts(out, "</InitiateMultipartUploadResult>");
}

/* --- parts ------------------------------------------------------------------------------------ */

/* 0: replied. */
static unsigned part_number(struct request *r)
{
    uint64_t n;
    if (str_u64(request_query(r, "partNumber"), &n) && n >= 1 && n <= STORE_MAX_PART)
        return (unsigned)n;
    reply_s3_error(r, 400, "InvalidArgument",
                   "Part number must be an integer between 1 and 10000, inclusive", "");
    return 0;
}

/* Stores part, or says why not; true: stored. */
static bool keep_part(struct request *r, struct part *part)
{
    enum store_result rc =
        store_upload_put(&r->srv->store, r->bucket, r->key, request_query(r, "uploadId"), part);
    if (rc == STORE_OK)
        return true;
    store_part_free(part);
    s3_store_error(r, rc);
    return false;
}

void s3_upload_part(struct request *r)
{
    unsigned number = part_number(r);
    if (!number)
        return;
    if (r->body.wrong || r->body.size > STORE_MAX_PART_SIZE) {
        s3_error(r, r->body.wrong ? r->body.wrong : "EntityTooLarge");
        return;
    }
    reply_empty(r, 200);
    reply_headerf(r, "ETag", "\"%s\"", r->body.etag_text);
    if (r->fault.drop_part > 0)
        return;
    struct part *p = str_alloc(sizeof *p);
    p->number = number;
    p->size = r->body.size;
    p->mtime = request_now(r);
    snprintf(p->etag, sizeof p->etag, "%s", r->body.etag_text);
    extents_add(&p->data, r->body.blob, 0, p->size);
    keep_part(r, p);
}

/* "bytes=A-B", both given and inside the source. No header: all of it. */
static bool copy_range(const struct request *r, const struct object *from, uint64_t *first,
                       uint64_t *size)
{
    const char *range = request_header(r, "x-amz-copy-source-range");
    uint64_t last;
    *first = 0;
    *size = from->size;
    if (!range)
        return true;
    if (!str_starts(range, "bytes="))
        return false;
    range += strlen("bytes=");
    if (!str_take_u64(&range, first) || *range++ != '-' || !str_u64(range, &last) ||
        last < *first || last >= from->size)
        return false;
    *size = last - *first + 1;
    return true;
}

static void copy_part(struct request *r, const struct object *from, unsigned number)
{
    uint64_t first, size;
    char etag[DIGEST_ETAG], date[32];
    if (!copy_range(r, from, &first, &size)) {
        s3_error(r, "InvalidArgument");
        return;
    }
    struct part *p = str_alloc(sizeof *p);
    p->number = number;
    p->size = size;
    p->mtime = request_now(r);
    extents_slice(&p->data, &from->data, first, size);
    if (size > STORE_MAX_PART_SIZE || !s3_etag_of(r, &p->data, size, etag)) {
        store_part_free(p);
        s3_error(r, size > STORE_MAX_PART_SIZE ? "InvalidRequest" : "InternalError");
        return;
    }
    snprintf(p->etag, sizeof p->etag, "%s", etag);
    str_iso_date(date, p->mtime);
    if (r->fault.drop_part > 0)
        store_part_free(p);
    else if (!keep_part(r, p))
        return;
    struct buf *out = s3_xml(r);
    buf_puts(out, "<CopyPartResult xmlns=\"" S3_XMLNS "\">");
    s3_element(out, "LastModified", date);
    buf_printf(out, "<ETag>&quot;%s&quot;</ETag></CopyPartResult>", etag);
}

void s3_upload_part_copy(struct request *r)
{
    unsigned number = part_number(r);
    struct object *from = number ? s3_copy_source(r) : NULL;
    if (from)
        copy_part(r, from, number);
    object_unref(from);
}

/* --- complete --------------------------------------------------------------------------------- */

/* As S3 has it: the MD5 of the parts' MD5s, and how many they are. */
static void md5_etag(char out[72], struct part *const *parts, size_t count)
{
    unsigned char md[DIGEST_MAX];
    char hex[2 * DIGEST_MAX + 1];
    struct digest d;
    digest_init(&d, DIGEST_MD5);
    for (size_t i = 0; i < count; i++) {
        if (str_unhex(md, parts[i]->etag, 16))
            digest_add(&d, md, 16);
    }
    digest_hex(&d, hex);
    snprintf(out, 72, "%s-%zu", hex, count);
}

static void fast_etag(char out[72], struct part *const *parts, size_t count)
{
    char hex[2 * DIGEST_MAX + 1];
    struct digest d;
    digest_init(&d, DIGEST_XXH3);
    for (size_t i = 0; i < count; i++)
        digest_add(&d, parts[i]->etag, strlen(parts[i]->etag));
    digest_hex(&d, hex);
    snprintf(out, 72, "%s-%zu", hex, count);
}

static char *content_of(xmlNode *part, const char *name)
{
    for (xmlNode *n = part->children; n; n = n->next) {
        if (n->type == XML_ELEMENT_NODE && strcmp((const char *)n->name, name) == 0)
            return (char *)xmlNodeGetContent(n);
    }
    return NULL;
}

static bool parse_part(xmlNode *n, struct store_named_part *out)
{
    char *number = content_of(n, "PartNumber"), *etag = content_of(n, "ETag");
    uint64_t value = 0;
    bool ok = number && etag && str_u64(number, &value) && value >= 1 && value <= STORE_MAX_PART;
    if (ok) {
        size_t len = strlen(etag);
        bool quoted = len >= 2 && etag[0] == '"' && etag[len - 1] == '"';
        out->number = (unsigned)value;
        snprintf(out->etag, sizeof out->etag, "%.*s", (int)(quoted ? len - 2 : len),
                 etag + (quoted ? 1 : 0));
    }
    xmlFree(number);
    xmlFree(etag);
    return ok;
}

/* The number of parts, 0: malformed. */
static size_t parse_parts(const struct buf *text, struct store_named_part *parts)
{
    xmlDoc *doc = xmlReadMemory(buf_str(text), (int)text->len, NULL, NULL,
                                XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
    xmlNode *root = doc ? xmlDocGetRootElement(doc) : NULL;
    size_t count = 0;
    bool ok = root && strcmp((const char *)root->name, "CompleteMultipartUpload") == 0;
    for (xmlNode *n = ok ? root->children : NULL; n && ok; n = n->next) {
        if (n->type != XML_ELEMENT_NODE || strcmp((const char *)n->name, "Part") != 0)
            continue;
        ok = count < STORE_MAX_PART && parse_part(n, &parts[count]);
        count++;
    }
    xmlFreeDoc(doc);
    return ok ? count : 0;
}

static void complete_result(struct request *r, const char *etag)
{
    struct buf *out = s3_xml(r), url;
    buf_init(&url, 1 << 16);
    request_base_url(r, r->srv->port, &url);
    buf_printf(&url, "/%s/", r->bucket);
    str_encode(&url, r->key, true);
    buf_puts(out, "<CompleteMultipartUploadResult xmlns=\"" S3_XMLNS "\">");
    s3_element(out, "Location", buf_str(&url));
    s3_element(out, "Bucket", r->bucket);
    s3_element(out, "Key", r->key);
    buf_printf(out, "<ETag>&quot;%s&quot;</ETag></CompleteMultipartUploadResult>", etag);
    buf_free(&url);
}

void s3_complete_upload(struct request *r)
{
    struct store_condition cond;
    char etag[128];
    if (r->body.wrong) {
        s3_error(r, r->body.wrong);
        return;
    }
    if (!s3_condition(r, &cond, etag))
        return;
    struct store_named_part *parts = str_alloc(sizeof *parts * STORE_MAX_PART);
    struct object *o = NULL;
    size_t count = parse_parts(&r->body.text, parts);
    enum store_result rc =
        count ? store_upload_complete(
                    &r->srv->store, r->bucket, r->key, request_query(r, "uploadId"), parts, count,
                    &cond, r->srv->opt.fast_etag ? fast_etag : md5_etag, request_now(r), &o)
              : STORE_OK;
    if (!count)
        s3_error(r, "MalformedXML");
    else if (rc != STORE_OK)
        s3_store_error(r, rc);
    else
        complete_result(r, o->etag);
    object_unref(o);
    free(parts);
}

void s3_abort_upload(struct request *r)
{
    enum store_result rc =
        store_upload_abort(&r->srv->store, r->bucket, r->key, request_query(r, "uploadId"));
    if (rc == STORE_OK)
        reply_empty(r, 204);
    else
        s3_store_error(r, rc);
}

/* --- listings --------------------------------------------------------------------------------- */

/* Up to `max` parts past `after`, gathered under the store's lock. */
struct part_page {
    struct buf xml;
    uint64_t after, max, count;
    unsigned last;
    bool truncated;
};

static void part_element(void *cls, const struct part *p)
{
    struct part_page *page = cls;
    char date[32];
    if (p->number <= page->after)
        return;
    if (page->count == page->max) {
        page->truncated = true;
        return;
    }
    str_iso_date(date, p->mtime);
    buf_printf(&page->xml,
               "<Part><PartNumber>%u</PartNumber><LastModified>%s</LastModified>"
               "<ETag>&quot;%s&quot;</ETag><Size>%" PRIu64 "</Size></Part>",
               p->number, date, p->etag, p->size);
    page->last = p->number;
    page->count++;
}

static uint64_t query_number(const struct request *r, const char *name, uint64_t otherwise)
{
    uint64_t n;
    return str_u64(request_query(r, name), &n) ? n : otherwise;
}

void s3_list_parts(struct request *r)
{
    struct part_page page = {.after = query_number(r, "part-number-marker", 0),
                             .max = query_number(r, "max-parts", 1000)};
    const char *id = request_query(r, "uploadId");
    buf_init(&page.xml, 16 << 20);
    page.max = page.max < 1000 ? page.max : 1000;
    enum store_result rc =
        store_upload_parts(&r->srv->store, r->bucket, r->key, id, part_element, &page);
    if (rc != STORE_OK) {
        s3_store_error(r, rc);
        buf_free(&page.xml);
        return;
    }
    struct buf *out = s3_xml(r);
    buf_puts(out, "<ListPartsResult xmlns=\"" S3_XMLNS "\">");
    s3_element(out, "Bucket", r->bucket);
    s3_element(out, "Key", r->key);
    s3_element(out, "UploadId", id);
    s3_owner(out, "Initiator");
    s3_owner(out, "Owner");
    buf_printf(out,
               "<StorageClass>STANDARD</StorageClass><PartNumberMarker>%" PRIu64
               "</PartNumberMarker>",
               page.after);
    if (page.truncated && r->fault.no_token <= 0)
        buf_printf(out, "<NextPartNumberMarker>%" PRIu64 "</NextPartNumberMarker>",
                   r->fault.same_token > 0 ? page.after : page.last);
    buf_printf(out, "<MaxParts>%" PRIu64 "</MaxParts><IsTruncated>%s</IsTruncated>%s", page.max,
               page.truncated ? "true" : "false", buf_str(&page.xml));
    buf_puts(out, "</ListPartsResult>");
    buf_free(&page.xml);
}

/* The bucket's uploads, by key and then by time, as S3 lists them. */
struct listed_upload {
    char *key;
    char id[33];
    int64_t started;
};

struct upload_list {
    const char *prefix;
    struct listed_upload *v;
    size_t n, room;
};

static void gather_upload(void *cls, const struct upload *u)
{
    struct upload_list *l = cls;
    if (!str_starts(u->key, l->prefix))
        return;
    if (l->n == l->room) {
        l->room = l->room ? l->room * 2 : 16;
        l->v = realloc(l->v, sizeof *l->v * l->room);
        if (!l->v)
            abort();
    }
    l->v[l->n] = (struct listed_upload){.key = str_copy(u->key), .started = u->started};
    memcpy(l->v[l->n++].id, u->id, sizeof u->id);
}

static int by_key_then_time(const void *a, const void *b)
{
    const struct listed_upload *x = a, *y = b;
    int c = strcmp(x->key, y->key);
    if (c == 0)
        c = (x->started > y->started) - (x->started < y->started);
    return c ? c : strcmp(x->id, y->id);
}

/* Past the marker's upload, which may have gone since: then past all of its key's. A marker that
 * ends in the delimiter is a common prefix, and what it stands for has been listed. */
static size_t first_after(const struct upload_list *l, const char *key, const char *id,
                          const char *delimiter)
{
    size_t i = 0;
    bool is_prefix = *delimiter && str_ends(key, delimiter);
    if (!*key)
        return 0;
    for (; i < l->n && *id; i++) {
        if (strcmp(l->v[i].key, key) == 0 && strcmp(l->v[i].id, id) == 0)
            return i + 1;
    }
    i = 0;
    while (i < l->n &&
           (strcmp(l->v[i].key, key) <= 0 || (is_prefix && str_starts(l->v[i].key, key))))
        i++;
    return i;
}

static void upload_name(struct buf *out, const char *element, const char *name, bool url)
{
    buf_printf(out, "<%s>", element);
    if (url)
        str_encode(out, name, true);
    else
        str_xml(out, name);
    buf_printf(out, "</%s>", element);
}

static void upload_element(struct buf *out, const struct listed_upload *u, bool url)
{
    char date[32];
    str_iso_date(date, u->started);
    buf_puts(out, "<Upload>");
    upload_name(out, "Key", u->key, url);
    s3_element(out, "UploadId", u->id);
    s3_owner(out, "Initiator");
    s3_owner(out, "Owner");
    buf_puts(out, "<StorageClass>STANDARD</StorageClass>");
    s3_element(out, "Initiated", date);
    buf_puts(out, "</Upload>");
}

/* One page as it is put together: uploads and common prefixes, and where it ended. */
struct upload_page {
    const char *prefix, *delimiter;
    bool url;
    struct buf uploads, prefixes;
    char *last_key;   /* an upload's key or a common prefix; owned */
    char last_id[33]; /* "" for a prefix */
    bool truncated;
};

static void fill_page(struct upload_page *p, const struct upload_list *l, size_t from, uint64_t max)
{
    for (size_t i = from; i < l->n; i++) {
        const struct listed_upload *u = &l->v[i];
        const char *d = *p->delimiter ? strstr(u->key + strlen(p->prefix), p->delimiter) : NULL;
        char *name =
            d ? strndup(u->key, (size_t)(d - u->key) + strlen(p->delimiter)) : str_copy(u->key);
        bool again = d && p->last_key && strcmp(name, p->last_key) == 0;
        if (!again && max-- == 0) {
            p->truncated = p->last_key != NULL;
            free(name);
            return;
        }
        if (!d) {
            upload_element(&p->uploads, u, p->url);
        } else if (!again) {
            buf_puts(&p->prefixes, "<CommonPrefixes>");
            upload_name(&p->prefixes, "Prefix", name, p->url);
            buf_puts(&p->prefixes, "</CommonPrefixes>");
        }
        free(p->last_key);
        p->last_key = name;
        snprintf(p->last_id, sizeof p->last_id, "%s", d ? "" : u->id);
    }
}

static void write_uploads(struct request *r, struct upload_page *p, uint64_t max)
{
    const char *key = request_query(r, "key-marker"), *id = request_query(r, "upload-id-marker");
    bool same = r->fault.same_token > 0 && key;
    struct buf *out = s3_xml(r);
    buf_puts(out, "<ListMultipartUploadsResult xmlns=\"" S3_XMLNS "\">");
    s3_element(out, "Bucket", r->bucket);
    upload_name(out, "Prefix", p->prefix, p->url);
    if (*p->delimiter)
        upload_name(out, "Delimiter", p->delimiter, p->url);
    if (p->url)
        s3_element(out, "EncodingType", "url");
    if (p->truncated && r->fault.no_token <= 0) {
        upload_name(out, "NextKeyMarker", same ? key : p->last_key, p->url);
        s3_element(out, "NextUploadIdMarker", same && id ? id : p->last_id);
    }
    buf_printf(out, "<MaxUploads>%" PRIu64 "</MaxUploads><IsTruncated>%s</IsTruncated>", max,
               p->truncated ? "true" : "false");
    buf_puts(out, buf_str(&p->uploads));
    buf_puts(out, buf_str(&p->prefixes));
    buf_puts(out, "</ListMultipartUploadsResult>");
}

static const char *query_text(const struct request *r, const char *name)
{
    const char *value = request_query(r, name);
    return value ? value : "";
}

void s3_list_uploads(struct request *r)
{
    if (!store_bucket_exists(&r->srv->store, r->bucket)) {
        s3_error(r, "NoSuchBucket");
        return;
    }
    uint64_t max = query_number(r, "max-uploads", 1000);
    struct upload_page p = {.prefix = query_text(r, "prefix"),
                            .delimiter = query_text(r, "delimiter"),
                            .url = request_query(r, "encoding-type") != NULL};
    struct upload_list l = {.prefix = p.prefix};
    max = max < 1000 ? max : 1000;
    buf_init(&p.uploads, 16 << 20);
    buf_init(&p.prefixes, 16 << 20);
    store_uploads(&r->srv->store, r->bucket, gather_upload, &l);
    if (l.n)
        qsort(l.v, l.n, sizeof *l.v, by_key_then_time);
    size_t from = first_after(&l, query_text(r, "key-marker"), query_text(r, "upload-id-marker"),
                              p.delimiter);
    fill_page(&p, &l, from, max);
    write_uploads(r, &p, max);
    for (size_t i = 0; i < l.n; i++)
        free(l.v[i].key);
    free(l.v);
    free(p.last_key);
    buf_free(&p.uploads);
    buf_free(&p.prefixes);
}
