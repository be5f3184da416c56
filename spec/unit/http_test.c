/* The HTTP pool against a server in this process that does, by path, what servers do in the field.
 */
#include "net/http.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit.h"

enum { BODY = 4000, LARGE = 3 * 1024 * 1024, HANG_MS = 20 * 1000 };

/* ---- a name with many addresses ---- */

enum { ADDRESSES = 4 };
static atomic_uint lookups, visits[ADDRESSES];

/* In place of the C library's: many.test is 127.0.0.1 to 127.0.0.4, always in this order. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!node || strcmp(node, "many.test") != 0)
        return real(node, service, hints, out);
    atomic_fetch_add(&lookups, 1);
    for (int i = 1; i <= ADDRESSES; i++) {
        char address[32];
        snprintf(address, sizeof address, "127.0.0.%d", i);
        int rc = real(address, service, hints, out);
        if (rc)
            return rc;
        out = &(*out)->ai_next;
    }
    return 0;
}

/* ---- the server ---- */

struct call {
    int fd;
    unsigned nth;     /* request to this path, from 1 */
    unsigned on_conn; /* request on this connection, from 1 */
    char method[16], path[64], range[64];
    size_t body_len; /* announced */
    size_t got;      /* read of it */
    bool intact;     /* and as it was sent */
};

static int listener;
static unsigned short port;
static char body[LARGE];
static atomic_bool closing; /* handlers that only wait go home */
static atomic_uint connections;

