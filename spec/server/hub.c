/* The hub: revisions, trees, and resolving files, as Hugging Face's answers them. */
#include "hub.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- errors and who may ----------------------------------------------------------------------- */

static void rate_header(struct request *r)
{
    const char *kind = strstr(r->path, "/resolve/") ? "resolvers" : "api";
    reply_headerf(r, "RateLimit", "\"%s\";r=%d;t=300", kind, *kind == 'a' ? 499 : 2999);
}

static void hub_error(struct request *r, int status, const char *code, const char *message)
{
    reply_clear(r);
    struct buf *out = reply_text(r, status, "application/json; charset=utf-8");
    buf_puts(out, "{\"error\":");
    str_json(out, message);
    buf_puts(out, "}");
    if (*code)
        reply_header(r, "X-Error-Code", code);
    reply_header(r, "X-Error-Message", message);
    rate_header(r);
}

static void refuse_content(struct request *r, int status, const char *code)
{
    hub_error(r, status, "", code);
}

static const char *bearer(const struct request *r)
{
    const char *auth = request_header(r, "authorization");
    return auth && strncasecmp(auth, "Bearer ", 7) == 0 ? auth + 7 : auth;
}

/* False: replied. */
static bool token_allowed(struct request *r)
{
    const char *token = bearer(r), *valid = r->srv->opt.hf_token;
    if (!token || !valid || sigv4_same(token, valid))
        return true;
    hub_error(r, 401, "", "Invalid credentials in Authorization header");
    return false;
}

static void repo_not_found(struct request *r)
{
    if (bearer(r))
        hub_error(r, 404, "RepoNotFound", "Repository not found");
    else
        hub_error(r, 401, "RepoNotFound", "Invalid username or password.");
}

static void gated(struct request *r, const char *repo)
{
    char message[640];
    snprintf(message, sizeof message,
             "Access to model %.200s is restricted and you are not in the authorized list. Visit "
             "https://huggingface.co/%.200s to ask for access.",
             repo, repo);
    hub_error(r, bearer(r) ? 403 : 401, "GatedRepo", message);
}

/* --- what was asked for ----------------------------------------------------------------------- */

/* api/models/owner/name[/revision|tree/REV[/path]] or owner/name/resolve/REV/path. */
struct asked {
    char *repo;
    char *verb; /* "revision", "tree", "resolve" */
    char *rev;
    char *path; /* "" none */
};

static char *take_segment(const char **at)
{
    size_t n = strcspn(*at, "/");
    char *s = str_alloc(n + 1);
    memcpy(s, *at, n);
    *at += n + ((*at)[n] == '/');
    return s;
}

/* A revision may hold an encoded slash, so segments are cut before they are decoded. */
static char *decoded(char *s)
{
    char *out = str_decode(s, strlen(s), false);
    free(s);
    return out ? out : str_copy("");
}

static void parse_asked(const struct request *r, struct asked *a)
{
    const char *at = r->raw_path + 1;
    bool api = str_starts(at, "api/models/");
    at += api ? strlen("api/models/") : 0;
    char *owner = decoded(take_segment(&at)), *name = decoded(take_segment(&at));
    struct buf repo;
    buf_init(&repo, 1 << 16);
    buf_printf(&repo, "%s/%s", owner, name);
    a->repo = buf_take(&repo);
    if (!a->repo)
        a->repo = str_copy("");
    a->verb = decoded(take_segment(&at));
    a->rev = decoded(take_segment(&at));
    a->path = decoded(str_copy(at));
    free(owner);
    free(name);
}

static void asked_free(struct asked *a)
{
    free(a->repo);
    free(a->verb);
    free(a->rev);
    free(a->path);
}

static void moved(struct request *r, const struct asked *a, const struct hub_snapshot *s)
{
    struct buf to;
    buf_init(&to, 1 << 16);
    const char *rest = strstr(r->raw_path, a->repo);
    bool api = str_starts(r->raw_path, "/api/models/");
    buf_printf(&to, "%s/%s%s", api ? "/api/models" : "", s->moved,
               rest ? rest + strlen(a->repo) : "");
    if (*r->raw_query)
        buf_printf(&to, "?%s", r->raw_query);
    buf_printf(reply_text(r, 307, "text/plain"), "Temporary Redirect. Redirecting to %s",
               buf_str(&to));
    reply_header(r, "Location", buf_str(&to)); /* relative: the same host */
    rate_header(r);
    buf_free(&to);
}

