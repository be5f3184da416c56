#include "s3/s3_xml.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "s3/xml_read.h"

/* ---- errors ---- */

bool s3_code_retryable(const char *code)
{
    static const char *const codes[] = {
        "InternalError",    "SlowDown",   "ServiceUnavailable",  "RequestTimeout",
        "OperationAborted", "Throttling", "ThrottlingException", "RequestLimitExceeded",
        "TooManyRequests",  "Busy",       "BadDigest",           "XAmzContentSHA256Mismatch",
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(code, codes[i]) == 0)
            return true;
    }
    return false;
}

static void copy_field(const xmlNode *node, const char *name, char *out, size_t size)
{
    const char *text = xml_child_text(node, name);
    snprintf(out, size, "%s", text ? text : "");
}

static int read_error(const xmlNode *root, struct s3_error *out, struct nc_err *err)
{
    *out = (struct s3_error){0};
    copy_field(root, "Code", out->code, sizeof out->code);
    if (!*out->code)
        return xml_malformed(err, "it is an error without a %s", "Code");
    copy_field(root, "Message", out->message, sizeof out->message);
    copy_field(root, "Region", out->region, sizeof out->region);
    copy_field(root, "Endpoint", out->endpoint, sizeof out->endpoint);
    copy_field(root, xml_child(root, "BucketName") ? "BucketName" : "Bucket", out->bucket,
               sizeof out->bucket);
    copy_field(root, "Key", out->key, sizeof out->key);
    copy_field(root, "UploadId", out->upload_id, sizeof out->upload_id);
    copy_field(root, "RequestId", out->request_id, sizeof out->request_id);
    const char *time = xml_child_text(root, "ServerTime");
    if (time)
        text_iso_date(time, &out->server_time);
    return 0;
}

int s3_xml_error(const char *body, size_t len, struct s3_error *out, struct nc_err *err)
{
    *out = (struct s3_error){0};
    xmlDocPtr doc;
    if (xml_document(body, len, &doc, err))
        return -1;
    const xmlNode *root = xmlDocGetRootElement(doc);
    int rc = xml_is(root, "Error")
                 ? read_error(root, out, err)
                 : xml_malformed(err, "it is a %s, not an Error", (char *)root->name);
    xmlFreeDoc(doc);
    return rc;
}

/* An <Error> as the error it is. */
static int pass_error(const xmlNode *node, struct nc_err *err)
{
    struct s3_error error;
    if (read_error(node, &error, err))
        return -1;
    nc_err_set(err, error.code, "%s%s%s", error.code, *error.message ? ": " : "", error.message);
    if (err)
        err->retryable = s3_code_retryable(error.code);
    return -1;
}

/* Reads a document whose root has one of the names; an <Error> becomes *err. */
static int read_result(const char *body, size_t len, const char *const *names, xmlDocPtr *doc,
                       struct nc_err *err)
{
    if (xml_document(body, len, doc, err))
        return -1;
    const xmlNode *root = xmlDocGetRootElement(*doc);
    for (; *names; names++) {
        if (xml_is(root, *names))
            return 0;
    }
    /* STS wraps its errors once more. */
    const xmlNode *error = xml_is(root, "ErrorResponse") ? xml_child(root, "Error") : root;
    int rc = 0;
    if (error && xml_is(error, "Error"))
        rc = pass_error(error, err);
    else
        rc = xml_malformed(err, "it is a %s", xml_name(root));
    xmlFreeDoc(*doc);
    *doc = NULL;
    return rc;
}

/* ---- results with lists ---- */

static int read_object(const xmlNode *node, bool encoded, struct s3_object *out, struct nc_err *err)
{
    return xml_take_key(node, "Key", encoded, &out->key, err) ||
                   xml_take_u64(node, "Size", &out->size, err) ||
                   xml_take_optional(node, "ETag", &out->etag, err) ||
                   xml_take_date(node, "LastModified", &out->modified, err)
               ? -1
               : 0;
}

static int read_listing(const xmlNode *root, struct s3_listing *out, struct nc_err *err)
{
    bool encoded = xml_keys_encoded(root);
    out->objects = calloc(xml_count(root, "Contents") + 1, sizeof *out->objects);
    out->prefixes = calloc(xml_count(root, "CommonPrefixes") + 1, sizeof *out->prefixes);
    if (!out->objects || !out->prefixes)
        return xml_no_memory(err);
    for (const xmlNode *c = root->children; c; c = c->next) {
        int rc = 0;
        if (xml_is(c, "Contents"))
            rc = read_object(c, encoded, &out->objects[out->object_count++], err);
        else if (xml_is(c, "CommonPrefixes"))
            rc = xml_take_key(c, "Prefix", encoded, &out->prefixes[out->prefix_count++], err);
        if (rc)
            return -1;
    }
    if (xml_take_bool(root, "IsTruncated", &out->truncated, err) ||
        xml_take_optional(root, "NextContinuationToken", &out->next_token, err))
        return -1;
    if (out->truncated && (!out->next_token || !*out->next_token))
        return xml_malformed(err, "it says that there is more, without a %s",
                             "NextContinuationToken");
    return 0;
}

