#include "net/http_worker.h"

#include "base/clock.h"
#include "base/limits.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 64 };

/* Any thread but the worker's own is heard through curl_multi_wakeup. */
static void wake(struct worker *w)
{
    if (w != http_this_worker())
        curl_multi_wakeup(w->multi);
}

/* A worker keeps what it submits, which costs no wake, unless another has clearly less to do: or
 * one that is ahead by chance would in time have all connections. */
static struct worker *choose_worker(struct http_pool *pool, struct worker *self)
{
    struct worker *next = &pool->workers[atomic_fetch_add(&pool->next, 1) % pool->n];
    if (!self)
        return next;
    unsigned load = atomic_load(&self->load);
    return atomic_load(&next->load) + 1 + load / 8 < load ? next : self;
}

/* False where a worker that is not self may be gone before it looks. */
static bool leave_with(struct worker *w, struct http_request *r, const struct worker *self)
{
    pthread_mutex_lock(&w->lock);
    bool left = !self || w == self || !atomic_load(&w->stopping);
    bool first = left && !w->inbox; /* whoever left something there before has woken it for that */
    if (left) {
        r->worker = w->index;
        atomic_fetch_add(&w->load, 1);
        *w->inbox_end = r;
        w->inbox_end = &r->next;
    }
    pthread_mutex_unlock(&w->lock);
    if (first)
        wake(w);
    return left;
}

void http_submit(struct http_pool *pool, struct http_request *r)
{
    struct worker *self = http_this_worker();
    if (self && self->pool != pool)
        self = NULL;
    r->next = NULL;
    r->attempts = r->refusals = r->late_cuts = r->free_again = r->excused = 0;
    r->answered = r->fresh = r->failed = false;
    r->transfer = NULL;
    atomic_store(&r->cancelled, false);
    if (!leave_with(choose_worker(pool, self), r, self) && self)
        leave_with(self, r, self);
}

void http_cancel(struct http_pool *pool, struct http_request *r)
{
    struct worker *w = &pool->workers[r->worker];
    atomic_store(&r->cancelled, true);
    pthread_mutex_lock(&w->lock);
    w->look_for_cancelled = true;
    pthread_mutex_unlock(&w->lock);
    wake(w);
}

static int start_worker(struct http_pool *pool, unsigned i, struct nc_err *err)
{
    struct worker *w = &pool->workers[i];
    w->pool = pool;
    w->index = i;
    w->random = (uint32_t)clock_us() ^ (0x9e3779b9u * (i + 1));
    w->inbox_end = &w->inbox;
    pthread_mutex_init(&w->lock, NULL);
    w->multi = curl_multi_init();
    if (!w->multi)
        return nc_err_set(err, "ENOMEM", "starting the HTTP threads: out of memory");
    /* Without descriptors libcurl goes on without a way to wake the worker. */
    if (curl_multi_wakeup(w->multi) != CURLM_OK)
        return nc_err_set(err, "EMFILE",
                          "starting the HTTP threads: too many open files: raise "
                          "ulimit -n");
    for (unsigned k = 0; k < HTTP_RESOLUTIONS; k++) {
        w->names[k] = curl_share_init();
        if (curl_share_setopt(w->names[k], CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS))
            return nc_err_set(err, "ENOMEM", "starting the HTTP threads: out of memory");
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, http_work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return nc_err_sys(err, rc, "starting the HTTP threads");
    w->started = true;
    return 0;
}

int http_pool_new(struct http_pool **out, const struct http_options *options, struct nc_err *err)
{
    unsigned n = options->threads ? options->threads : limits_cpus();
    n = n < 2 ? 2 : n > MOST_THREADS ? MOST_THREADS : n;
    struct http_pool *pool = calloc(1, sizeof *pool + n * sizeof pool->workers[0]);
    if (!pool)
        return nc_err_set(err, "ENOMEM", "starting the HTTP threads: out of memory");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    pool->n = n;
    for (unsigned i = 0; i < n; i++) {
        if (start_worker(pool, i, err)) {
            http_pool_free(pool);
            return -1;
        }
    }
    *out = pool;
    return 0;
}

static void free_worker(struct worker *w)
{
    while (w->spare) {
        struct http_transfer *t = w->spare;
        w->spare = t->next;
        http_easy_free(t);
        free(t);
    }
    for (unsigned k = 0; k < HTTP_RESOLUTIONS; k++)
        curl_share_cleanup(w->names[k]);
    curl_multi_cleanup(w->multi);
    pthread_mutex_destroy(&w->lock);
}

void http_pool_free(struct http_pool *pool)
{
    if (!pool)
        return;
    for (unsigned i = 0; i < pool->n && pool->workers[i].pool; i++) {
        struct worker *w = &pool->workers[i];
        pthread_mutex_lock(&w->lock);
        atomic_store(&w->stopping, true);
        pthread_mutex_unlock(&w->lock);
        if (w->started) {
            curl_multi_wakeup(w->multi);
            pthread_join(w->thread, NULL);
        }
    }
    for (unsigned i = 0; i < pool->n && pool->workers[i].pool; i++)
        free_worker(&pool->workers[i]);
    free(pool);
    curl_global_cleanup();
}

unsigned http_pool_threads(const struct http_pool *pool)
{
    return pool->n;
}
