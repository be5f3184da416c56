/* S3: which operation a request is, whether it may, and what the operations share. */
#include "s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- errors --------------------------------------------------------------------------------- */

static const struct {
    const char *code;
    int status;
    const char *message;
} errors[] = {
    {"AccessDenied", 403, "Access Denied"},
    {"BadDigest", 400,
     "The Content-MD5 or checksum value that you specified did not match what the server "
     "received."},
    {"BucketAlreadyOwnedByYou", 409,
     "The bucket that you tried to create already exists, and you own it."},
    {"BucketNotEmpty", 409, "The bucket you tried to delete is not empty."},
    {"EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed size"},
    {"EntityTooSmall", 400, "Your proposed upload is smaller than the minimum allowed size"},
    {"ExpiredToken", 400, "The provided token has expired."},
    {"IncompleteBody", 400,
     "You did not provide the number of bytes specified by the Content-Length HTTP header"},
    {"InternalError", 500, "We encountered an internal error. Please try again."},
    {"InvalidArgument", 400, "Invalid Argument"},
    {"InvalidBucketName", 400, "The specified bucket is not valid."},
    {"InvalidDigest", 400, "The Content-MD5 you specified is not valid."},
    {"InvalidPart", 400,
     "One or more of the specified parts could not be found. The part might not have been "
     "uploaded, or the specified entity tag might not have matched the part's entity tag."},
    {"InvalidPartOrder", 400,
     "The list of parts was not in ascending order. The parts list must be specified in order by "
     "part number."},
    {"InvalidRange", 416, "The requested range is not satisfiable"},
    {"InvalidRequest", 400, "Invalid Request"},
    {"KeyTooLongError", 400, "Your key is too long"},
    {"MalformedTrailerError", 400,
     "The request contained trailing data that was not well-formed or did not conform to our "
     "published schema."},
    {"MalformedXML", 400,
     "The XML you provided was not well-formed or did not validate against our published schema"},
    {"MaxMessageLengthExceeded", 400, "Your request was too big."},
    {"MethodNotAllowed", 405, "The specified method is not allowed against this resource."},
    {"MissingContentLength", 411, "You must provide the Content-Length HTTP header."},
    {"NoSuchBucket", 404, "The specified bucket does not exist"},
    {"NoSuchKey", 404, "The specified key does not exist."},
    {"NoSuchUpload", 404,
     "The specified upload does not exist. The upload ID may be invalid, or the upload may have "
     "been aborted or completed."},
    {"NotImplemented", 501, "A header you provided implies functionality that is not implemented."},
    {"PermanentRedirect", 301,
     "The bucket you are attempting to access must be addressed using the specified endpoint. "
     "Please send all future requests to this endpoint."},
    {"PreconditionFailed", 412, "At least one of the pre-conditions you specified did not hold"},
    {"RequestTimeout", 400,
     "Your socket connection to the server was not read from or written to within the timeout "
     "period. Idle connections will be closed."},
    {"SignatureDoesNotMatch", 403,
     "The request signature we calculated does not match the signature you provided. Check your "
     "key and signing method."},
    {"SlowDown", 503, "Please reduce your request rate."},
    {"TooManyRequests", 429, "Please reduce your request rate."},
    {"XAmzContentSHA256Mismatch", 400,
     "The provided 'x-amz-content-sha256' header does not match what was computed."},
};

void s3_error_detail(struct request *r, const char *code, const char *detail)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (strcmp(errors[i].code, code) == 0) {
            reply_s3_error(r, errors[i].status, code, errors[i].message, detail);
            return;
        }
    }
    reply_s3_error(r, 500, code, "Error", detail);
}

void s3_error(struct request *r, const char *code)
{
    s3_error_detail(r, code, "");
}

void s3_store_error(struct request *r, enum store_result rc)
{
    static const char *const codes[] = {
        [STORE_OK] = "InternalError",
        [STORE_EXISTS] = "BucketAlreadyOwnedByYou",
        [STORE_NO_BUCKET] = "NoSuchBucket",
        [STORE_NO_KEY] = "NoSuchKey",
        [STORE_NO_UPLOAD] = "NoSuchUpload",
        [STORE_NOT_EMPTY] = "BucketNotEmpty",
        [STORE_PRECONDITION] = "PreconditionFailed",
        [STORE_INVALID_PART] = "InvalidPart",
        [STORE_INVALID_ORDER] = "InvalidPartOrder",
        [STORE_TOO_SMALL] = "EntityTooSmall",
    };
    s3_error(r, codes[rc]);
}