int s3_xml_listing(const char *body, size_t len, struct s3_listing *out, struct nc_err *err)
{
    static const char *const names[] = {"ListBucketResult", NULL};
    *out = (struct s3_listing){0};
    xmlDocPtr doc;
    if (read_result(body, len, names, &doc, err))
        return -1;
    int rc = read_listing(xmlDocGetRootElement(doc), out, err);
    xmlFreeDoc(doc);
    return rc;
}

void s3_listing_free(struct s3_listing *l)
{
    for (size_t i = 0; i < l->object_count; i++) {
        free(l->objects[i].key);
        free(l->objects[i].etag);
    }
    for (size_t i = 0; i < l->prefix_count; i++)
        free(l->prefixes[i]);
    free(l->objects);
    free(l->prefixes);
    free(l->next_token);
    *l = (struct s3_listing){0};
}

static int read_part(const xmlNode *node, struct s3_part *out, struct nc_err *err)
{
    uint64_t number = 0;
    if (xml_take_u64(node, "PartNumber", &number, err))
        return -1;
    if (number < 1 || number > 10000)
        return xml_malformed(err, "a %s is not from 1 to 10000", "PartNumber");
    out->number = (unsigned)number;
    return xml_take_u64(node, "Size", &out->size, err) ||
                   xml_take_text(node, "ETag", &out->etag, err) ||
                   xml_take_date(node, "LastModified", &out->modified, err)
               ? -1
               : 0;
}

static int read_parts(const xmlNode *root, struct s3_parts *out, struct nc_err *err)
{
    uint64_t next = 0;
    out->parts = calloc(xml_count(root, "Part") + 1, sizeof *out->parts);
    if (!out->parts)
        return xml_no_memory(err);
    unsigned last = 0;
    for (const xmlNode *c = root->children; c; c = c->next) {
        if (!xml_is(c, "Part"))
            continue;
        struct s3_part *part = &out->parts[out->count++];
        if (read_part(c, part, err))
            return -1;
        if (part->number <= last)
            return xml_malformed(err, "its %ss are not in order", "Part");
        last = part->number;
    }
    if (xml_take_bool(root, "IsTruncated", &out->truncated, err))
        return -1;
    if (!out->truncated)
        return 0;
    if (xml_take_u64(root, "NextPartNumberMarker", &next, err))
        return -1;
    if (next == 0 || next < last || next > 10000)
        return xml_malformed(err, "its %s leads nowhere", "NextPartNumberMarker");
    out->next_marker = (unsigned)next;
    return 0;
}

int s3_xml_parts(const char *body, size_t len, struct s3_parts *out, struct nc_err *err)
{
    static const char *const names[] = {"ListPartsResult", NULL};
    *out = (struct s3_parts){0};
    xmlDocPtr doc;
    if (read_result(body, len, names, &doc, err))
        return -1;
    int rc = read_parts(xmlDocGetRootElement(doc), out, err);
    xmlFreeDoc(doc);
    return rc;
}

void s3_parts_free(struct s3_parts *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->parts[i].etag);
    free(p->parts);
    *p = (struct s3_parts){0};
}

static int read_uploads(const xmlNode *root, struct s3_uploads *out, struct nc_err *err)
{
    bool encoded = xml_keys_encoded(root);
    out->uploads = calloc(xml_count(root, "Upload") + 1, sizeof *out->uploads);
    if (!out->uploads)
        return xml_no_memory(err);
    for (const xmlNode *c = root->children; c; c = c->next) {
        if (!xml_is(c, "Upload"))
            continue;
        struct s3_upload *upload = &out->uploads[out->count++];
        if (xml_take_key(c, "Key", encoded, &upload->key, err) ||
            xml_take_text(c, "UploadId", &upload->upload_id, err) ||
            xml_take_date(c, "Initiated", &upload->initiated, err))
            return -1;
    }
    if (xml_take_bool(root, "IsTruncated", &out->truncated, err))
        return -1;
    if (!out->truncated)
        return 0;
    if (xml_take_key(root, "NextKeyMarker", encoded, &out->next_key, err) ||
        xml_take_text(root, "NextUploadIdMarker", &out->next_upload_id, err))
        return -1;
    if (!*out->next_key)
        return xml_malformed(err, "it says that there is more, without a %s", "NextKeyMarker");
    return 0;
}

