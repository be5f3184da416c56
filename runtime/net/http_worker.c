#include "net/http_worker.h"

#include "base/clock.h"

#include <stdlib.h>

enum {
    ATTEMPTS = 5,
    WRONG_ATTEMPTS = 3,  /* at answers that are none to what was asked */
    FREE_AGAIN_MAX = 12, /* redirects and the like, in one request */
    GIVE_UP_MS = 12 * 1000,
    LATER_MS = 1000,
    TICK_MS = 500,  /* how often the stall clocks are read */
    AWAY_MS = 1000, /* a worker that is away from its connections for longer missed something */
    EXCUSED_MAX = 3,
    LEAST_KEPT = 64, /* idle connections */
};

static _Thread_local struct worker *this_worker;

static uint32_t draw(struct worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return w->random;
}

static void delay(struct worker *w, struct http_request *r, uint64_t until_ms)
{
    r->start_after_ms = until_ms;
    struct http_request **at = &w->delayed;
    while (*at && (*at)->start_after_ms <= until_ms)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
}

static void finish(struct http_request *r)
{
    r->transfer = NULL;
    atomic_fetch_sub(&this_worker->load, 1); /* before another request takes this one's place */
    r->hooks->done(r);
}

static void fail_cancelled(struct http_request *r)
{
    nc_err_set(&r->err, "Cancelled", "%s: cancelled", r->what);
    r->failed = true;
    finish(r);
}

static struct http_transfer *take_transfer(struct worker *w)
{
    struct http_transfer *t = w->spare;
    if (t) {
        w->spare = t->next;
        return t;
    }
    /* Fewer, and what one request leaves is closed before the next can use it. */
    if (w->transfers >= w->kept) {
        w->kept = 2 * w->transfers < LEAST_KEPT ? LEAST_KEPT : 2 * w->transfers;
        curl_multi_setopt(w->multi, CURLMOPT_MAXCONNECTS, (long)w->kept);
    }
    t = malloc(sizeof *t);
    if (t && http_easy_init(t, w->names[w->transfers++ % HTTP_RESOLUTIONS])) {
        http_easy_free(t);
        free(t);
        return NULL;
    }
    if (t)
        t->first_us = &w->resume_us;
    return t;
}

static void drop_transfer(struct worker *w, struct http_transfer *t)
{
    if (t->prev)
        t->prev->next = t->next;
    else
        w->active = t->next;
    if (t->next)
        t->next->prev = t->prev;
    t->r->transfer = NULL;
    t->prev = NULL;
    t->next = w->spare;
    w->spare = t;
}

static void start(struct worker *w, struct http_request *r)
{
    uint64_t now = clock_ms();
    if (atomic_load(&r->cancelled)) {
        fail_cancelled(r);
        return;
    }
    uint64_t gate = r->gate ? atomic_load(&r->gate->until_ms) : 0;
    if (gate > now) {
        /* Spread the start, or all who waited come at once. */
        delay(w, r, gate + draw(w) % 100);
        return;
    }
    if (r->hooks->hold && r->hooks->hold(r)) {
        delay(w, r, now + LATER_MS);
        return;
    }
    if (!r->attempts)
        r->first_ms = now;
    r->attempts++;
    r->err = (struct nc_err){0};
    struct http_transfer *t = NULL;
    if ((r->hooks->prepare && r->hooks->prepare(r)) || !(t = take_transfer(w))) {
        if (!r->err.code[0])
            nc_err_set(&r->err, "ENOMEM", "%s: out of memory", r->what);
        r->failed = true;
        finish(r);
        return;
    }
    t->prev = NULL;
    t->next = w->active;
    if (w->active)
        w->active->prev = t;
    w->active = t;
    r->transfer = t;
    if (http_easy_begin(t, r) || curl_multi_add_handle(w->multi, t->easy)) {
        if (!r->err.code[0])
            nc_err_set(&r->err, "ENOMEM", "%s: out of memory", r->what);
        r->failed = true;
        drop_transfer(w, t);
        finish(r);
    }
}