void s3_refuse_content(struct request *r, int status, const char *code)
{
    (void)status;
    s3_error(r, code);
}

/* --- XML ------------------------------------------------------------------------------------ */

struct buf *s3_xml(struct request *r)
{
    struct buf *out = reply_text(r, 200, "application/xml");
    buf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    return out;
}

void s3_element(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "<%s>", name);
    str_xml(out, value);
    buf_printf(out, "</%s>", name);
}

void s3_owner(struct buf *out, const char *element)
{
    buf_printf(out, "<%s><ID>ncdev</ID><DisplayName>ncdev</DisplayName></%s>", element, element);
}

/* --- writes --------------------------------------------------------------------------------- */

bool s3_condition(struct request *r, struct store_condition *cond, char etag[128])
{
    const char *none = request_header(r, "if-none-match"), *match = request_header(r, "if-match");
    if (r->fault.no_conditions > 0)
        none = match = NULL;
    *cond = (struct store_condition){.absent = none != NULL};
    if (none && strcmp(none, "*") != 0) {
        s3_error(r, "NotImplemented");
        return false;
    }
    if (!match)
        return true;
    size_t n = strlen(match);
    if (n >= 2 && match[0] == '"' && match[n - 1] == '"') {
        match++;
        n -= 2;
    }
    snprintf(etag, 128, "%.*s", (int)(n < 127 ? n : 127), match);
    cond->etag = etag;
    return true;
}

void s3_kept_headers(const struct request *r, struct pairs *out)
{
    static const char *const kept[] = {"content-type",        "cache-control",
                                       "content-disposition", "content-encoding",
                                       "content-language",    "expires"};
    for (size_t i = 0; i < r->headers.n; i++) {
        const struct pair *h = &r->headers.v[i];
        bool keep = strncasecmp(h->name, "x-amz-meta-", 11) == 0;
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
            keep = keep || strcasecmp(h->name, kept[k]) == 0;
        /* aws-chunked says how the body came, not what it is. */
        if (strcasecmp(h->name, "content-encoding") == 0 && str_starts(h->value, "aws-chunked")) {
            const char *rest = h->value + strlen("aws-chunked");
            rest += strspn(rest, ", ");
            if (*rest)
                pairs_add(out, h->name, rest);
            continue;
        }
        if (keep)
            pairs_add(out, h->name, h->value);
    }
}

/* --- which operation ------------------------------------------------------------------------ */

enum level { SERVICE, BUCKET, OBJECT };