/* A reference to the snapshot asked for, or NULL: replied. */
static struct hub_snapshot *open_asked(struct request *r, const struct asked *a)
{
    struct hub_snapshot *s;
    enum hub_result rc = hub_find(&r->srv->hub, a->repo, *a->rev ? a->rev : "main", &s);
    if (!s || (s->is_private && !bearer(r)))
        repo_not_found(r);
    else if (s->moved)
        moved(r, a, s);
    else if (s->gated)
        gated(r, a->repo);
    else if (rc == HUB_NO_REVISION)
        hub_error(r, 404, "RevisionNotFound", "Invalid rev id");
    if (!r->reply.status)
        return s;
    hub_unref(s);
    return NULL;
}

/* --- revision --------------------------------------------------------------------------------- */

static void run_revision(struct request *r)
{
    struct asked a;
    parse_asked(r, &a);
    struct hub_snapshot *s = open_asked(r, &a);
    if (s) {
        struct buf *out = reply_text(r, 200, "application/json; charset=utf-8");
        buf_puts(out, "{\"_id\":\"ncdev\",\"id\":");
        str_json(out, a.repo);
        buf_puts(out, ",\"modelId\":");
        str_json(out, a.repo);
        buf_printf(out, ",\"sha\":\"%s\",\"private\":%s,\"gated\":false,\"siblings\":[", s->commit,
                   s->is_private ? "true" : "false");
        for (size_t i = 0; i < s->n; i++) {
            buf_puts(out, i ? ",{\"rfilename\":" : "{\"rfilename\":");
            str_json(out, s->files[i].path);
            buf_putc(out, '}');
        }
        buf_puts(out, "]}");
        rate_header(r);
    }
    hub_unref(s);
    asked_free(&a);
}

/* --- tree ------------------------------------------------------------------------------------- */

/* An entry is a file, or the folder that the first `folder` bytes of its path name. */
struct entry {
    const struct hub_file *file;
    size_t folder; /* 0: the file itself */
};

struct tree {
    struct entry *v;
    size_t n, room;
};

static void add_entry(struct tree *t, const struct hub_file *file, size_t folder)
{
    if (t->n == t->room) {
        t->room = t->room ? t->room * 2 : 64;
        t->v = realloc(t->v, sizeof *t->v * t->room);
        if (!t->v)
            abort();
    }
    t->v[t->n++] = (struct entry){file, folder};
}

/* Folders come before what is in them, each once: files are sorted, so a folder is new where the
 * file before does not share it. */
static void gather(struct tree *t, const struct hub_snapshot *s, const char *under, bool recursive)
{
    size_t skip = strlen(under);
    const char *before = "";
    for (size_t i = 0; i < s->n; i++) {
        const struct hub_file *f = &s->files[i];
        if (skip && (strncmp(f->path, under, skip) != 0 || f->path[skip] != '/'))
            continue;
        const char *start = f->path + (skip ? skip + 1 : 0), *slash = strchr(start, '/');
        for (; slash; slash = recursive ? strchr(slash + 1, '/') : NULL) {
            size_t n = (size_t)(slash - f->path);
            if (strncmp(before, f->path, n + 1) != 0)
                add_entry(t, f, n);
        }
        if (recursive || !strchr(start, '/'))
            add_entry(t, f, 0);
        before = f->path;
    }
}

static void folder_json(struct buf *out, const struct entry *e)
{
    char *path = strndup(e->file->path, e->folder), oid[41];
    hub_blob_sha1(path, e->folder, oid);
    buf_printf(out, "{\"type\":\"directory\",\"oid\":\"%s\",\"size\":0,\"path\":", oid);
    str_json(out, path);
    buf_putc(out, '}');
    free(path);
}

static bool file_json(struct request *r, struct buf *out, const struct hub_snapshot *s,
                      const struct hub_file *f)
{
    char digest[65], pointer[256], oid[65];
    if (!hub_digest(&r->srv->hub, s, f, digest))
        return false;
    size_t n = hub_pointer(pointer, digest, f->size);
    if (f->lfs)
        hub_blob_sha1(pointer, n, oid);
    else
        memcpy(oid, digest, sizeof oid);
    buf_printf(out, "{\"type\":\"file\",\"oid\":\"%s\",\"size\":%" PRIu64, oid, f->size);
    if (f->lfs)
        buf_printf(out, ",\"lfs\":{\"oid\":\"%s\",\"size\":%" PRIu64 ",\"pointerSize\":%zu}",
                   digest, f->size, n);
    buf_puts(out, ",\"path\":");
    str_json(out, f->path);
    buf_putc(out, '}');
    return true;
}

