/* The life of a request:
 *
 *   request line -> struct request; headers in -> side, route, faults, signature (may refuse);
 *   body pieces -> body_take; body in -> run the route; answer -> MHD; over -> counted and logged.
 *
 * A refusal waits for the body to be read, unless the client said Expect: 100-continue: a client
 * that is still sending would see a broken pipe in place of the reason. */
#include "front.h"

#include "base/clock.h"
#include "request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* Half of it is the read buffer: bodies come in pieces of up to 32 KiB. Libmicrohttpd clears all of
 * it for each request, which in larger ones takes longer than to answer a small one. */
#define MEMORY_PER_CONNECTION ((size_t)64 << 10)
#define MAX_CONNECTIONS 4000u

struct listener {
    struct server *srv;
    bool is_cdn;
    int fd; /* the socket until the daemon has it, then -1 */
    struct MHD_Daemon *daemon;
};

struct front {
    struct listener listeners[2];
    char *cert, *key; /* PEM text, NULL: plain http */
};

/* --- the connection ------------------------------------------------------------------------- */

static int socket_of(const struct request *r)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    return i ? i->connect_fd : -1;
}

/* Dissolving the association is what makes Linux send a reset at once; SO_LINGER would wait for
 * close(), before which MHD has already said goodbye with a FIN. */
void request_drop(struct request *r)
{
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    (void)connect(socket_of(r), &nobody, sizeof nobody);
}

void request_wait_hangup(struct request *r)
{
    while (!atomic_load(&r->srv->stopping)) {
        struct pollfd p = {.fd = socket_of(r), .events = POLLRDHUP};
        if (poll(&p, 1, 100) != 0)
            return;
    }
}

/* Bytes the peer's kernel has, of all that this connection sent. */
uint64_t request_acked(const struct request *r)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    return getsockopt(socket_of(r), IPPROTO_TCP, TCP_INFO, &info, &n)
               ? 0
               : (uint64_t)info.tcpi_bytes_acked;
}

bool request_from_loopback(const struct request *r)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!i || i->client_addr->sa_family != AF_INET)
        return false;
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)i->client_addr;
    return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
}

/* --- asking --------------------------------------------------------------------------------- */

const char *request_header(const struct request *r, const char *name)
{
    return pairs_get(&r->headers, name);
}

const char *request_query(const struct request *r, const char *name)
{
    return pairs_get(&r->query, name);
}

int64_t request_now(const struct request *r)
{
    return server_now(r->srv) + (r->fault.clock != FAULT_UNSET ? r->fault.clock : 0);
}

bool request_is(const struct request *r, const char *method)
{
    return strcmp(r->method, method) == 0;
}

bool request_is_head(const struct request *r)
{
    return request_is(r, "HEAD");
}

/* http://HOST:PORT as the client named this machine, so that it can come back. */
void request_base_url(const struct request *r, uint16_t port, struct buf *out)
{
    const char *host = request_header(r, "host");
    size_t n = host ? strcspn(host, ":") : 0;
    buf_printf(out, "%s://", r->srv->opt.tls_cert ? "https" : "http");
    if (n)
        buf_add(out, host, n);
    else
        buf_puts(out, r->srv->opt.host);
    buf_printf(out, ":%u", port);
}

/* --- beginning ------------------------------------------------------------------------------ */

static void *request_new(void *cls, const char *uri, struct MHD_Connection *conn)
{
    struct listener *l = cls;
    struct request *r = str_alloc(sizeof *r);
    r->srv = l->srv;
    r->conn = conn;
    r->id = atomic_fetch_add(&l->srv->next_id, 1) + 1;
    r->side = l->is_cdn ? SIDE_CDN : SIDE_S3;
    r->uri = str_copy(uri);
    r->start_ms = clock_ms();
    return r;
}

static enum MHD_Result add_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    (void)kind;
    pairs_add(cls, name, value ? value : "");
    return MHD_YES;
}

/* False where the path can't be used at all. */
static bool parse_target(struct request *r)
{
    r->raw_path = r->uri;
    char *mark = strchr(r->uri, '?');
    r->raw_query = mark ? mark + 1 : r->uri + strlen(r->uri);
    if (mark)
        *mark = '\0';
    pairs_parse(&r->query, r->raw_query);
    MHD_get_connection_values(r->conn, MHD_HEADER_KIND, add_header, &r->headers);
    const char *path = r->raw_path + (*r->raw_path == '/');
    r->path = str_decode(path, strlen(path), false);
    return r->path != NULL;
}