int s3_xml_uploads(const char *body, size_t len, struct s3_uploads *out, struct nc_err *err)
{
    static const char *const names[] = {"ListMultipartUploadsResult", NULL};
    *out = (struct s3_uploads){0};
    xmlDocPtr doc;
    if (read_result(body, len, names, &doc, err))
        return -1;
    int rc = read_uploads(xmlDocGetRootElement(doc), out, err);
    xmlFreeDoc(doc);
    return rc;
}

void s3_uploads_free(struct s3_uploads *u)
{
    for (size_t i = 0; i < u->count; i++) {
        free(u->uploads[i].key);
        free(u->uploads[i].upload_id);
    }
    free(u->uploads);
    free(u->next_key);
    free(u->next_upload_id);
    *u = (struct s3_uploads){0};
}

static int read_buckets(const xmlNode *root, struct s3_buckets *out, struct nc_err *err)
{
    const xmlNode *list = xml_child(root, "Buckets");
    if (!list)
        return xml_malformed(err, "it has no %s", "Buckets");
    out->buckets = calloc(xml_count(list, "Bucket") + 1, sizeof *out->buckets);
    if (!out->buckets)
        return xml_no_memory(err);
    for (const xmlNode *c = list->children; c; c = c->next) {
        if (!xml_is(c, "Bucket"))
            continue;
        struct s3_bucket *bucket = &out->buckets[out->count++];
        if (xml_take_text(c, "Name", &bucket->name, err) ||
            xml_take_date(c, "CreationDate", &bucket->created, err))
            return -1;
    }
    return 0;
}

int s3_xml_buckets(const char *body, size_t len, struct s3_buckets *out, struct nc_err *err)
{
    static const char *const names[] = {"ListAllMyBucketsResult", NULL};
    *out = (struct s3_buckets){0};
    xmlDocPtr doc;
    if (read_result(body, len, names, &doc, err))
        return -1;
    int rc = read_buckets(xmlDocGetRootElement(doc), out, err);
    xmlFreeDoc(doc);
    return rc;
}

void s3_buckets_free(struct s3_buckets *b)
{
    for (size_t i = 0; i < b->count; i++)
        free(b->buckets[i].name);
    free(b->buckets);
    *b = (struct s3_buckets){0};
}

static int read_failures(const xmlNode *root, struct s3_delete_failures *out, struct nc_err *err)
{
    out->failures = calloc(xml_count(root, "Error") + 1, sizeof *out->failures);
    if (!out->failures)
        return xml_no_memory(err);
    for (const xmlNode *c = root->children; c; c = c->next) {
        if (!xml_is(c, "Error"))
            continue;
        struct s3_delete_failure *failure = &out->failures[out->count++];
        if (xml_take_text(c, "Key", &failure->key, err) ||
            xml_take_text(c, "Code", &failure->code, err) ||
            xml_take_optional(c, "Message", &failure->message, err))
            return -1;
        if (!failure->message && !(failure->message = strdup("")))
            return xml_no_memory(err);
    }
    return 0;
}

int s3_xml_deleted(const char *body, size_t len, struct s3_delete_failures *out, struct nc_err *err)
{
    static const char *const names[] = {"DeleteResult", NULL};
    *out = (struct s3_delete_failures){0};
    xmlDocPtr doc;
    if (read_result(body, len, names, &doc, err))
        return -1;
    int rc = read_failures(xmlDocGetRootElement(doc), out, err);
    xmlFreeDoc(doc);
    return rc;
}

void s3_delete_failures_free(struct s3_delete_failures *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->failures[i].key);
        free(f->failures[i].code);
        free(f->failures[i].message);
    }
    free(f->failures);
    *f = (struct s3_delete_failures){0};
}

/* ---- results with one value ---- */

static int read_text(const char *body, size_t len, const char *const *names, const char *field,
                     char **out, struct nc_err *err)
{
    *out = NULL;
    xmlDocPtr doc;
    if (read_result(body, len, names, &doc, err))
        return -1;
    int rc = xml_take_text(xmlDocGetRootElement(doc), field, out, err);
    xmlFreeDoc(doc);
    return rc;
}

static int read_value(const char *body, size_t len, const char *const *names, const char *field,
                      char **out, struct nc_err *err)
{
    int rc = read_text(body, len, names, field, out, err);
    if (*out && !**out) {
        free(*out);
        *out = NULL;
        rc = xml_malformed(err, "its %s is empty", field);
    }
    return rc;
}

int s3_xml_upload_id(const char *body, size_t len, char **upload_id, struct nc_err *err)
{
    static const char *const names[] = {"InitiateMultipartUploadResult", NULL};
    return read_value(body, len, names, "UploadId", upload_id, err);
}

