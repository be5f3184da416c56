#include "transfer/heartbeat.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTERVAL_MS = 60 * 1000, STALL_MS = 600 * 1000, SPACING_MS = 1100, TICK_MS = 1000 };

struct heartbeat {
    struct heartbeat_options options;
    char *key, *file;
    pthread_t thread;
    bool running;
    struct s3_request request;
    struct buf body; /* the heartbeat thread's own */

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    char *text;
    struct transfer *transfer;
    struct nc_err err;
    uint64_t written_ms;
    bool now, stopping, last, in_flight, told;
};

/* ---- one write ---- */

static void add_numbers(struct heartbeat *h, struct buf *body)
{
    struct transfer_stats s;
    struct text_time moved;
    if (!h->transfer)
        return;
    transfer_stats(h->transfer, &s);
    text_time_split(clock_wall_s() - (int64_t)((clock_ms() - s.moved_ms) / 1000), &moved);
    buf_printf(body,
               ",\"bytes_done\":%" PRIu64 ",\"bytes_total\":%" PRIu64 ",\"files_done\":%" PRIu64
               ",\"files_total\":%" PRIu64 ",\"moved\":\"%04d-%02d-%02dT%02d:%02d:%02dZ\"",
               s.bytes_done, s.bytes_total, s.files_done, s.files_total, moved.year, moved.month,
               moved.day, moved.hour, moved.minute, moved.second);
}

static void compose(struct heartbeat *h)
{
    buf_clear(&h->body);
    pthread_mutex_lock(&h->lock);
    buf_puts(&h->body, h->text);
    add_numbers(h, &h->body);
    h->now = false;
    h->written_ms = clock_ms();
    pthread_mutex_unlock(&h->lock);
    buf_puts(&h->body, "}\n");
}

