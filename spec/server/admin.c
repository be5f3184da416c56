/* What specs ask of the server itself, under /-/ and from loopback only; and the places where
 * credentials come from in the cloud: STS for web identity, the container endpoint, and an
 * instance metadata service (version 2). */
#include "request.h"

#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refuse(struct request *r, int status, const char *message)
{
    reply_clear(r);
    buf_printf(reply_text(r, status, "text/plain"), "%s\n", message);
}

static struct buf *json(struct request *r)
{
    return reply_text(r, 200, "application/json");
}

/* --- counters, rules, keys -------------------------------------------------------------------- */

static void run_counters(struct request *r)
{
    counters_settle(&r->srv->counters);
    counters_json(&r->srv->counters, json(r));
}

static void run_log(struct request *r)
{
    counters_settle(&r->srv->counters);
    counters_log_json(&r->srv->counters, json(r));
}

static void run_reset(struct request *r)
{
    counters_reset(&r->srv->counters, r->id);
    reply_empty(r, 204);
}

static void run_faults_get(struct request *r)
{
    faults_json(&r->srv->faults, json(r));
}

static void run_faults_set(struct request *r)
{
    struct nc_err err;
    if (faults_replace(&r->srv->faults, buf_str(&r->body.text), &err))
        refuse(r, 400, err.message);
    else
        reply_empty(r, 204);
}

static void run_faults_delete(struct request *r)
{
    faults_replace(&r->srv->faults, "", NULL);
    reply_empty(r, 204);
}

static void take(char *to, size_t room, const char *value)
{
    if (value)
        snprintf(to, room, "%s", value);
}

/* New S3 keys where the query names some; else a new key of the CDN, which ends all its URLs. */
static void run_rotate(struct request *r)
{
    struct keys *k = &r->srv->keys;
    pthread_mutex_lock(&r->srv->keys_lock);
    if (r->query.n == 0)
        RAND_bytes(k->cdn, sizeof k->cdn);
    take(k->access_key, sizeof k->access_key, request_query(r, "access_key"));
    take(k->secret_key, sizeof k->secret_key, request_query(r, "secret_key"));
    take(k->session_token, sizeof k->session_token, request_query(r, "session_token"));
    pthread_mutex_unlock(&r->srv->keys_lock);
    reply_empty(r, 204);
}

/* Each direction of S3 and of the CDN may move so many bytes a second; 0 lifts the limit. */
static void run_rate(struct request *r)
{
    uint64_t rate;
    const char *bytes = request_query(r, "bytes");
    if (!bytes || !str_size(bytes, &rate)) {
        refuse(r, 400, "?bytes= wants bytes a second, with k, m or g if you like");
        return;
    }
    for (int way = 0; way < 2; way++) {
        throttle_set(&r->srv->rate[SIDE_S3][way], rate);
        throttle_set(&r->srv->rate[SIDE_CDN][way], rate);
    }
    reply_empty(r, 204);
}

static void upload_json(void *cls, const struct upload *u)
{
    struct buf *out = cls;
    uint64_t bytes = 0;
    for (size_t i = 0; i < u->count; i++)
        bytes += u->parts[i]->size;
    if (out->data[out->len - 1] != '[')
        buf_putc(out, ',');
    buf_printf(out, "{\"id\":\"%s\",\"bucket\":", u->id);
    str_json(out, u->bucket);
    buf_puts(out, ",\"key\":");
    str_json(out, u->key);
    buf_printf(out, ",\"started\":%" PRId64 ",\"parts\":%zu,\"bytes\":%" PRIu64 "}", u->started,
               u->count, bytes);
}

static void run_uploads(struct request *r)
{
    struct buf *out = json(r);
    buf_putc(out, '[');
    store_uploads(&r->srv->store, NULL, upload_json, out);
    buf_puts(out, "]\n");
}

/* --- credentials ------------------------------------------------------------------------------ */

static void expiration(const struct request *r, char out[32])
{
    str_iso_date(out, request_now(r) + r->srv->opt.sts_expires_s);
    memcpy(out + 19, "Z", 2); /* without the milliseconds: some parsers want none */
}