static const struct route *find_route(struct request *r)
{
    if (r->side == SIDE_CDN)
        return cdn_route(r);
    if (admin_claims(r)) {
        r->side = SIDE_ADMIN;
        return admin_route(r);
    }
    if (hub_claims(r)) {
        r->side = SIDE_HUB;
        return hub_route(r);
    }
    return s3_route(r);
}

static const struct route unroutable = {"Unknown", BODY_DROP, NULL};

static void begin(struct request *r)
{
    r->acked_before = request_acked(r);
    fault_none(&r->fault);
    if (!parse_target(r)) {
        reply_s3_error(r, 400, "InvalidURI", "Couldn't parse the specified URI.", "");
        r->route = &unroutable;
    } else {
        r->route = find_route(r);
    }
    throttle_init(&r->slow, r->fault.slow > 0 ? (uint64_t)r->fault.slow : 0);
    body_start(r, r->reply.status ? BODY_DROP : r->route->body);
}

/* --- the body, and the end ------------------------------------------------------------------ */

/* Faults that end an upload in its middle. True: the connection is gone. */
static bool upload_cut(struct request *r)
{
    if (r->body.kind != BODY_BLOB)
        return false;
    if (r->fault.stall >= 0 && r->body.raw >= (uint64_t)r->fault.stall) {
        request_wait_hangup(r);
        return true;
    }
    if (r->fault.reset > 0 && r->body.raw >= (uint64_t)r->fault.reset) {
        request_drop(r);
        return true;
    }
    return false;
}

static enum MHD_Result finish(struct request *r)
{
    body_end(r);
    if (r->fault.accept_stall > 0) {
        request_wait_hangup(r);
        return MHD_NO;
    }
    if (!r->reply.status)
        r->route->run(r);
    if (r->fault.lost_answer > 0) {
        request_drop(r);
        return MHD_NO;
    }
    return reply_send(r);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *conn, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **state)
{
    (void)cls, (void)conn, (void)url, (void)version;
    struct request *r = *state;
    if (!r->started) {
        r->started = true;
        r->method = method;
        begin(r);
        if (r->side != SIDE_ADMIN)
            counters_begin(&r->srv->counters);
        if (r->fault.reset == 0) {
            request_drop(r);
            return MHD_NO;
        }
        const char *expect = request_header(r, "expect");
        bool waits = expect && strcasecmp(expect, "100-continue") == 0;
        return r->reply.status && (r->refuse_now || waits) ? reply_send(r) : MHD_YES;
    }
    if (*size == 0)
        return finish(r);
    body_take(r, data, *size);
    *size = 0;
    return upload_cut(r) ? MHD_NO : MHD_YES;
}

static void log_request(struct request *r, bool whole)
{
    uint64_t out = r->sent, part = 0;
    if (!whole && request_acked(r) - r->acked_before < out)
        out = request_acked(r) - r->acked_before; /* sendfile does not say how far it came */
    struct counters_entry e = {
        .number = r->id,
        .side = r->side,
        .op = r->route ? r->route->op : "Unknown",
        .path = str_copy(r->path ? r->path : r->uri),
        .range = str_copy(request_header(r, "range")),
        .upload = str_copy(request_query(r, "uploadId")),
        .status = r->reply.status,
        .in = r->body.raw,
        .out = out,
        .start_ms = r->start_ms - r->srv->counters.since_ms,
        .ms = clock_ms() - r->start_ms,
        .aborted = !whole,
        .faulted = r->faulted,
    };
    if (!e.range)
        e.range = str_copy(request_header(r, "x-amz-copy-source-range"));
    if (str_u64(request_query(r, "partNumber"), &part) && part <= STORE_MAX_PART)
        e.part = (unsigned)part;
    snprintf(e.method, sizeof e.method, "%s", r->method);
    counters_add(&r->srv->counters, &e);
}