static void put_done(struct s3_request *r)
{
    struct heartbeat *h = r->owner;
    pthread_mutex_lock(&h->lock);
    h->in_flight = false;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static int put(struct heartbeat *h, struct nc_err *err)
{
    struct s3_request *r = &h->request;
    if (s3_request_init(r, h->options.client, "PUT", h->key, err)) {
        s3_request_free(r);
        return -1;
    }
    s3_request_header(r, "Content-Type", "application/json");
    r->owner = h;
    r->done = put_done;
    r->http.body = h->body.data;
    r->http.body_len = h->body.len;
    r->http.has_body = true;
    pthread_mutex_lock(&h->lock);
    h->in_flight = true;
    s3_submit(h->options.pool, r);
    while (h->in_flight)
        pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
    int rc = 0;
    if (r->http.failed) {
        *err = r->http.err;
        rc = -1;
    }
    s3_request_free(r);
    return rc;
}

static int write_file(struct heartbeat *h, struct nc_err *err)
{
    struct buf temp;
    buf_init(&temp, 8192);
    buf_printf(&temp, "%s.new", h->file);
    int fd = temp.failed ? -1 : open(temp.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int rc = fd < 0 ? -1 : 0;
    for (size_t at = 0; rc == 0 && at < h->body.len;) {
        ssize_t n = write(fd, h->body.data + at, h->body.len - at);
        if (n > 0)
            at += (size_t)n;
        else if (errno != EINTR)
            rc = -1;
    }
    if (rc == 0 && (fsync(fd) || rename(temp.data, h->file)))
        rc = -1;
    if (rc)
        nc_err_sys(err, errno, "write %s", h->file);
    if (fd >= 0)
        close(fd);
    buf_free(&temp);
    return rc;
}

static void beat(struct heartbeat *h)
{
    struct nc_err err = {0};
    compose(h);
    int rc = h->body.failed ? nc_err_set(&err, "EntityTooLarge", "the heartbeat is too large")
                            : (h->key ? put(h, &err) : write_file(h, &err));
    pthread_mutex_lock(&h->lock);
    h->err = err;
    bool first = !h->told;
    h->told = true;
    pthread_mutex_unlock(&h->lock);
    if (first && h->options.written)
        h->options.written(h->options.arg, rc == 0);
}

/* ---- the thread ---- */

static void wait_a_tick(struct heartbeat *h, uint64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&h->changed, &h->lock, &until);
}

static bool stalled(struct heartbeat *h, uint64_t now)
{
    struct transfer_stats s;
    if (!h->transfer)
        return false;
    transfer_stats(h->transfer, &s); /* also the watch on the bytes that move */
    return now - s.moved_ms > h->options.stall_ms;
}

/* With the lock: waits until a write is due; false when there will be none any more. */
static bool wait_for_beat(struct heartbeat *h)
{
    for (;;) {
        uint64_t now = clock_ms();
        uint64_t since = h->written_ms ? now - h->written_ms : UINT64_MAX;
        bool dead = stalled(h, now);
        if (h->stopping && !h->last)
            return false;
        if (since >= SPACING_MS && (h->now || h->last || since >= h->options.interval_ms) && !dead)
            return true;
        if (h->last && dead)
            return false;
        uint64_t due = since < SPACING_MS ? SPACING_MS : h->options.interval_ms;
        uint64_t left = due > since ? due - since : TICK_MS;
        wait_a_tick(h, left < TICK_MS ? left : TICK_MS);
    }
}

static void *run(void *arg)
{
    struct heartbeat *h = arg;
    pthread_mutex_lock(&h->lock);
    while (wait_for_beat(h)) {
        bool last = h->last;
        pthread_mutex_unlock(&h->lock);
        beat(h);
        pthread_mutex_lock(&h->lock);
        if (last)
            break;
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

int heartbeat_start(struct heartbeat **out, const struct heartbeat_options *options,
                    const char *text, struct nc_err *err)
{
    struct heartbeat *h = calloc(1, sizeof *h);
    if (!h)
        return nc_err_set(err, "ENOMEM", "starting the heartbeat: out of memory");
    h->options = *options;
    if (!h->options.interval_ms)
        h->options.interval_ms = INTERVAL_MS;
    if (!h->options.stall_ms)
        h->options.stall_ms = STALL_MS;
    buf_init(&h->body, (size_t)1 << 30);
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &attr);
    pthread_condattr_destroy(&attr);
    h->key = options->key ? strdup(options->key) : NULL;
    h->file = options->file ? strdup(options->file) : NULL;
    h->text = strdup(text);
    if ((!h->key && !h->file) || !h->text) {
        heartbeat_free(h);
        return nc_err_set(err, "ENOMEM", "starting the heartbeat: out of memory");
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&h->thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        heartbeat_free(h);
        return nc_err_sys(err, rc, "starting the heartbeat");
    }
    h->running = true;
    *out = h;
    return 0;
}

int heartbeat_set(struct heartbeat *h, const char *text, bool now)
{
    char *copy = strdup(text);
    if (!copy)
        return -1;
    pthread_mutex_lock(&h->lock);
    free(h->text);
    h->text = copy;
    h->now |= now;
    if (now)
        pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return 0;
}

void heartbeat_watch(struct heartbeat *h, struct transfer *t)
{
    pthread_mutex_lock(&h->lock);
    h->transfer = t;
    pthread_mutex_unlock(&h->lock);
}

bool heartbeat_failed(struct heartbeat *h, struct nc_err *err)
{
    pthread_mutex_lock(&h->lock);
    *err = h->err;
    pthread_mutex_unlock(&h->lock);
    return err->code[0] != '\0';
}

void heartbeat_stop(struct heartbeat *h, bool last)
{
    if (!h->running)
        return;
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    h->last = last;
    if (h->in_flight && !last)
        http_cancel(h->options.pool, &h->request.http);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    h->running = false;
}

void heartbeat_free(struct heartbeat *h)
{
    if (!h)
        return;
    heartbeat_stop(h, false);
    buf_free(&h->body);
    free(h->key);
    free(h->file);
    free(h->text);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