static void next_link(struct request *r, size_t next, uint64_t limit)
{
    struct buf url;
    buf_init(&url, 1 << 16);
    buf_putc(&url, '<');
    request_base_url(r, r->srv->port, &url);
    const char *recursive = request_query(r, "recursive");
    buf_printf(&url, "%s?recursive=%s&limit=%" PRIu64 "&cursor=%zx>; rel=\"next\"", r->raw_path,
               recursive && strcmp(recursive, "true") == 0 ? "true" : "false", limit, next);
    reply_header(r, "Link", buf_str(&url));
    buf_free(&url);
}

/* A name that no folder could hold, for clients to refuse. */
static void added_json(const struct request *r, struct buf *out)
{
    char *name = str_decode(r->fault.add_key, strlen(r->fault.add_key), false);
    buf_puts(out, "{\"type\":\"file\",\"oid\":\"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\","
                  "\"size\":0,\"path\":");
    if (name)
        str_json(out, name);
    else
        buf_puts(out, "\"a\\u0000b\"");
    buf_puts(out, "}");
    free(name);
}

static void write_tree(struct request *r, const struct hub_snapshot *s, const struct tree *t)
{
    uint64_t limit = r->srv->opt.page, asked;
    if (str_u64(request_query(r, "limit"), &asked) && asked && asked < limit)
        limit = asked;
    const char *cursor = request_query(r, "cursor");
    size_t from = cursor ? strtoul(cursor, NULL, 16) : 0;
    from = from < t->n ? from : t->n;
    size_t end = t->n - from > limit ? from + (size_t)limit : t->n;
    struct buf *out = reply_text(r, 200, "application/json; charset=utf-8");
    buf_putc(out, '[');
    for (size_t i = from; i < end; i++) {
        if (i > from)
            buf_putc(out, ',');
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): all below n are filled */
        if (t->v[i].folder) {
            folder_json(out, &t->v[i]);
        } else if (!file_json(r, out, s, t->v[i].file)) {
            hub_error(r, 500, "", "Internal Error - a file can't be read");
            return;
        }
    }
    if (*r->fault.add_key) {
        buf_puts(out, end > from ? "," : "");
        added_json(r, out);
    }
    buf_putc(out, ']');
    if (end < t->n && r->fault.no_token <= 0)
        next_link(r, r->fault.same_token > 0 ? from : end, limit);
    rate_header(r);
}

static void run_tree(struct request *r)
{
    struct asked a;
    struct tree t = {0};
    parse_asked(r, &a);
    struct hub_snapshot *s = open_asked(r, &a);
    if (s) {
        const char *recursive = request_query(r, "recursive");
        gather(&t, s, a.path, recursive && (!strcmp(recursive, "true") || !strcmp(recursive, "1")));
        if (t.n == 0 && *a.path)
            hub_error(r, 404, "EntryNotFound", "Path not found");
        else
            write_tree(r, s, &t);
    }
    free(t.v);
    hub_unref(s);
    asked_free(&a);
}

/* --- resolve ---------------------------------------------------------------------------------- */

bool hub_impostor(struct request *r, struct hub_snapshot *s, const struct hub_file *f)
{
    char digest[65], pointer[256];
    if (r->fault.login_page > 0) {
        buf_puts(reply_text(r, 200, "text/html"), "<html><body>Please log in.</body></html>\n");
        return true;
    }
    if (r->fault.pointer <= 0)
        return false;
    if (!f->lfs || !hub_digest(&r->srv->hub, s, f, digest))
        memset(digest, '0', 64), digest[64] = '\0';
    size_t n = hub_pointer(pointer, digest, f->size);
    buf_add(reply_text(r, 200, "text/plain; charset=utf-8"), pointer, n);
    return true;
}

static void redirect_to_cdn(struct request *r, const struct asked *a, const struct hub_snapshot *s,
                            const struct hub_file *f, const char *sha256)
{
    struct buf path, url;
    char signature[65];
    int64_t expires = request_now(r) + r->srv->opt.expires_s;
    buf_init(&path, 1 << 16);
    buf_init(&url, 1 << 17);
    buf_printf(&path, "/%s/%s/", a->repo, s->commit);
    str_encode(&path, f->path, true);
    cdn_sign(r->srv, buf_str(&path), expires, signature);
    request_base_url(r, r->srv->cdn_port, &url);
    buf_printf(&url, "%s?Expires=%" PRId64 "&Signature=%s&Key-Pair-Id=ncdev", buf_str(&path),
               expires, signature);
    buf_printf(reply_text(r, 302, "text/plain; charset=utf-8"), "Found. Redirecting to %s",
               buf_str(&url));
    reply_header(r, "Location", buf_str(&url));
    reply_headerf(r, "X-Linked-Size", "%" PRIu64, f->size);
    reply_headerf(r, "X-Linked-ETag", "\"%s\"", sha256);
    buf_free(&path);
    buf_free(&url);
}