static void request_done(void *cls, struct MHD_Connection *conn, void **state,
                         enum MHD_RequestTerminationCode how)
{
    (void)cls, (void)conn;
    struct request *r = *state;
    if (!r)
        return;
    *state = NULL;
    if (r->started) {
        if (r->side != SIDE_ADMIN)
            log_request(r, how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
        throttle_free(&r->slow);
    }
    body_free(&r->body);
    reply_free(&r->reply);
    pairs_free(&r->query);
    pairs_free(&r->headers);
    free(r->path);
    free(r->bucket);
    free(r->key);
    free(r->uri);
    free(r);
}

/* --- the ports ------------------------------------------------------------------------------ */

static void connection_changed(void *cls, struct MHD_Connection *conn, void **state,
                               enum MHD_ConnectionNotificationCode code)
{
    (void)conn, (void)state;
    struct listener *l = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        counters_count(&l->srv->counters, &l->srv->counters.connections[l->is_cdn]);
}

/* Paths stay as they came: the signature is over the encoded form. */
static size_t keep_escapes(void *cls, struct MHD_Connection *conn, char *s)
{
    (void)cls, (void)conn;
    return strlen(s);
}

static char *read_pem(const char *path, struct nc_err *err)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        nc_err_sys(err, errno, "open %s", path);
        return NULL;
    }
    struct buf text;
    buf_init(&text, 1 << 20);
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(&text, piece, n);
    fclose(f);
    char *s = buf_take(&text);
    if (!s)
        nc_err_set(err, "Usage", "%s: too large to be a PEM file", path);
    return s;
}

/* A bound socket and its port, before any thread can ask for it. -1 on error. */
static int bind_port(const char *host, uint16_t port, uint16_t *bound, struct nc_err *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t n = sizeof at;
    int on = 1;
    if (inet_pton(AF_INET, host, &at.sin_addr) != 1)
        return nc_err_set(err, "Usage", "host=%s: an IPv4 address is wanted", host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&at, &n)) {
        nc_err_sys(err, errno, "listen on %s:%u", host, port);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *bound = ntohs(at.sin_port);
    return fd;
}

static int serve_on(struct front *f, struct listener *l, struct nc_err *err)
{
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, f->cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, f->key},
                                   {MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ITC | MHD_USE_SUPPRESS_DATE_NO_CLOCK |
                     (f->cert ? MHD_USE_TLS : 0);
    l->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, l, MHD_OPTION_LISTEN_SOCKET, l->fd,
        MHD_OPTION_URI_LOG_CALLBACK, request_new, l, MHD_OPTION_NOTIFY_COMPLETED, request_done, l,
        MHD_OPTION_NOTIFY_CONNECTION, connection_changed, l, MHD_OPTION_UNESCAPE_CALLBACK,
        keep_escapes, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_PER_CONNECTION,
        MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)l->srv->opt.idle_s, MHD_OPTION_ARRAY, f->cert ? tls : tls + 2, MHD_OPTION_END);
    if (!l->daemon)
        return nc_err_set(err, "Failed", "the HTTP server can't start%s",
                          f->cert ? "; are tls_cert= and tls_key= a pair?" : "");
    l->fd = -1;
    return 0;
}

int front_start(struct front **out, struct server *s, struct nc_err *err)
{
    struct front *f = str_alloc(sizeof *f);
    const struct options *o = &s->opt;
    struct listener *here = &f->listeners[0], *cdn = &f->listeners[1];
    *here = (struct listener){.srv = s, .fd = -1};
    *cdn = (struct listener){.srv = s, .fd = -1, .is_cdn = true};
    bool pem = !o->tls_cert ||
               ((f->cert = read_pem(o->tls_cert, err)) && (f->key = read_pem(o->tls_key, err)));
    if (!pem || (here->fd = bind_port(o->host, (uint16_t)o->port, &s->port, err)) < 0 ||
        (cdn->fd = bind_port(o->host, (uint16_t)o->cdn_port, &s->cdn_port, err)) < 0 ||
        serve_on(f, cdn, err) || serve_on(f, here, err)) {
        front_stop(f);
        return -1;
    }
    *out = f;
    return 0;
}

void front_stop(struct front *f)
{
    for (size_t i = 0; i < 2; i++) {
        if (f->listeners[i].daemon)
            MHD_stop_daemon(f->listeners[i].daemon);
        if (f->listeners[i].fd >= 0)
            close(f->listeners[i].fd);
    }
    free(f->cert);
    free(f->key);
    free(f);
}