static const struct s3_operation {
    const char *method;
    enum level level;
    const char *query;  /* a parameter that must be there; NULL: none */
    const char *header; /* likewise */
    struct route route;
} operations[] = {
    {"GET", SERVICE, NULL, NULL, {"ListBuckets", BODY_DROP, s3_list_buckets}},
    {"GET", BUCKET, "location", NULL, {"GetBucketLocation", BODY_DROP, s3_bucket_location}},
    {"GET", BUCKET, "versioning", NULL, {"GetBucketVersioning", BODY_DROP, s3_bucket_versioning}},
    {"GET", BUCKET, "uploads", NULL, {"ListMultipartUploads", BODY_DROP, s3_list_uploads}},
    {"GET", BUCKET, "list-type", NULL, {"ListObjectsV2", BODY_DROP, s3_list_v2}},
    {"GET", BUCKET, NULL, NULL, {"ListObjects", BODY_DROP, s3_list_v1}},
    {"HEAD", BUCKET, NULL, NULL, {"HeadBucket", BODY_DROP, s3_head_bucket}},
    {"PUT", BUCKET, NULL, NULL, {"CreateBucket", BODY_TEXT, s3_create_bucket}},
    {"DELETE", BUCKET, NULL, NULL, {"DeleteBucket", BODY_DROP, s3_delete_bucket}},
    {"POST", BUCKET, "delete", NULL, {"DeleteObjects", BODY_TEXT, s3_delete_objects}},
    {"GET", OBJECT, "uploadId", NULL, {"ListParts", BODY_DROP, s3_list_parts}},
    {"GET", OBJECT, NULL, NULL, {"GetObject", BODY_DROP, s3_get_object}},
    {"HEAD", OBJECT, NULL, NULL, {"HeadObject", BODY_DROP, s3_get_object}},
    {"PUT",
     OBJECT,
     "uploadId",
     "x-amz-copy-source",
     {"UploadPartCopy", BODY_DROP, s3_upload_part_copy}},
    {"PUT", OBJECT, "uploadId", NULL, {"UploadPart", BODY_BLOB, s3_upload_part}},
    {"PUT", OBJECT, NULL, "x-amz-copy-source", {"CopyObject", BODY_DROP, s3_copy_object}},
    {"PUT", OBJECT, NULL, NULL, {"PutObject", BODY_BLOB, s3_put_object}},
    {"POST", OBJECT, "uploads", NULL, {"CreateMultipartUpload", BODY_DROP, s3_create_upload}},
    {"POST", OBJECT, "uploadId", NULL, {"CompleteMultipartUpload", BODY_TEXT, s3_complete_upload}},
    {"DELETE", OBJECT, "uploadId", NULL, {"AbortMultipartUpload", BODY_DROP, s3_abort_upload}},
    {"DELETE", OBJECT, NULL, NULL, {"DeleteObject", BODY_DROP, s3_delete_object}},
};

/* Subresources that a bucket or an object has on AWS and not here. */
static const char *const unsupported[] = {"acl",
                                          "tagging",
                                          "policy",
                                          "cors",
                                          "lifecycle",
                                          "website",
                                          "logging",
                                          "notification",
                                          "replication",
                                          "encryption",
                                          "retention",
                                          "legal-hold",
                                          "torrent",
                                          "object-lock",
                                          "ownershipControls",
                                          "versions",
                                          "requestPayment",
                                          "accelerate",
                                          "policyStatus",
                                          "publicAccessBlock",
                                          "analytics",
                                          "inventory",
                                          "metrics",
                                          "intelligent-tiering",
                                          "attributes",
                                          "select",
                                          "restore"};

static const struct route not_implemented = {"NotImplemented", BODY_DROP, NULL};

static const struct route *find_operation(const struct request *r)
{
    enum level level = r->key ? OBJECT : r->bucket ? BUCKET : SERVICE;
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        if (request_query(r, unsupported[i]))
            return &not_implemented;
    }
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const struct s3_operation *o = &operations[i];
        if (o->level == level && request_is(r, o->method) &&
            (!o->query || request_query(r, o->query)) &&
            (!o->header || request_header(r, o->header)))
            return &o->route;
    }
    return &not_implemented;
}

/* bucket.localhost, bucket.<host=>: the bucket's length, 0 in path style. */
static size_t virtual_bucket(const struct request *r)
{
    const char *host = request_header(r, "host");
    size_t n = host ? strcspn(host, ":") : 0;
    const char *domains[] = {"localhost", r->srv->opt.host};
    for (size_t i = 0; i < 2; i++) {
        size_t m = strlen(domains[i]);
        if (n > m + 1 && host[n - m - 1] == '.' && strncasecmp(host + n - m, domains[i], m) == 0)
            return n - m - 1;
    }
    return 0;
}

/* Faults and the log know an object as bucket/key and a bucket as its name, however they came. */
static void name_path(struct request *r)
{
    struct buf name;
    buf_init(&name, 1 << 20);
    buf_printf(&name, "%s%s%s", r->bucket, r->key ? "/" : "", r->key ? r->key : "");
    char *path = buf_take(&name);
    if (path) {
        free(r->path);
        r->path = path;
    }
}

static void name_target(struct request *r)
{
    size_t n = virtual_bucket(r);
    const char *rest = r->path;
    if (n) {
        r->bucket = strndup(request_header(r, "host"), n);
    } else {
        n = strcspn(rest, "/");
        if (n)
            r->bucket = strndup(rest, n);
        rest += n + (rest[n] == '/');
    }
    if (r->bucket && *rest)
        r->key = str_copy(rest);
    if (r->bucket)
        name_path(r);
}