static void send_small(struct request *r, const struct hub_snapshot *s, const struct hub_file *f,
                       const char *sha1)
{
    int fd = hub_open_file(s, f);
    struct content c = {.etag = sha1,
                        .type = "text/plain; charset=utf-8",
                        .mtime = f->mtime_ns / 1000000000,
                        .size = f->size,
                        .fd = fd};
    if (fd < 0) {
        hub_error(r, 500, "", "Internal Error - the file can't be read");
        return;
    }
    reply_content(r, &c, refuse_content);
    close(fd);
}

static void run_resolve(struct request *r)
{
    struct asked a;
    char digest[65];
    parse_asked(r, &a);
    struct hub_snapshot *s = open_asked(r, &a);
    const struct hub_file *f = s ? hub_find_file(s, a.path) : NULL;
    if (s && !f)
        hub_error(r, 404, "EntryNotFound", "Entry not found");
    else if (f && !hub_digest(&r->srv->hub, s, f, digest))
        hub_error(r, 500, "", "Internal Error - the file can't be read");
    else if (f && !(!f->lfs && hub_impostor(r, s, f))) {
        if (f->lfs)
            redirect_to_cdn(r, &a, s, f, digest);
        else
            send_small(r, s, f, digest);
        reply_header(r, "X-Repo-Commit", s->commit);
    }
    rate_header(r);
    hub_unref(s);
    asked_free(&a);
}

/* --- routing ---------------------------------------------------------------------------------- */

static void run_unknown(struct request *r)
{
    hub_error(r, 404, "", "Sorry, we can't find the page you are looking for.");
}

/* Who a token is; as with the hub itself, nobody without one. */
static void run_whoami(struct request *r)
{
    if (!bearer(r))
        hub_error(r, 401, "", "Invalid username or password.");
    else
        buf_puts(reply_text(r, 200, "application/json; charset=utf-8"),
                 "{\"type\":\"user\",\"name\":\"ncdev\"}");
    rate_header(r);
}

static const struct route revision = {"Revision", BODY_DROP, run_revision},
                          whoami = {"Whoami", BODY_DROP, run_whoami},
                          tree = {"Tree", BODY_DROP, run_tree},
                          resolve = {"Resolve", BODY_DROP, run_resolve},
                          unknown = {"Unknown", BODY_DROP, run_unknown};

/* Unsigned requests of the hub's shapes; a bucket may be called "api" all the same. */
bool hub_claims(const struct request *r)
{
    struct sigv4_request q = {r->method, r->raw_path, r->raw_query, &r->headers};
    if (sigv4_present(&q))
        return false;
    if (str_starts(r->path, "api/models/") || strcmp(r->path, "api/whoami-v2") == 0)
        return true;
    const char *name = strchr(r->path, '/'), *verb = name ? strchr(name + 1, '/') : NULL;
    return verb && str_starts(verb, "/resolve/");
}

static void apply_faults(struct request *r)
{
    char word[96];
    const char *name, *retry;
    if (r->fault.early_close > 0) {
        hub_error(r, 403, "", "Forbidden");
        reply_header(r, "Connection", "close");
        r->refuse_now = true;
    } else if (r->fault.expired_token > 0) {
        hub_error(r, 401, "", "Invalid credentials in Authorization header");
    } else if (r->fault.empty_ok > 0) {
        reply_empty(r, 200);
    } else if (*r->fault.status) {
        int status = fault_status(&r->fault, word, &name, &retry);
        hub_error(r, status, name ? name : "", "As the fault rule asks.");
        if (retry)
            reply_header(r, "Retry-After", retry);
        if (status == 429)
            reply_headerf(r, "RateLimit", "\"api\";r=0;t=%s", retry ? retry : "1");
    }
}

const struct route *hub_route(struct request *r)
{
    struct asked a;
    const struct route *route = &unknown;
    parse_asked(r, &a);
    if (!request_is(r, "GET") && !request_is(r, "HEAD"))
        route = &unknown;
    else if (strcmp(r->path, "api/whoami-v2") == 0)
        route = &whoami;
    else if (!*a.verb || strcmp(a.verb, "revision") == 0)
        route = &revision;
    else if (strcmp(a.verb, "tree") == 0)
        route = &tree;
    else if (strcmp(a.verb, "resolve") == 0)
        route = &resolve;
    asked_free(&a);
    struct fault_target t = {SIDE_HUB, r->method, r->path, route->op};
    r->faulted = faults_match(&r->srv->faults, &t, &r->fault);
    apply_faults(r);
    if (!r->reply.status)
        token_allowed(r);
    return route;
}
