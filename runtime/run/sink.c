#include "run/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "loop/loop.h"

enum {
    PATIENCE_MS = 1000,     /* how long a full sink may hold up who feeds it */
    WRITE_MAX = 256 * 1024, /* bytes of one write */
};

struct sink {
    pthread_mutex_t lock; /* guards all below but fd and path */
    pthread_cond_t more;  /* there is something to write, or it is being closed */
    pthread_cond_t moved; /* something was written */
    int fd;               /* the thread's, once it runs */
    char *path;           /* NULL: fd is the caller's */
    char *ring;           /* SINK_BUFFER bytes, of which `len` from `head` on wait */
    size_t head, len;
    bool freed;      /* the owner has let go: end when empty */
    bool lossy;      /* full for too long: takes nothing before it is empty */
    uint64_t gap;    /* bytes missing before `head` */
    uint64_t behind; /* bytes missing after the last one that waits */
    uint64_t token;  /* to post when empty; 0: none */
    struct sink_state state;
};

/* ---- the thread ---- */

static int open_below(const char *path)
{
    char folder[PATH_MAX];
    if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

/* Some of the bytes, or -1. A descriptor may be non-blocking because someone else made it so. */
static ssize_t write_some(struct sink *s, const char *data, size_t len)
{
    if (s->fd < 0)
        s->fd = open_below(s->path);
    if (s->fd < 0)
        return -1;
    for (;;) {
        ssize_t n = write(s->fd, data, len);
        if (n > 0)
            return n;
        struct pollfd room = {.fd = s->fd, .events = POLLOUT};
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            poll(&room, 1, -1);
        else if (n == 0 || errno != EINTR)
            return -1;
    }
}

static bool write_all(struct sink *s, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write_some(s, data, len);
        if (n < 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

/* Says where bytes are missing, and how many. */
static bool write_gap(struct sink *s, uint64_t gap)
{
    char note[80];
    int n = snprintf(note, sizeof note, "\n[ncrun: %llu bytes are missing here]\n",
                     (unsigned long long)gap);
    return write_all(s, note, (size_t)n);
}

/* With the lock held: `n` bytes have left the buffer. */
static void consume(struct sink *s, size_t n)
{
    s->head = (s->head + n) % SINK_BUFFER;
    s->len -= n;
    if (s->len == 0) {
        s->gap += s->behind;
        s->behind = 0;
        s->lossy = false;
        if (s->token)
            loop_post(loop_main(), s->token, s->state.error);
        s->token = 0;
    }
    pthread_cond_broadcast(&s->moved);
}

/* With the lock held, which is let go for the write. */
static void write_next(struct sink *s)
{
    size_t n = SINK_BUFFER - s->head;
    if (n > s->len)
        n = s->len;
    if (n > WRITE_MAX)
        n = WRITE_MAX;
    uint64_t gap = s->gap;
    const char *data = s->ring + s->head;
    pthread_mutex_unlock(&s->lock);
    bool told = !gap || write_gap(s, gap);
    ssize_t done = !told ? -1 : n ? write_some(s, data, n) : 0;
    int saved = errno;
    pthread_mutex_lock(&s->lock);
    if (told)
        s->gap -= gap;
    s->state.error = done < 0 ? saved : 0;
    if (done >= 0) {
        s->state.written += (uint64_t)done;
    } else if (saved == EPIPE) {
        s->state.closed = true;
        s->gap = 0;
        n = s->len;
    } else {
        s->gap += n;
        s->state.lost += n;
    }
    consume(s, done >= 0 ? (size_t)done : n);
}

static void destroy(struct sink *s)
{
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->moved);
    pthread_mutex_destroy(&s->lock);
    free(s->path);
    free(s->ring);
    free(s);
}

static void *run(void *arg)
{
    struct sink *s = arg;
    if (s->path)
        s->fd = open_below(s->path); /* so that it is there even if nothing is ever said */
    int failed = s->fd < 0 ? errno : 0;
    pthread_mutex_lock(&s->lock);
    s->state.error = failed;
    for (;;) {
        /* A gap at the very end is told too, unless its reason is that nothing can be written. */
        while (!s->len && !s->freed && (!s->gap || s->state.error))
            pthread_cond_wait(&s->more, &s->lock);
        if (!s->len && (!s->gap || s->state.error))
            break;
        write_next(s);
    }
    pthread_mutex_unlock(&s->lock);
    if (s->path && s->fd >= 0)
        close(s->fd);
    destroy(s);
    return NULL;
}

/* ---- the owner's side ---- */

static int start(struct sink **out, int fd, const char *path, struct nc_err *err)
{
    struct sink *s = calloc(1, sizeof *s);
    char *ring = malloc(SINK_BUFFER), *copy = path ? strdup(path) : NULL;
    if (!s || !ring || (path && !copy)) {
        free(s);
        free(ring);
        free(copy);
        return nc_err_sys(err, ENOMEM, "open an output");
    }
    s->fd = fd;
    s->path = copy;
    s->ring = ring;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);

    /* Signals are the main thread's and the supervisor's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        destroy(s);
        return nc_err_sys(err, failed, "start a thread");
    }
    pthread_detach(thread); /* it may be stuck in a write for ever */
    *out = s;
    return 0;
}

int sink_new_fd(struct sink **out, int fd, struct nc_err *err)
{
    return start(out, fd, NULL, err);
}

int sink_new_file(struct sink **out, const char *path, struct nc_err *err)
{
    return start(out, -1, path, err);
}

void sink_free(struct sink *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->freed = true;
    s->token = 0;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock); /* the thread frees it */
}