/* --- whether it may ------------------------------------------------------------------------- */

static bool verify(struct request *r)
{
    struct keys keys;
    server_keys(r->srv, &keys);
    struct sigv4_request q = {r->method, r->raw_path, r->raw_query, &r->headers};
    struct sigv4_keys k = {keys.access_key, keys.secret_key, keys.session_token,
                           r->srv->opt.region};
    struct sigv4_refusal no;
    bool ok = sigv4_verify(&q, &k, request_now(r), &r->sig, &no) == 0;
    if (!ok) {
        counters_count(&r->srv->counters, &r->srv->counters.rejected_signatures);
        reply_s3_error(r, no.status, no.code, no.message, buf_str(&no.detail));
    }
    buf_free(&no.detail);
    return ok;
}

static const char *code_of_status(int status)
{
    return status == 503   ? "SlowDown"
           : status == 429 ? "TooManyRequests"
           : status == 403 ? "AccessDenied"
           : status == 404 ? "NoSuchKey"
           : status >= 500 ? "InternalError"
                           : "InvalidRequest";
}

static void status_fault(struct request *r)
{
    char word[96];
    const char *code, *retry;
    int status = fault_status(&r->fault, word, &code, &retry);
    reply_s3_error(r, status, code ? code : code_of_status(status), "As the fault rule asks.", "");
    if (retry)
        reply_header(r, "Retry-After", retry);
}

static void early_close(struct request *r)
{
    s3_error(r, "AccessDenied");
    reply_header(r, "Connection", "close");
    r->refuse_now = true;
}

static void redirect_fault(struct request *r)
{
    struct buf detail;
    buf_init(&detail, 1024);
    s3_element(&detail, "Bucket", r->bucket ? r->bucket : "");
    s3_element(&detail, "Region", r->fault.redirect);
    s3_error_detail(r, "PermanentRedirect", buf_str(&detail));
    reply_header(r, "x-amz-bucket-region", r->fault.redirect);
    buf_free(&detail);
}

/* 200 and, after the blanks that keep the connection alive meanwhile, an error. */
static void ok_error_fault(struct request *r)
{
    struct buf *out = s3_xml(r);
    buf_puts(out, "\n   \n  <Error><Code>");
    str_xml(out, r->fault.ok_error);
    buf_printf(
        out, "</Code><Message>As the fault rule asks.</Message><RequestId>%llu</RequestId></Error>",
        (unsigned long long)r->id);
}

static void apply_faults(struct request *r)
{
    const struct fault *f = &r->fault;
    if (f->early_close > 0) {
        early_close(r);
    } else if (f->timeout_400 > 0) {
        s3_error(r, "RequestTimeout");
        reply_header(r, "Connection", "close");
    } else if (f->expired_token > 0) {
        reply_s3_error(r, 400, "ExpiredToken", "The provided token has expired.", "");
    } else if (*f->redirect) {
        redirect_fault(r);
    } else if (*f->status) {
        status_fault(r);
    } else if (*f->ok_error) {
        ok_error_fault(r);
    } else if (f->empty_ok > 0) {
        reply_empty(r, 200);
    } else if (f->login_page > 0) {
        buf_puts(reply_text(r, 200, "text/html"), "<html><body>Please log in.</body></html>\n");
    }
}

static void check_key(struct request *r)
{
    if (r->key && strlen(r->key) > 1024)
        s3_error(r, "KeyTooLongError");
}

const struct route *s3_route(struct request *r)
{
    name_target(r);
    const struct route *route = find_operation(r);
    struct fault_target t = {SIDE_S3, r->method, r->path, route->op};
    r->faulted = faults_match(&r->srv->faults, &t, &r->fault);
    if (!verify(r))
        return route;
    apply_faults(r);
    if (!r->reply.status)
        check_key(r);
    if (!r->reply.status && !route->run)
        s3_error(r, request_is(r, "GET") || request_is(r, "PUT") ? "NotImplemented"
                                                                 : "MethodNotAllowed");
    return route;
}