static void keys_json(struct request *r, const char *head)
{
    struct keys k;
    char date[32];
    server_keys(r->srv, &k);
    expiration(r, date);
    struct buf *out = json(r);
    buf_printf(out, "{%s\"AccessKeyId\":", head);
    str_json(out, k.access_key);
    buf_puts(out, ",\"SecretAccessKey\":");
    str_json(out, k.secret_key);
    buf_puts(out, ",\"Token\":");
    str_json(out, k.session_token);
    buf_printf(out, ",\"Expiration\":\"%s\"}", date);
}

static void run_container(struct request *r)
{
    const char *want = r->srv->opt.container_token, *given = request_header(r, "authorization");
    if (want && (!given || !sigv4_same(want, given)))
        refuse(r, 401, "the Authorization header is not container_token=");
    else
        keys_json(r, "");
}

static void sts_error(struct request *r, int status, const char *code, const char *message)
{
    struct buf *out = reply_text(r, status, "text/xml");
    buf_puts(out, "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>"
                  "<Type>Sender</Type>");
    buf_printf(out, "<Code>%s</Code><Message>%s</Message></Error></ErrorResponse>", code, message);
}

static void element(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "<%s>", name);
    str_xml(out, value);
    buf_printf(out, "</%s>", name);
}

/* Parameters come in the query or in a form body. */
static const char *sts_parameter(const struct request *r, const struct pairs *form,
                                 const char *name)
{
    const char *value = pairs_get(form, name);
    return value ? value : request_query(r, name);
}

static void run_sts(struct request *r)
{
    struct pairs form = {0};
    pairs_parse(&form, buf_str(&r->body.text));
    const char *action = sts_parameter(r, &form, "Action");
    const char *role = sts_parameter(r, &form, "RoleArn");
    const char *token = sts_parameter(r, &form, "WebIdentityToken");
    if (!action || strcmp(action, "AssumeRoleWithWebIdentity") != 0) {
        sts_error(r, 400, "InvalidAction", "Could not find operation");
    } else if (!role || !*role || !token || !*token) {
        sts_error(r, 400, "ValidationError", "RoleArn and WebIdentityToken are required");
    } else {
        struct keys k;
        char date[32];
        server_keys(r->srv, &k);
        expiration(r, date);
        struct buf *out = reply_text(r, 200, "text/xml");
        buf_puts(out, "<AssumeRoleWithWebIdentityResponse "
                      "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
                      "<AssumeRoleWithWebIdentityResult><AssumedRoleUser><AssumedRoleId>"
                      "NCDEV:session</AssumedRoleId>");
        element(out, "Arn", role);
        buf_puts(out, "</AssumedRoleUser><Credentials>");
        element(out, "AccessKeyId", k.access_key);
        element(out, "SecretAccessKey", k.secret_key);
        element(out, "SessionToken", k.session_token);
        element(out, "Expiration", date);
        buf_puts(out, "</Credentials></AssumeRoleWithWebIdentityResult><ResponseMetadata>"
                      "<RequestId>ncdev</RequestId></ResponseMetadata>"
                      "</AssumeRoleWithWebIdentityResponse>");
    }
    pairs_free(&form);
}

#define METADATA_TOKEN "ncdev-metadata-token"
#define METADATA_ROLE "ncdev-role"

static void run_metadata_token(struct request *r)
{
    const char *ttl = request_header(r, "x-aws-ec2-metadata-token-ttl-seconds");
    if (!ttl) {
        refuse(r, 400, "X-aws-ec2-metadata-token-ttl-seconds is missing");
        return;
    }
    buf_puts(reply_text(r, 200, "text/plain"), METADATA_TOKEN);
    reply_header(r, "X-aws-ec2-metadata-token-ttl-seconds", ttl);
}