static void say(int fd, const char *text)
{
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void say_body(int fd, size_t from, size_t len)
{
    while (len) {
        ssize_t n = send(fd, body + from, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        from += (size_t)n;
        len -= (size_t)n;
    }
}

static void say_length(int fd, const char *status, size_t len)
{
    char head[128];
    snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", status, len);
    say(fd, head);
}

/* Until the other side closes, or the test is over. */
static void linger(int fd)
{
    char c;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (!atomic_load(&closing)) {
        if (poll(&p, 1, 50) == 1 && recv(fd, &c, 1, 0) <= 0)
            return;
    }
}

static bool whole(struct call *c)
{
    say_length(c->fd, "200 OK", BODY);
    if (strcmp(c->method, "HEAD") != 0)
        say_body(c->fd, 0, BODY);
    return true;
}

static bool cut_once(struct call *c)
{
    say_length(c->fd, "200 OK", BODY);
    say_body(c->fd, 0, c->nth == 1 ? 100 : BODY);
    return c->nth > 1;
}

static bool cut(struct call *c)
{
    say_length(c->fd, "200 OK", BODY);
    say_body(c->fd, 0, 100);
    return false;
}

static bool chunks_cut(struct call *c)
{
    say(c->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    return false;
}

static bool chunks(struct call *c)
{
    say(c->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Name:  two words \t\r\n\r\n"
               "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
    return true;
}

static bool head_cut(struct call *c)
{
    say(c->fd, "HTTP/1.1 200 OK\r\nConte");
    return false;
}

static bool garbage(struct call *c)
{
    say(c->fd, "SSH-2.0-OpenSSH_9.2\r\n");
    return false;
}

static bool nothing(struct call *c)
{
    (void)c;
    return false;
}

static bool too_long(struct call *c)
{
    say_length(c->fd, "200 OK", BODY + 1);
    say_body(c->fd, 0, BODY + 1);
    return true;
}

static bool too_short(struct call *c)
{
    say_length(c->fd, "200 OK", BODY - 1);
    say_body(c->fd, 0, BODY - 1);
    return true;
}

static bool range(struct call *c)
{
    say(c->fd, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 1000-4999/9000\r\n"
               "Content-Length: 4000\r\n\r\n");
    say_body(c->fd, 1000, BODY);
    return true;
}

static bool other_range(struct call *c)
{
    say(c->fd, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-3999/9000\r\n"
               "Content-Length: 4000\r\n\r\n");
    say_body(c->fd, 0, BODY);
    return true;
}

static bool no_range(struct call *c)
{
    say_length(c->fd, "206 Partial Content", BODY);
    say_body(c->fd, 1000, BODY);
    return true;
}

static bool stall(struct call *c)
{
    say_length(c->fd, "200 OK", BODY);
    say_body(c->fd, 0, 100);
    linger(c->fd);
    return false;
}

static bool silent(struct call *c)
{
    linger(c->fd);
    return false;
}

/* step bytes every 100 ms. */
static bool trickle(struct call *c, size_t step)
{
    say_length(c->fd, "200 OK", BODY);
    for (size_t at = 0; at < BODY && !atomic_load(&closing); at += step) {
        say_body(c->fd, at, BODY - at < step ? BODY - at : step);
        usleep(100 * 1000);
    }
    return true;
}

static bool too_slow(struct call *c)
{
    return trickle(c, 50);
}

static bool silent_once(struct call *c)
{
    return c->nth > 1 ? whole(c) : silent(c);
}

/* Answers nobody before all guests are there. */
static atomic_uint guests;
static bool meet(struct call *c);

static bool slow(struct call *c)
{
    return trickle(c, 200);
}

static bool large(struct call *c)
{
    say_length(c->fd, "200 OK", c->body_len ? 0 : LARGE);
    say_body(c->fd, 0, c->body_len ? 0 : LARGE);
    return true;
}

static bool empty(struct call *c)
{
    say_length(c->fd, "200 OK", 0);
    return true;
}

static bool busy_once(struct call *c)
{
    if (c->nth > 1)
        return whole(c);
    say(c->fd, "HTTP/1.1 503 Slow Down\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    return true;
}

static bool broken(struct call *c)
{
    say_length(c->fd, "500 Internal Server Error", 0);
    return true;
}

static bool refused(struct call *c)
{
    say_length(c->fd, "403 Forbidden", 10);
    say_body(c->fd, 0, 10);
    return true;
}

static bool counted(struct call *c)
{
    char head[128];
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nX-Nth: %u\r\nContent-Length: %d\r\n\r\n",
             c->nth, BODY);
    say(c->fd, head);
    say_body(c->fd, 0, BODY);
    return true;
}

/* Every connection ends at its second request, of which no more than the head is read. */
static bool drops_second(struct call *c)
{
    if (c->on_conn > 1)
        return false;
    return whole(c);
}

static bool continued(struct call *c)
{
    say(c->fd, "HTTP/1.1 100 Continue\r\nX-Name: early\r\n\r\n");
    return whole(c);
}

static const struct route {
    const char *path;
    bool (*serve)(struct call *);
    bool unread; /* the request's body stays unread on a second request */
} routes[] = {
    {"/whole", whole, false},
    {"/cut-once", cut_once, false},
    {"/cut", cut, false},
    {"/chunks-cut", chunks_cut, false},
    {"/chunks", chunks, false},
    {"/head-cut", head_cut, false},
    {"/garbage", garbage, false},
    {"/nothing", nothing, false},
    {"/too-long", too_long, false},
    {"/too-short", too_short, false},
    {"/range", range, false},
    {"/other-range", other_range, false},
    {"/no-range", no_range, false},
    {"/stall", stall, false},
    {"/silent", silent, false},
    {"/too-slow", too_slow, false},
    {"/silent-once", silent_once, false},
    {"/meet", meet, false},
    {"/slow", slow, false},
    {"/empty", empty, false},
    {"/large", large, false},
    {"/busy-once", busy_once, false},
    {"/broken", broken, false},
    {"/refused", refused, false},
    {"/continued", continued, false},
    {"/counted", counted, false},
    {"/drops-second", drops_second, true},
};
enum { ROUTES = sizeof routes / sizeof routes[0] };
static atomic_uint hits[ROUTES];
static atomic_uint whole_bodies, other_bodies;

static unsigned hits_of(const char *path)
{
    for (unsigned i = 0; i < ROUTES; i++) {
        if (strcmp(routes[i].path, path) == 0)
            return atomic_load(&hits[i]);
    }
    return 0;
}

static bool meet(struct call *c)
{
    while (hits_of("/meet") < atomic_load(&guests) && !atomic_load(&closing))
        usleep(200 * 1000);
    return whole(c);
}

static size_t read_head(int fd, char *head, size_t size)
{
    size_t n = 0;
    while (n + 1 < size && recv(fd, head + n, 1, 0) == 1) {
        head[++n] = '\0';
        if (n >= 4 && strcmp(head + n - 4, "\r\n\r\n") == 0)
            return n;
    }
    return 0;
}

static void read_body(struct call *c)
{
    char block[16384];
    c->intact = true;
    while (c->got < c->body_len) {
        size_t want = c->body_len - c->got < sizeof block ? c->body_len - c->got : sizeof block;
        ssize_t n = recv(c->fd, block, want, 0);
        if (n <= 0)
            break;
        c->intact = c->intact && memcmp(block, body + c->got, (size_t)n) == 0;
        c->got += (size_t)n;
    }
    bool right = c->intact && c->got == c->body_len;
    atomic_fetch_add(right ? &whole_bodies : &other_bodies, 1);
}

static void *converse(void *arg)
{
    struct call c = {.fd = (int)(intptr_t)arg};
    char head[4096];
    bool more = true;
    while (more && read_head(c.fd, head, sizeof head)) {
        const char *length = strcasestr(head, "\r\ncontent-length:");
        sscanf(head, "%15s %63s", c.method, c.path);
        c.body_len = length ? strtoull(strchr(length, ':') + 1, NULL, 10) : 0;
        c.got = 0;
        c.on_conn++;
        for (unsigned i = 0; i < ROUTES; i++) {
            if (strcmp(routes[i].path, c.path) != 0)
                continue;
            c.nth = atomic_fetch_add(&hits[i], 1) + 1;
            if (c.body_len && !(routes[i].unread && c.on_conn > 1))
                read_body(&c);
            more = routes[i].serve(&c);
        }
    }
    close(c.fd);
    return NULL;
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        pthread_t thread;
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        atomic_fetch_add(&connections, 1);
        struct sockaddr_in here = {0};
        socklen_t len = sizeof here;
        getsockname(fd, (struct sockaddr *)&here, &len);
        atomic_fetch_add(&visits[(ntohl(here.sin_addr.s_addr) - 1) % ADDRESSES], 1);
        pthread_create(&thread, NULL, converse, (void *)(intptr_t)fd);
        pthread_detach(thread);
    }
}

static void forget_hits(void)
{
    for (unsigned i = 0; i < ROUTES; i++)
        atomic_store(&hits[i], 0);
    atomic_store(&whole_bodies, 0);
    atomic_store(&other_bodies, 0);
    atomic_store(&connections, 0);
}

/* ---- the client ---- */

struct ask {
    struct http_request http; /* first */
    const char *host, *path;
    char dest[BODY];
    _Atomic uint64_t moved;
    unsigned begun;   /* bodies */
    size_t taken;     /* bytes of the last one, in dest */
    size_t fails_at;  /* the hook that comes to this byte fails; 0: none does */
    bool no_begun;    /* nor does this one */
    unsigned naps_ms; /* how long its first piece takes */
    unsigned rounds;  /* submitted again from done so often */
    atomic_uint dones;
    sem_t done;
    uint64_t began_ms, took_ms;
};

static struct http_pool *pool;

static int prepare(struct http_request *r)
{
    struct ask *a = (struct ask *)r;
    http_request_reset(r);
    buf_printf(&r->url, "http://%s:%u%s", a->host, port, a->path);
    http_add_header(r, "X-Empty", "");
    return 0;
}

static enum http_verdict judge(struct http_request *r)
{
    if (r->status == 200 || r->status == 206)
        return HTTP_OK;
    nc_err_set(&r->err, "Status", "%s: %d", r->what, r->status);
    r->err.retryable = retry_status(r->status);
    return r->err.retryable ? HTTP_RETRY : HTTP_FAILED;
}

static enum http_verdict always_again(struct http_request *r)
{
    (void)r;
    return HTTP_AGAIN;
}

/* What it needs to be sent is not there yet: the server has the right answer from the third on. */
static enum http_verdict later(struct http_request *r)
{
    char value[16];
    if (http_header(r, "x-nth", value, sizeof value) && strcmp(value, "3") == 0)
        return HTTP_OK;
    nc_err_set(&r->err, "NotYet", "%s: not yet", r->what);
    return HTTP_LATER;
}

static void done(struct http_request *r)
{
    struct ask *a = (struct ask *)r;
    atomic_fetch_add(&a->dones, 1);
    if (a->rounds) {
        a->rounds--;
        http_submit(pool, r);
        return;
    }
    a->took_ms = clock_ms() - a->began_ms;
    sem_post(&a->done);
}

static const struct http_hooks hooks = {NULL, prepare, judge, done};
static const struct http_hooks again_hooks = {NULL, prepare, always_again, done};
static const struct http_hooks later_hooks = {NULL, prepare, later, done};

/* Zeroed but for what all tests want. */
static struct ask *new_ask(const char *path)
{
    struct ask *a = calloc(1, sizeof *a);
    http_request_init(&a->http, &hooks);
    a->host = "127.0.0.1";
    a->path = path;
    a->http.method = "GET";
    a->http.what = path;
    a->http.moved = &a->moved;
    a->http.attempts_max = 1;
    sem_init(&a->done, 0, 0);
    return a;
}

static struct ask *into_dest(const char *path)
{
    struct ask *a = new_ask(path);
    a->http.dest = a->dest;
    a->http.dest_len = sizeof a->dest;
    return a;
}

static struct ask *a_range(const char *path)
{
    struct ask *a = into_dest(path);
    a->http.ranged = true;
    a->http.range_start = 1000;
    return a;
}

/* ---- a body in pieces ---- */

static int begun(struct http_request *r)
{
    struct ask *a = (struct ask *)r;
    a->begun++;
    a->taken = 0;
    return a->no_begun ? nc_err_set(&r->err, "ENOENT", "no folder") : 0;
}

static int take(struct http_request *r, const char *data, size_t len)
{
    struct ask *a = (struct ask *)r;
    if (a->fails_at && a->taken + len >= a->fails_at)
        return nc_err_set(&r->err, "ENOSPC", "no space");
    if (!a->taken)
        usleep(a->naps_ms * 1000);
    memcpy(a->dest + a->taken, data, len);
    a->taken += len;
    return 0;
}

static int give(struct http_request *r, size_t offset, char *out, size_t len)
{
    struct ask *a = (struct ask *)r;
    if (a->fails_at && offset + len >= a->fails_at)
        return nc_err_set(&r->err, "EIO", "unreadable");
    memcpy(out, body + offset, len);
    return 0;
}

static struct ask *in_pieces(const char *path)
{
    struct ask *a = new_ask(path);
    a->http.dest_len = sizeof a->dest;
    a->http.begun = begun;
    a->http.take = take;
    a->http.attempts_max = 3;
    return a;
}

/* That is larger than there is room for in dest. */
static int take_whole(struct http_request *r, const char *data, size_t len)
{
    struct ask *a = (struct ask *)r;
    if (a->fails_at && a->taken + len >= a->fails_at)
        return nc_err_set(&r->err, "ENOSPC", "no space");
    a->taken += len;
    return memcmp(data, body + a->taken - len, len) == 0 ? 0 : nc_err_set(&r->err, "Wrong", "no");
}

static struct ask *all_of_it(const char *path)
{
    struct ask *a = in_pieces(path);
    a->http.take = take_whole;
    a->http.dest_len = LARGE;
    return a;
}

static struct ask *given(const char *path)
{
    struct ask *a = new_ask(path);
    a->http.method = "PUT";
    a->http.give = give;
    a->http.body_len = LARGE;
    a->http.has_body = true;
    a->http.attempts_max = 3;
    return a;
}

static struct ask *submit(struct ask *a)
{
    a->began_ms = clock_ms();
    http_submit(pool, &a->http);
    return a;
}

static void wait_for(struct ask *a)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_MS / 1000;
    if (sem_timedwait(&a->done, &until)) {
        printf("not ok - %s: no end within %d ms\n", a->path, HANG_MS);
        fflush(stdout);
        abort();
    }
}

#define WAIT_UNTIL(condition)                                                                      \
    for (uint64_t began_ms = clock_ms(); !(condition) && clock_ms() - began_ms < HANG_MS;)         \
    usleep(1000)

static void drop(struct ask *a)
{
    http_request_free(&a->http);
    sem_destroy(&a->done);
    free(a);
}

static struct ask *run(struct ask *a)
{
    forget_hits();
    wait_for(submit(a));
    return a;
}

/* Whole, into dest or into take, counted once. */
static bool arrived(const struct ask *a, size_t from)
{
    return !a->http.failed && a->http.received == BODY && memcmp(a->dest, body + from, BODY) == 0 &&
           a->moved == BODY;
}

static bool failed(const struct ask *a, const char *code)
{
    if (a->http.failed && strcmp(a->http.err.code, code) == 0 && a->moved == 0)
        return true;
    printf("# %s: %s: %s, moved %llu\n", a->path, a->http.err.code, a->http.err.message,
           (unsigned long long)a->moved);
    return false;
}

/* ---- answers ---- */

static void test_answers(void)
{
    char value[64];
    struct ask *a = run(into_dest("/whole"));
    CHECK(arrived(a, 0) && a->http.attempts == 1, "a whole body arrives, and is counted once");
    drop(a);
    a = run(new_ask("/chunks"));
    CHECK(!a->http.failed && strcmp(buf_str(&a->http.text), "hello world") == 0, "so do chunks");
    CHECK(http_header(&a->http, "x-name", value, sizeof value) && strcmp(value, "two words") == 0,
          "a header is found by its name in lower case, without blanks around it");
    CHECK(!http_header(&a->http, "x-nam", value, sizeof value) &&
              !http_header(&a->http, "x-name", value, 9),
          "but by no other name, and not where it does not fit");
    CHECK(a->moved == 0, "text is not counted as moved");
    drop(a);
    a = run(into_dest("/continued"));
    CHECK(arrived(a, 0) && !http_header(&a->http, "x-name", value, sizeof value),
          "what comes before the answer is forgotten");
    drop(a);
    a = new_ask("/whole");
    a->http.text_max = 100;
    run(a);
    CHECK(!a->http.failed && a->http.text.len == 100, "a text is cut at its most");
    a->http.text_whole = true;
    run(a);
    CHECK(failed(a, "LongBody") && !a->http.err.retryable, "or refused, where it has to be whole");
    drop(a);
    a = run(into_dest("/refused"));
    CHECK(failed(a, "Status") && a->http.text.len == 10 && a->http.status == 403,
          "the body of a refusal is text, whatever was to come");
    drop(a);
}

static void test_cut(void)
{
    struct ask *a = into_dest("/cut-once");
    a->http.attempts_max = 5;
    run(a);
    CHECK(arrived(a, 0) && a->http.attempts == 2, "a body that was cut is asked for again");
    CHECK(atomic_load(&connections) == 2, "on another connection");
    drop(a);
    a = into_dest("/cut");
    a->http.attempts_max = 3;
    run(a);
    CHECK(failed(a, "ShortBody") && hits_of("/cut") == 3, "as often as is allowed, then it fails");
    drop(a);
    a = run(new_ask("/chunks-cut"));
    CHECK(failed(a, "ShortBody") && a->http.err.retryable, "chunks without an end are cut, too");
    drop(a);
    a = run(into_dest("/head-cut"));
    CHECK(a->http.failed && a->http.err.retryable && a->moved == 0, "and half a head");
    drop(a);
    a = run(into_dest("/nothing"));
    CHECK(failed(a, "NetworkError") && a->http.err.retryable, "and no answer");
    drop(a);
    a = run(into_dest("/garbage"));
    CHECK(failed(a, "NetworkError"), "what is no HTTP is no answer");
    drop(a);
}

static void test_wrong(void)
{
    static const struct {
        const char *path, *code, *what;
        bool ranged;
    } cases[] = {
        {"/too-long", "LongBody", "a body that is longer than the file", false},
        {"/too-short", "ShortBody", "a whole body that is shorter than the file", false},
        {"/whole", "BadRange", "the whole file where a range was asked for", true},
        {"/other-range", "BadRange", "another range", true},
        {"/no-range", "BadRange", "a range that does not say which it is", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ask *a = cases[i].ranged ? a_range(cases[i].path) : into_dest(cases[i].path);
        a->http.attempts_max = 10;
        run(a);
        CHECK(failed(a, cases[i].code), cases[i].what);
        CHECK(hits_of(cases[i].path) == 3, "is not asked for ten times");
        drop(a);
    }
    struct ask *a = run(a_range("/range"));
    CHECK(arrived(a, 1000), "the right range is taken");
    drop(a);
}

static void test_pieces(void)
{
    struct ask *a = run(in_pieces("/whole"));
    CHECK(arrived(a, 0) && a->taken == BODY && a->begun == 1, "a body is taken piece by piece");
    drop(a);
    a = run(in_pieces("/cut-once"));
    CHECK(arrived(a, 0) && a->taken == BODY && a->begun == 2, "one that was cut is begun again");
    drop(a);
    a = in_pieces("/whole");
    a->http.begun = NULL;
    run(a);
    CHECK(arrived(a, 0) && a->begun == 0, "who does not care when it begins is not told");
    drop(a);
    a = run(in_pieces("/refused"));
    CHECK(failed(a, "Status") && !a->begun && !a->taken && a->http.text.len == 10,
          "the body of a refusal is none of them");
    drop(a);
    a = in_pieces("/empty");
    a->http.dest_len = 0;
    run(a);
    CHECK(!a->http.failed && a->begun == 1 && a->taken == 0, "an empty body is begun, too");
    drop(a);
    a = in_pieces("/range");
    a->http.ranged = true;
    a->http.range_start = 1000;
    run(a);
    CHECK(arrived(a, 1000) && a->taken == BODY, "so is a range");
    drop(a);
    a = in_pieces("/other-range");
    a->http.ranged = true;
    a->http.range_start = 1000;
    run(a);
    CHECK(failed(a, "BadRange") && !a->begun && !a->taken, "of another range nothing is taken");
    drop(a);
    a = run(in_pieces("/too-long"));
    CHECK(failed(a, "LongBody") && a->taken <= BODY, "nor what is more than was asked for");
    drop(a);
    a = run(in_pieces("/too-short"));
    CHECK(failed(a, "ShortBody") && a->begun == 3, "a short body fails as it always does");
    drop(a);
}

static void test_pieces_refused(void)
{
    struct ask *a = in_pieces("/whole");
    a->no_begun = true;
    run(a);
    CHECK(failed(a, "ENOENT") && a->http.attempts == 1 && !a->taken,
          "who can't begin a body has failed for good");
    CHECK_STR(a->http.err.message, "no folder", "in his own words");
    drop(a);
    a = in_pieces("/empty");
    a->http.dest_len = 0;
    a->no_begun = true;
    run(a);
    CHECK(failed(a, "ENOENT") && a->http.attempts == 1, "an empty one, too");
    drop(a);
    a = in_pieces("/slow");
    a->fails_at = 300;
    run(a);
    CHECK(failed(a, "ENOSPC") && a->http.attempts == 1 && a->taken == 200,
          "who can't take a piece is not asked for the next");
    CHECK(!a->http.err.retryable && a->http.err.status == 0, "and it was not the server's fault");
    drop(a);
}

static void test_given(void)
{
    struct ask *a = run(given("/whole"));
    CHECK(!a->http.failed && atomic_load(&whole_bodies) == 1 && a->moved == LARGE,
          "a body is given piece by piece");
    drop(a);
    a = given("/drops-second");
    a->rounds = 3;
    run(a);
    CHECK(!a->http.failed && atomic_load(&whole_bodies) == 4 && !atomic_load(&other_bodies),
          "and again from its start where a connection was dead");
    CHECK(a->moved == 4ull * LARGE, "and counted once");
    drop(a);
    a = given("/whole");
    a->fails_at = LARGE / 2;
    run(a);
    CHECK(failed(a, "EIO") && a->http.attempts == 1 && !atomic_load(&whole_bodies),
          "who can't give a piece has failed for good");
    CHECK_STR(a->http.err.message, "unreadable", "in his own words, too");
    drop(a);
}

/* ---- time ---- */

static void test_stall(void)
{
    static const char *const paths[] = {"/stall", "/silent", "/too-slow"};
    struct ask *asks[3];
    forget_hits();
    for (int i = 0; i < 3; i++) {
        asks[i] = into_dest(paths[i]);
        asks[i]->http.stall_ms = 1000;
        submit(asks[i]);
    }
    struct ask *slower = into_dest("/slow"); /* 2,000 bytes a second */
    slower->http.stall_ms = 1000;
    submit(slower);
    for (int i = 0; i < 3; i++) {
        wait_for(asks[i]);
        CHECK(failed(asks[i], "Timeout") && asks[i]->http.err.retryable, paths[i]);
        CHECK(asks[i]->took_ms >= 1000 && asks[i]->took_ms < 4000, "is cut after its stall time");
        drop(asks[i]);
    }
    wait_for(slower);
    CHECK(arrived(slower, 0) && slower->took_ms >= 1500, "what moves 1 KiB in that time is not");
    drop(slower);
}

/* Every other request is the same worker's. */
static void test_late_worker(void)
{
    struct ask *asks[5] = {into_dest("/slow"), new_ask("/whole"), into_dest("/slow"),
                           new_ask("/whole"), in_pieces("/whole")};
    forget_hits();
    asks[0]->http.stall_ms = 1000; /* what is slow takes two seconds */
    asks[2]->http.total_ms = 2500;
    asks[4]->naps_ms = 3000;
    for (int i = 0; i < 4; i++)
        submit(asks[i]);
    WAIT_UNTIL(atomic_load(&asks[0]->moved) && atomic_load(&asks[2]->moved));
    submit(asks[4]);
    for (int i = 0; i < 5; i++)
        wait_for(asks[i]);
    CHECK(arrived(asks[0], 0) && asks[0]->http.attempts == 1 && asks[0]->took_ms >= 3000,
          "a worker that waited for a disk does not take that for a stall");
    CHECK(arrived(asks[2], 0) && asks[2]->http.attempts == 1 && asks[2]->took_ms >= 3000,
          "nor for the end of a request's time");
    CHECK(arrived(asks[4], 0) && asks[4]->http.attempts == 1, "nor does who made it wait fail");
    for (int i = 0; i < 5; i++)
        drop(asks[i]);
}

static struct ask *promptly(const char *path, struct retry_gate *gate)
{
    struct ask *a = into_dest(path);
    a->http.gate = gate;
    a->http.cut_late = true;
    return a;
}

static void test_late(void)
{
    struct retry_gate gate = {0}, other_gate = {0};
    struct ask *a = promptly("/whole", &gate);
    a->rounds = 20;
    run(a);
    CHECK(latency_limit_us(&gate.first_byte) > 0, "a gate learns how soon answers begin");
    drop(a);

    struct ask *never = promptly("/silent", &gate), *unknown = promptly("/silent", &other_gate);
    struct ask *patient = promptly("/silent", &gate);
    never->http.stall_ms = unknown->http.stall_ms = patient->http.stall_ms = 3500;
    patient->http.cut_late = false;
    a = promptly("/silent-once", &gate);
    forget_hits();
    submit(a);
    submit(never);
    submit(unknown);
    submit(patient);
    wait_for(a);
    CHECK(arrived(a, 0) && a->http.attempts == 1 && a->http.late_cuts == 1,
          "who is much later than others is asked again, and no attempt is counted");
    CHECK(a->took_ms >= 2000 && a->took_ms < 10 * 1000, "after some seconds");
    drop(a);
    wait_for(unknown);
    wait_for(patient);
    wait_for(never);
    CHECK(failed(unknown, "Timeout") && !unknown->http.late_cuts, "not where nobody else answered");
    CHECK(failed(patient, "Timeout") && !patient->http.late_cuts, "nor where it is not wanted");
    CHECK(failed(never, "Timeout") && never->http.late_cuts >= 1 && never->http.late_cuts <= 2,
          "who never answers is not asked for ever");
    drop(never);
    drop(unknown);
    drop(patient);
}

/* So many bytes by several requests at so many a second; how long that took, in ms. */
static uint64_t paced(struct ask *(*make)(const char *), size_t bytes, uint64_t rate, bool *right)
{
    enum { EACH = 4 };
    struct pace pace;
    struct ask *asks[EACH];
    pace_init(&pace, rate);
    forget_hits();
    uint64_t began_ms = clock_ms();
    for (int i = 0; i < EACH; i++) {
        asks[i] = make(bytes == LARGE ? "/large" : "/whole");
        asks[i]->http.pace = &pace;
        asks[i]->http.stall_ms = 1000;
        asks[i]->http.attempts_max = 1;
        submit(asks[i]);
    }
    *right = true;
    for (int i = 0; i < EACH; i++) {
        wait_for(asks[i]);
        if (asks[i]->http.failed)
            printf("# %s\n", asks[i]->http.err.message);
        *right = *right && !asks[i]->http.failed && asks[i]->moved == bytes;
        drop(asks[i]);
    }
    return clock_ms() - began_ms;
}

static void test_pace(void)
{
    bool right = false;
    uint64_t took = paced(all_of_it, LARGE, 8 * 1024 * 1024, &right);
    CHECK(right && took >= 1300, "12 MiB come at 8 MiB a second in a second and a half");
    CHECK(took < 10 * 1000, "and not much later");
    took = paced(given, LARGE, 8 * 1024 * 1024, &right);
    CHECK(right && atomic_load(&whole_bodies) == 4 && took >= 1300, "and go so");
    CHECK(took < 10 * 1000, "nor do they go much later");
    took = paced(in_pieces, BODY, 4000, &right);
    CHECK(right && took >= 2900, "who waits his turn for longer than a stall takes is not cut");

    struct pace pace;
    pace_init(&pace, 1024 * 1024);
    struct ask *a = all_of_it("/large");
    a->http.pace = &pace;
    a->fails_at = 200 * 1000;
    run(a);
    CHECK(failed(a, "ENOSPC") && a->http.attempts == 1 && a->took_ms < 2000,
          "who can't take a piece when its turn has come has failed, too");
    drop(a);
}

static void test_gate(void)
{
    struct retry_gate gate = {0};
    struct ask *a = into_dest("/busy-once");
    forget_hits();
    a->http.attempts_max = 3;
    a->http.gate = &gate;
    submit(a);
    WAIT_UNTIL(hits_of("/busy-once"));
    WAIT_UNTIL(atomic_load(&gate.until_ms));
    struct ask *b = into_dest("/whole");
    b->http.gate = &gate;
    submit(b);
    struct ask *c = into_dest("/whole");
    submit(c);
    wait_for(a);
    wait_for(b);
    wait_for(c);
    CHECK(arrived(a, 0) && a->http.attempts == 2 && a->took_ms >= 1000,
          "503 with Retry-After is tried again when the time has passed");
    CHECK(arrived(b, 0) && b->took_ms >= 800, "and holds others at the same gate back");
    CHECK(arrived(c, 0) && c->took_ms < 800, "but nobody else");
    CHECK(b->http.attempts == 1, "who was held back has made one attempt");
    drop(a);
    drop(b);
    drop(c);
}

static void test_give_up(void)
{
    unsigned short open_port = port;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd, (struct sockaddr *)&at, sizeof at); /* bound and not listening: nobody else gets it */
    getsockname(fd, (struct sockaddr *)&at, &len);
    port = ntohs(at.sin_port);
    struct ask *a = into_dest("/whole");
    a->http.attempts_max = 1000;
    a->http.give_up_ms = 500;
    run(a);
    CHECK(failed(a, "ConnectFailed") && a->http.attempts > 1 && a->took_ms < 5000,
          "where nobody ever answers, attempts end in time however many are left");
    drop(a);
    port = open_port;
    close(fd);
}

static void test_again(void)
{
    struct ask *a = into_dest("/whole");
    a->http.hooks = &again_hooks;
    run(a);
    CHECK(failed(a, "TooManyRedirects") && hits_of("/whole") == 13,
          "one that is sent on and on ends");
    drop(a);
}

static void test_later(void)
{
    struct ask *a = into_dest("/counted");
    a->http.hooks = &later_hooks;
    run(a);
    CHECK(arrived(a, 0) && a->http.attempts == 1 && a->took_ms >= 2000,
          "one that has to wait for something else makes no attempts meanwhile");
    drop(a);
}

/* ---- connections ---- */

static void test_resubmit(void)
{
    struct ask *a = into_dest("/whole");
    a->rounds = 49;
    run(a);
    CHECK(atomic_load(&a->dones) == 50 && a->moved == 50 * BODY && !a->http.failed,
          "a request may be submitted again from its end");
    CHECK(atomic_load(&connections) <= 1, "and then goes over the same connection");
    drop(a);
}

enum { SUBMITTED = 15 };
static struct ask *submitted[SUBMITTED];

static void submits_many(struct http_request *r)
{
    for (int i = 0; i < SUBMITTED; i++)
        submitted[i] = submit(into_dest("/silent"));
    done(r);
}

/* What one worker's hooks submit would in time be all there is. */
static void test_shares(void)
{
    static const struct http_hooks many = {NULL, prepare, judge, submits_many};
    unsigned on[2] = {0};
    struct ask *a = into_dest("/whole");
    a->http.hooks = &many;
    run(a);
    drop(a);
    for (int i = 0; i < SUBMITTED; i++)
        on[submitted[i]->http.worker % 2]++;
    CHECK(on[0] >= SUBMITTED / 4 && on[1] >= SUBMITTED / 4,
          "what one worker submits is shared with the other");
    for (int i = 0; i < SUBMITTED; i++)
        http_cancel(pool, &submitted[i]->http);
    for (int i = 0; i < SUBMITTED; i++) {
        wait_for(submitted[i]);
        drop(submitted[i]);
    }
}

/* A server that closes an idle connection just when it is used again is nobody's failure. */
static void test_dead_connection(void)
{
    struct ask *a = into_dest("/drops-second");
    a->rounds = 5;
    run(a);
    CHECK(!a->http.failed && a->http.attempts == 1 && a->moved == 6 * BODY,
          "a connection that was closed while idle is replaced, and no attempt is counted");
    CHECK(hits_of("/drops-second") >= 11, "each but the first was asked for twice");
    drop(a);

    a = new_ask("/drops-second");
    a->http.method = "PUT";
    a->http.body = body;
    a->http.body_len = LARGE;
    a->http.has_body = true;
    a->http.attempts_max = 5;
    a->rounds = 3;
    run(a);
    CHECK(!a->http.failed && atomic_load(&whole_bodies) == 4 && !atomic_load(&other_bodies),
          "a body is sent again from its start, and whole");
    CHECK(a->moved == 4ull * LARGE, "and counted once");
    drop(a);
}

/* All at once, each over a connection of its own. */
static bool visit_many(void)
{
    enum { REQUESTS = 64 };
    struct ask *asks[REQUESTS];
    forget_hits();
    for (int i = 0; i < REQUESTS; i++) {
        asks[i] = into_dest("/slow");
        asks[i]->host = "many.test";
        asks[i]->http.once = true;
        submit(asks[i]);
    }
    bool all = true;
    for (int i = 0; i < REQUESTS; i++) {
        wait_for(asks[i]);
        all = all && arrived(asks[i], 0);
        drop(asks[i]);
    }
    return all && atomic_load(&connections) == REQUESTS;
}

static void test_addresses(void)
{
    CHECK(visit_many(), "a name can be visited many times at once");
    unsigned before = atomic_load(&lookups), all = 0, most = 0;
    for (int i = 0; i < ADDRESSES; i++)
        atomic_store(&visits[i], 0);
    CHECK(visit_many() && atomic_load(&lookups) == before, "and again without another look-up");
    for (int i = 0; i < ADDRESSES; i++) {
        unsigned n = atomic_load(&visits[i]);
        all += n;
        most = n > most ? n : most;
    }
    CHECK(most < all * 7 / 8, "its connections do not all go to one of its addresses");
}

static bool crowd(struct ask **asks, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        submit(asks[i]);
    bool all = true;
    for (unsigned i = 0; i < n; i++) {
        wait_for(asks[i]);
        all = all && !asks[i]->http.failed;
    }
    return all;
}

static void test_crowd(void)
{
#ifdef __SANITIZE_THREAD__
    enum { MOST = 200, SPARE_FILES = 200 }; /* both sides are far slower */
#else
    enum { MOST = 1000, SPARE_FILES = 200 };
#endif
    struct rlimit files;
    struct ask *asks[MOST];
    getrlimit(RLIMIT_NOFILE, &files); /* both ends of a connection are ours */
    unsigned room = files.rlim_max > 2 * MOST + SPARE_FILES
                        ? MOST
                        : (unsigned)(files.rlim_max - SPARE_FILES) / 2;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (unsigned i = 0; i < room; i++) {
        asks[i] = into_dest("/meet");
        asks[i]->http.attempts_max = 5;
    }
    forget_hits();
    atomic_store(&guests, room);
    CHECK(crowd(asks, room), "so many requests are in flight at once");
    unsigned made = atomic_load(&connections);
    forget_hits();
    CHECK(crowd(asks, room) && made + atomic_load(&connections) < room + room / 4,
          "and leave their connections to those that come after them");
    for (unsigned i = 0; i < room; i++)
        drop(asks[i]);
}

/* A transfer outlives the request it was set up for, and what that one has lent it. */
static void test_lent(void)
{
    bool all = true;
    for (int i = 0; i < 8; i++) {
        struct ask *a = into_dest("/whole");
        char *file = strdup(i % 3 ? "a.pem" : "b.pem");
        a->http.ca_file = file;
        run(a);
        all = all && arrived(a, 0);
        drop(a);
        memset(file, 'x', strlen(file));
        free(file);
    }
    CHECK(all, "what a request lends is not used after its end");
}

static void test_empty_body(void)
{
    struct ask *a = new_ask("/whole");
    a->http.method = "POST";
    a->http.has_body = true;
    run(a);
    CHECK(!a->http.failed && a->moved == 0, "an empty body is sent as one");
    drop(a);
    a = new_ask("/whole");
    a->http.method = "HEAD";
    run(a);
    CHECK(!a->http.failed && a->http.text.len == 0, "HEAD waits for no body");
    drop(a);
}

/* ---- cancelling ---- */

static void check_cancelled(struct ask *a, const char *what)
{
    uint64_t now = clock_ms();
    http_cancel(pool, &a->http);
    wait_for(a);
    CHECK(failed(a, "Cancelled") && clock_ms() - now < 2000 && atomic_load(&a->dones) == 1, what);
    drop(a);
}

static void test_cancel(void)
{
    forget_hits();
    struct ask *a = submit(into_dest("/silent"));
    WAIT_UNTIL(hits_of("/silent"));
    check_cancelled(a, "a request that waits for an answer can be cancelled");

    a = into_dest("/stall");
    submit(a);
    WAIT_UNTIL(atomic_load(&a->moved));
    check_cancelled(a, "one that is under way, too");

    a = into_dest("/broken");
    a->http.attempts_max = 1000;
    submit(a);
    WAIT_UNTIL(hits_of("/broken") >= 4);
    check_cancelled(a, "one that waits to be tried again");

    a = into_dest("/counted");
    a->http.hooks = &later_hooks;
    submit(a);
    WAIT_UNTIL(hits_of("/counted"));
    check_cancelled(a, "one that waits for something else");

    struct retry_gate gate = {.until_ms = clock_ms() + 60 * 1000};
    a = into_dest("/whole");
    a->http.gate = &gate;
    submit(a);
    check_cancelled(a, "one that waits at a gate");
    a = into_dest("/whole");
    a->http.gate = &gate;
    submit(a);
    usleep(50 * 1000);
    check_cancelled(a, "also when it has waited for a while");
    CHECK(hits_of("/whole") == 0, "which then was never sent");
}

static void test_pool_free(void)
{
    enum { EACH = 8, KINDS = 4 };
    struct retry_gate gate = {.until_ms = clock_ms() + 60 * 1000};
    static const char *const paths[KINDS] = {"/silent", "/stall", "/broken", "/whole"};
    struct ask *asks[EACH * KINDS];
    forget_hits();
    for (int i = 0; i < EACH * KINDS; i++) {
        struct ask *a = into_dest(paths[i % KINDS]);
        a->http.attempts_max = 1000;
        a->http.gate = i % KINDS == 3 ? &gate : NULL;
        a->rounds = (unsigned)i / KINDS % 3; /* which the end of the pool may not lose */
        asks[i] = submit(a);
    }
    usleep(100 * 1000);
    uint64_t now = clock_ms();
    http_pool_free(pool);
    CHECK(clock_ms() - now < 5000, "a pool with requests under way ends soon");
    bool all = true;
    for (int i = 0; i < EACH * KINDS; i++) {
        unsigned want = (unsigned)i / KINDS % 3 + 1;
        all = all && atomic_load(&asks[i]->dones) == want && failed(asks[i], "Cancelled");
        drop(asks[i]);
    }
    CHECK(all, "each of them, and each submitted again at the end, has come to its own");
    http_pool_free(NULL);
}

int main(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    struct nc_err err;
    pthread_t server;
    alarm(120);
    setvbuf(stdout, NULL, _IOLBF, 0);
    unsetenv("http_proxy");
    unsetenv("all_proxy");
    unsetenv("ALL_PROXY");
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(i * 31 + i / 251);
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1024) ||
        getsockname(listener, (struct sockaddr *)&at, &len))
        return 1;
    port = ntohs(at.sin_port);
    pthread_create(&server, NULL, serve, NULL);

    if (http_pool_new(&pool, &(struct http_options){.threads = 1}, &err))
        return 1;
    CHECK(http_pool_threads(pool) == 2, "a pool has two threads at least");
    test_answers();
    test_cut();
    test_wrong();
    test_pieces();
    test_pieces_refused();
    test_given();
    test_stall();
    test_late_worker();
    test_late();
    test_pace();
    test_gate();
    test_give_up();
    test_again();
    test_later();
    test_resubmit();
    test_shares();
    test_dead_connection();
    test_addresses();
    test_crowd();
    test_lent();
    test_empty_body();
    test_cancel();
    test_pool_free();

    atomic_store(&closing, true);
    shutdown(listener, SHUT_RDWR);
    pthread_join(server, NULL);
    close(listener);
    return unit_done();
}