/* Whether another attempt may begin at `due`. */
static bool may_retry(const struct worker *w, const struct http_request *r, uint64_t due)
{
    unsigned most = r->attempts_max ? r->attempts_max : ATTEMPTS;
    if (r->wrong && most > WRONG_ATTEMPTS)
        most = WRONG_ATTEMPTS;
    uint32_t give_up = r->give_up_ms ? r->give_up_ms : GIVE_UP_MS;
    return r->attempts < most && !atomic_load(&r->cancelled) && !atomic_load(&w->stopping) &&
           (r->answered || due - r->first_ms < give_up);
}

/* The service's own wish for a pause, and everybody's share in it. */
static void note_refusal(struct worker *w, struct http_request *r, uint64_t now)
{
    if (r->status != 503 && r->status != 429)
        return;
    r->refusals++;
    char value[64];
    uint64_t after = 0;
    if (http_header(r, "retry-after", value, sizeof value))
        after = retry_after_ms(value, clock_wall_s());
    retry_gate_throttle(r->gate, now, after, draw(w));
}

/* Was the worker busy elsewhere (a hook that waits for a slow disk, no CPU) for so long that the
 * clocks of its transfers mean nothing? */
static bool was_late(struct worker *w, uint64_t now)
{
    if (now - w->turn_ms <= AWAY_MS)
        return false;
    w->late_ms = now;
    return true;
}

/* A limit of libcurl's own (to connect, total_ms) ran out for that reason. */
static bool excused(struct worker *w, struct http_transfer *t, CURLcode code)
{
    was_late(w, clock_ms());
    return code == CURLE_OPERATION_TIMEDOUT && !t->err.code[0] && w->late_ms >= t->begun_ms &&
           t->r->excused++ < EXCUSED_MAX;
}

static void settle(struct worker *w, struct http_transfer *t, CURLcode code)
{
    struct http_request *r = t->r;
    enum http_verdict verdict = HTTP_OK;
    curl_multi_remove_handle(w->multi, t->easy);
    http_easy_end(t, code);
    if (t->late || excused(w, t, code)) {
        http_easy_undo(t);
        drop_transfer(w, t);
        r->attempts--;
        r->fresh = true;
        start(w, r);
        return;
    }
    if (r->failed)
        verdict = r->err.retryable ? HTTP_RETRY : HTTP_FAILED;
    else if (r->hooks->judge)
        verdict = r->hooks->judge(r);
    if (verdict != HTTP_OK)
        http_easy_undo(t);
    bool network = r->failed; /* no usable answer: its connection is not to be trusted */
    drop_transfer(w, t);
    uint64_t now = clock_ms();
    if (verdict == HTTP_LATER) {
        r->attempts--;
        delay(w, r, now + LATER_MS);
        return;
    }
    if (verdict == HTTP_AGAIN) {
        if (r->free_again++ < FREE_AGAIN_MAX) {
            r->attempts--;
            start(w, r);
            return;
        }
        nc_err_set(&r->err, "TooManyRedirects", "%s: sent on %d times without an answer", r->what,
                   FREE_AGAIN_MAX);
        verdict = HTTP_FAILED;
    }
    if (verdict == HTTP_OK) {
        retry_gate_ok(r->gate);
        finish(r);
        return;
    }
    r->failed = true;
    note_refusal(w, r, now);
    uint64_t due = now + retry_backoff_ms(r->attempts, draw(w));
    if (verdict == HTTP_RETRY && may_retry(w, r, due)) {
        r->fresh = network;
        delay(w, r, due);
        return;
    }
    if (atomic_load(&r->cancelled) || (verdict != HTTP_FAILED && atomic_load(&w->stopping)))
        nc_err_set(&r->err, "Cancelled", "%s: cancelled", r->what);
    finish(r);
}

static void drop_cancelled(struct worker *w, bool all);

/* What other threads have left for this worker. */
static void take_inbox(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    struct http_request *list = w->inbox;
    bool cancelled = w->look_for_cancelled;
    w->inbox = NULL;
    w->inbox_end = &w->inbox;
    w->look_for_cancelled = false;
    pthread_mutex_unlock(&w->lock);
    if (cancelled)
        drop_cancelled(w, false);
    while (list) {
        struct http_request *r = list;
        list = r->next;
        start(w, r);
    }
}