static void run_metadata(struct request *r)
{
    const char *token = request_header(r, "x-aws-ec2-metadata-token");
    const char *path = r->path + strlen("latest/meta-data/");
    if (!token || strcmp(token, METADATA_TOKEN) != 0)
        refuse(r, 401, "no valid token");
    else if (strcmp(path, "iam/security-credentials/") == 0)
        buf_puts(reply_text(r, 200, "text/plain"), METADATA_ROLE);
    else if (strcmp(path, "iam/security-credentials/" METADATA_ROLE) == 0)
        keys_json(r, "\"Code\":\"Success\",\"Type\":\"AWS-HMAC\",");
    else if (strcmp(path, "placement/region") == 0)
        buf_puts(reply_text(r, 200, "text/plain"), r->srv->opt.region);
    else
        refuse(r, 404, "not found");
}

static void run_unknown(struct request *r)
{
    refuse(r, 404, "ncdev has no such page; see ncdev help");
}

/* --- routing ---------------------------------------------------------------------------------- */

static const struct {
    const char *method, *path;
    struct route route;
    const char *help;
} pages[] = {
    {"GET",
     "-/counters",
     {"Counters", BODY_DROP, run_counters},
     "requests, errors and body bytes by side and operation; auth_leaks, rejected_signatures"},
    {"GET", "-/log", {"Log", BODY_DROP, run_log}, "the last 100000 requests, oldest first"},
    {"POST", "-/reset", {"Reset", BODY_DROP, run_reset}, "zeroes counters and log"},
    {"GET",
     "-/faults",
     {"Faults", BODY_DROP, run_faults_get},
     "the rules, and how often each matched and acted"},
    {"POST",
     "-/faults",
     {"Faults", BODY_TEXT, run_faults_set},
     "replaces the rules by the body's lines"},
    {"DELETE", "-/faults", {"Faults", BODY_DROP, run_faults_delete}, "no rules"},
    {"POST",
     "-/rotate",
     {"Rotate", BODY_DROP, run_rotate},
     "?access_key=&secret_key=&session_token= are the keys now; without them, CDN URLs end"},
    {"POST", "-/rate", {"Rate", BODY_DROP, run_rate}, "?bytes=N is the rate= option from now on"},
    {"GET", "-/uploads", {"Uploads", BODY_DROP, run_uploads}, "multipart uploads under way"},
    {"GET",
     "-/container",
     {"Container", BODY_DROP, run_container},
     "credentials, as a container's endpoint gives them"},
    {"GET", "-/sts", {"Sts", BODY_DROP, run_sts}, "AssumeRoleWithWebIdentity"},
    {"POST", "-/sts", {"Sts", BODY_TEXT, run_sts}, "the same with a form"},
    {"PUT",
     "latest/api/token",
     {"MetadataToken", BODY_DROP, run_metadata_token},
     "instance metadata, version 2; then GET latest/meta-data/..."},
};

#define PAGES (sizeof pages / sizeof *pages)

void admin_help(struct buf *out)
{
    buf_puts(out, "\npages, from loopback only:\n");
    for (size_t i = 0; i < PAGES; i++)
        buf_printf(out, "  %-6s /%-16s %s\n", pages[i].method, pages[i].path, pages[i].help);
}

static const struct route metadata = {"Metadata", BODY_DROP, run_metadata},
                          unknown = {"Unknown", BODY_DROP, run_unknown};

/* "-" and "latest" are too short, or unsigned where they ask for metadata, to be buckets. */
bool admin_claims(const struct request *r)
{
    return str_starts(r->path, "-/") || ((str_starts(r->path, "latest/meta-data/") ||
                                          strcmp(r->path, "latest/api/token") == 0) &&
                                         !request_header(r, "authorization"));
}

const struct route *admin_route(struct request *r)
{
    if (!request_from_loopback(r)) {
        refuse(r, 403, "from loopback only");
        return &unknown;
    }
    for (size_t i = 0; i < PAGES; i++) {
        size_t n = strlen(pages[i].path);
        bool here = strncmp(r->path, pages[i].path, n) == 0 &&
                    (r->path[n] == '\0' || strcmp(r->path + n, "/") == 0);
        if (here && request_is(r, pages[i].method))
            return &pages[i].route;
    }
    return str_starts(r->path, "latest/meta-data/") ? &metadata : &unknown;
}
