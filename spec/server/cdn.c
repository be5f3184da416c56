/* The hub's CDN: files behind URLs that end, on a port of its own. */
#include "hub.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHOLE_MAX UINT64_C(50000000000) /* the real one refuses larger files without a range */

void cdn_sign(struct server *s, const char *path, int64_t expires, char hex[65])
{
    struct buf text;
    struct keys keys;
    unsigned char md[32];
    server_keys(s, &keys);
    buf_init(&text, 1 << 17);
    buf_printf(&text, "%s\n%" PRId64, path, expires);
    HMAC(EVP_sha256(), keys.cdn, sizeof keys.cdn, (const unsigned char *)buf_str(&text), text.len,
         md, NULL);
    str_hex(hex, md, sizeof md);
    buf_free(&text);
}

static void cdn_error(struct request *r, int status, const char *code)
{
    reply_s3_error(r, status, code, code, "");
}

static bool url_valid(const struct request *r)
{
    const char *expires = request_query(r, "Expires"), *given = request_query(r, "Signature");
    uint64_t end;
    char want[65];
    if (!given || !str_u64(expires, &end))
        return false;
    cdn_sign(r->srv, r->raw_path, (int64_t)end, want);
    return sigv4_same(want, given) && request_now(r) <= (int64_t)end;
}

static void send_file(struct request *r, struct hub_snapshot *s, const struct hub_file *f)
{
    char digest[65];
    if (hub_impostor(r, s, f))
        return;
    int fd = hub_open_file(s, f);
    if (fd < 0 || !hub_digest(&r->srv->hub, s, f, digest)) {
        cdn_error(r, 500, "InternalError");
    } else if (f->size > WHOLE_MAX && !request_header(r, "range") && request_is(r, "GET")) {
        cdn_error(r, 400, "EntityTooLarge");
    } else {
        struct content c = {.etag = digest,
                            .type = "application/octet-stream",
                            .mtime = f->mtime_ns / 1000000000,
                            .size = f->size,
                            .fd = fd};
        reply_content(r, &c, cdn_error);
    }
    if (fd >= 0)
        close(fd);
}

/* owner/name/commit/path */
static void run_get(struct request *r)
{
    char *repo = str_copy(r->path), *commit = repo;
    for (int i = 0; i < 2 && commit; i++) {
        commit = strchr(commit, '/');
        if (commit)
            commit++;
    }
    char *path = commit ? strchr(commit, '/') : NULL;
    struct hub_snapshot *s = NULL;
    const struct hub_file *f = NULL;
    if (path) {
        commit[-1] = *path++ = '\0';
        if (hub_find(&r->srv->hub, repo, commit, &s) == HUB_OK)
            f = hub_find_file(s, path);
    }
    if (f)
        send_file(r, s, f);
    else
        cdn_error(r, 404, "NoSuchKey");
    hub_unref(s);
    free(repo);
}

static const struct route get = {"Get", BODY_DROP, run_get};

static void apply_faults(struct request *r)
{
    char word[96];
    const char *name, *retry;
    if (r->fault.expire > 0) {
        cdn_error(r, 403, "AccessDenied");
    } else if (*r->fault.status) {
        int status = fault_status(&r->fault, word, &name, &retry);
        cdn_error(r, status, name ? name : "InternalError");
        if (retry)
            reply_header(r, "Retry-After", retry);
    }
}

const struct route *cdn_route(struct request *r)
{
    struct fault_target t = {SIDE_CDN, r->method, r->path, get.op};
    r->faulted = faults_match(&r->srv->faults, &t, &r->fault);
    if (request_header(r, "authorization")) {
        counters_count(&r->srv->counters, &r->srv->counters.auth_leaks);
        cdn_error(r, 400, "InvalidArgument");
        return &get;
    }
    apply_faults(r);
    if (!r->reply.status && !request_is(r, "GET") && !request_is(r, "HEAD"))
        cdn_error(r, 405, "MethodNotAllowed");
    if (!r->reply.status && !url_valid(r))
        cdn_error(r, 403, "AccessDenied");
    return &get;
}