int s3_xml_complete(const char *body, size_t len, char **etag, struct nc_err *err)
{
    static const char *const names[] = {"CompleteMultipartUploadResult", NULL};
    return read_text(body, len, names, "ETag", etag, err);
}

int s3_xml_copy(const char *body, size_t len, char **etag, struct nc_err *err)
{
    static const char *const names[] = {"CopyObjectResult", "CopyPartResult", NULL};
    return read_value(body, len, names, "ETag", etag, err);
}

int s3_xml_location(const char *body, size_t len, char region[64], struct nc_err *err)
{
    static const char *const names[] = {"LocationConstraint", "CreateBucketConfiguration", NULL};
    xmlDocPtr doc;
    if (read_result(body, len, names, &doc, err))
        return -1;
    /* Some servers wrap the element in another of the same name. */
    const xmlNode *root = xmlDocGetRootElement(doc);
    const xmlNode *inner = xml_child(root, "LocationConstraint");
    const char *text = xml_text(inner ? inner : root);
    int rc = text ? 0 : xml_malformed(err, "its %s is no text", "LocationConstraint");
    if (text && strcmp(text, "EU") == 0)
        text = "eu-west-1";
    if (text)
        snprintf(region, 64, "%s", *text ? text : "us-east-1");
    xmlFreeDoc(doc);
    return rc;
}

static int read_sts(const xmlNode *root, struct sts_keys *out, struct nc_err *err)
{
    const xmlNode *result = root->children;
    while (result && !(result->type == XML_ELEMENT_NODE && xml_child(result, "Credentials")))
        result = result->next;
    if (!result)
        return xml_malformed(err, "it has no %s", "Credentials");
    const xmlNode *keys = xml_child(result, "Credentials");
    return xml_take_text(keys, "AccessKeyId", &out->access, err) ||
                   xml_take_text(keys, "SecretAccessKey", &out->secret, err) ||
                   xml_take_text(keys, "SessionToken", &out->token, err) ||
                   xml_take_date(keys, "Expiration", &out->expires, err)
               ? -1
               : 0;
}

int s3_xml_sts(const char *body, size_t len, struct sts_keys *out, struct nc_err *err)
{
    static const char *const names[] = {"AssumeRoleWithWebIdentityResponse", "AssumeRoleResponse",
                                        NULL};
    *out = (struct sts_keys){0};
    xmlDocPtr doc;
    if (read_result(body, len, names, &doc, err))
        return -1;
    int rc = read_sts(xmlDocGetRootElement(doc), out, err);
    xmlFreeDoc(doc);
    return rc;
}

void sts_keys_free(struct sts_keys *k)
{
    if (k->secret)
        OPENSSL_cleanse(k->secret, strlen(k->secret));
    free(k->access);
    free(k->secret);
    free(k->token);
    *k = (struct sts_keys){0};
}

/* ---- request bodies ---- */

int s3_xml_escape(struct buf *out, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '&':
            buf_puts(out, "&amp;");
            break;
        case '<':
            buf_puts(out, "&lt;");
            break;
        case '>':
            buf_puts(out, "&gt;");
            break;
        case '"':
            buf_puts(out, "&quot;");
            break;
        case '\t': /* as references, or a parser turns them into other blanks */
        case '\n':
        case '\r':
            buf_printf(out, "&#%d;", *s);
            break;
        default:
            if ((unsigned char)*s < 0x20)
                return -1;
            buf_putc(out, *s);
        }
    }
    return out->failed ? -1 : 0;
}

static const char xml_namespace[] = "http://s3.amazonaws.com/doc/2006-03-01/";

int s3_xml_build_complete(struct buf *out, const struct s3_part *parts, size_t count)
{
    buf_printf(out, "<CompleteMultipartUpload xmlns=\"%s\">", xml_namespace);
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "<Part><PartNumber>%u</PartNumber><ETag>", parts[i].number);
        if (s3_xml_escape(out, parts[i].etag))
            return -1;
        buf_puts(out, "</ETag></Part>");
    }
    return buf_puts(out, "</CompleteMultipartUpload>");
}

int s3_xml_build_delete(struct buf *out, const char *const *keys, size_t count)
{
    /* Quiet: the answer lists failures only. */
    buf_printf(out, "<Delete xmlns=\"%s\"><Quiet>true</Quiet>", xml_namespace);
    for (size_t i = 0; i < count; i++) {
        buf_puts(out, "<Object><Key>");
        if (s3_xml_escape(out, keys[i]))
            return -1;
        buf_puts(out, "</Key></Object>");
    }
    return buf_puts(out, "</Delete>");
}