/* With the lock held: copies what fits. */
static size_t take(struct sink *s, const char *data, size_t len)
{
    size_t room = SINK_BUFFER - s->len, n = len < room ? len : room;
    size_t at = (s->head + s->len) % SINK_BUFFER, first = SINK_BUFFER - at;
    if (first > n)
        first = n;
    memcpy(s->ring + at, data, first);
    memcpy(s->ring, data + first, n - first);
    s->len += n;
    if (n)
        pthread_cond_signal(&s->more);
    return n;
}

static struct timespec deadline(uint64_t at_ms)
{
    return (struct timespec){(time_t)(at_ms / 1000), (long)(at_ms % 1000) * 1000000};
}

size_t sink_put(struct sink *s, const void *data, size_t len)
{
    pthread_mutex_lock(&s->lock);
    size_t n = s->state.closed ? len : take(s, data, len);
    pthread_mutex_unlock(&s->lock);
    return n;
}

void sink_feed(struct sink *s, const void *data, size_t len)
{
    const char *rest = data;
    struct timespec until = deadline(clock_ms() + PATIENCE_MS);
    pthread_mutex_lock(&s->lock);
    while (len && !s->lossy && !s->state.closed) {
        size_t n = take(s, rest, len);
        rest += n;
        len -= n;
        if (len && pthread_cond_timedwait(&s->moved, &s->lock, &until) == ETIMEDOUT)
            s->lossy = s->len == SINK_BUFFER;
    }
    if (!s->state.closed) {
        s->behind += len;
        s->state.lost += len;
    }
    pthread_mutex_unlock(&s->lock);
}

void sink_when_empty(struct sink *s, uint64_t token)
{
    pthread_mutex_lock(&s->lock);
    if (s->len)
        s->token = token;
    else
        loop_post(loop_main(), token, s->state.error);
    pthread_mutex_unlock(&s->lock);
}

bool sink_flush(struct sink *s, uint64_t idle_ms, uint64_t total_ms)
{
    uint64_t end_ms = clock_ms() + total_ms;
    pthread_mutex_lock(&s->lock);
    bool waiting = true;
    while (s->len && waiting) {
        uint64_t idle_end_ms = clock_ms() + idle_ms;
        struct timespec until = deadline(idle_end_ms < end_ms ? idle_end_ms : end_ms);
        waiting =
            pthread_cond_timedwait(&s->moved, &s->lock, &until) != ETIMEDOUT && clock_ms() < end_ms;
    }
    bool empty = s->len == 0;
    pthread_mutex_unlock(&s->lock);
    return empty;
}

struct sink_state sink_state(struct sink *s)
{
    pthread_mutex_lock(&s->lock);
    struct sink_state state = s->state;
    pthread_mutex_unlock(&s->lock);
    return state;
}