static void start_due(struct worker *w)
{
    uint64_t now = clock_ms();
    while (w->delayed && w->delayed->start_after_ms <= now) {
        struct http_request *r = w->delayed;
        w->delayed = r->next;
        start(w, r);
    }
}

/* A hook may start and end requests while we walk: look again from the front each time. */
static void drop_cancelled(struct worker *w, bool all)
{
    for (struct http_transfer *t = w->active; t;) {
        if (all || atomic_load(&t->r->cancelled)) {
            atomic_store(&t->r->cancelled, true);
            settle(w, t, CURLE_ABORTED_BY_CALLBACK);
            t = w->active;
        } else {
            t = t->next;
        }
    }
    for (struct http_request **at = &w->delayed; *at;) {
        struct http_request *r = *at;
        if (all || atomic_load(&r->cancelled)) {
            *at = r->next;
            fail_cancelled(r);
            at = &w->delayed;
        } else {
            at = &r->next;
        }
    }
}

static void cut_slow(struct worker *w)
{
    uint64_t now = clock_ms();
    bool late = was_late(w, now);
    if (!late && now - w->ticked_ms < TICK_MS)
        return;
    w->ticked_ms = now;
    for (struct http_transfer *t = w->active; t;) {
        struct http_transfer *next = t->next;
        now = clock_ms(); /* a transfer may have begun since the last one */
        if (late) {
            http_easy_restart_clock(t, now);
        } else if (http_easy_late(t, now) || http_easy_stalled(t, now)) {
            settle(w, t, CURLE_OPERATION_TIMEDOUT);
            next = w->active;
        }
        t = next;
    }
}

/* Those whose turn at their pace has come. */
static void resume_due(struct worker *w)
{
    uint64_t now = clock_us();
    if (!w->resume_us || now < w->resume_us)
        return;
    w->resume_us = 0;
    for (struct http_transfer *t = w->active, *next; t; t = next) {
        next = t->next;
        CURLcode code = http_easy_resume(t, now);
        if (code != CURLE_OK) {
            settle(w, t, code);
            next = w->active;
        }
    }
}

static bool has_mail(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool mail = w->inbox != NULL;
    pthread_mutex_unlock(&w->lock);
    return mail;
}

static int wait_ms(struct worker *w)
{
    int ms = w->active ? TICK_MS : 60 * 1000;
    if (has_mail(w)) /* a hook has just submitted */
        ms = 0;
    if (w->resume_us) {
        uint64_t now = clock_us();
        uint64_t left = w->resume_us > now ? (w->resume_us - now + 999) / 1000 : 0;
        if (left < (uint64_t)ms)
            ms = (int)left;
    }
    if (w->delayed) {
        uint64_t now = clock_ms();
        uint64_t due = w->delayed->start_after_ms;
        uint64_t left = due > now ? due - now : 0;
        if (left < (uint64_t)ms)
            ms = (int)left;
    }
    return ms;
}

void *http_work(void *arg)
{
    struct worker *w = arg;
    this_worker = w;
    w->turn_ms = clock_ms();
    for (;;) {
        take_inbox(w);
        start_due(w);
        resume_due(w);
        int running = 0, left = 0;
        curl_multi_perform(w->multi, &running);
        CURLMsg *msg;
        while ((msg = curl_multi_info_read(w->multi, &left))) {
            struct http_transfer *t = NULL;
            curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
            settle(w, t, msg->data.result);
        }
        cut_slow(w);
        if (atomic_load(&w->stopping)) {
            take_inbox(w);
            drop_cancelled(w, true);
            if (!w->active && !w->delayed && !has_mail(w))
                return NULL;
        }
        int ms = wait_ms(w);
        if (ms > 0)
            curl_multi_poll(w->multi, NULL, 0, ms, NULL);
        w->turn_ms = clock_ms();
    }
}

struct worker *http_this_worker(void)
{
    return this_worker;
}
