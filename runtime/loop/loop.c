#include "loop/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"

/* epoll carries a token per descriptor; the loop's own two have tokens no one gets. */
enum { TOKEN_SIGNALS = 0, TOKEN_POSTS = -1 };

struct timer {
    uint64_t due_ms;
    uint64_t token;
};

struct watch {
    uint64_t token;
    int fd; /* our duplicate */
};

struct loop {
    int epoll;
    int signals;
    int wakeup; /* eventfd: non-zero while posts are queued */

    struct timer *timers; /* a binary heap, the next one first */
    size_t timer_count, timer_cap;

    struct watch *watches;
    size_t watch_count, watch_cap;

    atomic_uint_fast64_t last_token;

    pthread_mutex_t lock; /* guards what follows */
    struct loop_event *posts;
    size_t post_first, post_end, post_cap;
};

static struct loop *main_loop;
static sigset_t caught;

void loop_catch_signals(void)
{
    static const int wanted[] = {SIGTERM, SIGINT, SIGHUP};
    sigemptyset(&caught);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct sigaction old;
        sigaction(wanted[i], NULL, &old);
        /* A container's entry script may have started us with TERM ignored; it is still meant. */
        if (old.sa_handler != SIG_IGN || wanted[i] == SIGTERM)
            sigaddset(&caught, wanted[i]);
    }
    pthread_sigmask(SIG_BLOCK, &caught, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error like a full disk */
    signal(SIGCHLD, SIG_DFL);
}

static int add_own(struct loop *loop, int fd, uint64_t token)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = token};
    return fd < 0 ? -1 : epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &ev);
}

int loop_new(struct loop **out, struct nc_err *err)
{
    struct loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return nc_err_sys(err, ENOMEM, "start the event loop");
    pthread_mutex_init(&loop->lock, NULL);
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    loop->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll < 0 || add_own(loop, loop->signals, (uint64_t)TOKEN_SIGNALS) ||
        add_own(loop, loop->wakeup, (uint64_t)TOKEN_POSTS)) {
        int saved = errno;
        loop_free(loop);
        return nc_err_sys(err, saved, "start the event loop");
    }
    if (!main_loop)
        main_loop = loop;
    *out = loop;
    return 0;
}

const sigset_t *loop_release_signals(struct loop *loop)
{
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, loop->signals, NULL);
    return &caught;
}

void loop_reclaim_signals(struct loop *loop)
{
    add_own(loop, loop->signals, (uint64_t)TOKEN_SIGNALS);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    if (main_loop == loop)
        main_loop = NULL;
    for (size_t i = 0; i < loop->watch_count; i++)
        close(loop->watches[i].fd);
    close_fd(loop->wakeup);
    close_fd(loop->signals);
    close_fd(loop->epoll);
    pthread_mutex_destroy(&loop->lock);
    free(loop->timers);
    free(loop->watches);
    free(loop->posts);
    free(loop);
}

struct loop *loop_main(void)
{
    return main_loop;
}

uint64_t loop_token(struct loop *loop)
{
    return atomic_fetch_add(&loop->last_token, 1) + 1;
}

/* Makes room for one more element; the array doubles. */
static int grow(void **array, size_t count, size_t *cap, size_t size)
{
    if (count < *cap)
        return 0;
    size_t more = *cap ? *cap * 2 : 16;
    void *bigger = reallocarray(*array, more, size);
    if (!bigger)
        return -1;
    *array = bigger;
    *cap = more;
    return 0;
}

/* ---- posts ---- */

void loop_post(struct loop *loop, uint64_t token, int64_t value)
{
    pthread_mutex_lock(&loop->lock);
    if (grow((void **)&loop->posts, loop->post_end, &loop->post_cap, sizeof *loop->posts))
        abort();
    loop->posts[loop->post_end++] = (struct loop_event){token, LOOP_POST, value};
    /* Under the lock, so that the loop can't be freed between the event's arrival and the wake-up.
     * The write fails only when the counter is full, and then the loop is awake anyway. */
    ssize_t n = write(loop->wakeup, &(uint64_t){1}, sizeof(uint64_t));
    (void)n;
    pthread_mutex_unlock(&loop->lock);
}

static size_t take_posts(struct loop *loop, struct loop_event *out, size_t max)
{
    pthread_mutex_lock(&loop->lock);
    size_t n = loop->post_end - loop->post_first;
    if (n > max)
        n = max;
    if (n)
        memcpy(out, loop->posts + loop->post_first, n * sizeof *out);
    loop->post_first += n;
    if (loop->post_first == loop->post_end) {
        /* Empty: quiet until the next post. Otherwise the eventfd stays readable. */
        uint64_t count;
        ssize_t got = read(loop->wakeup, &count, sizeof count);
        (void)got;
        loop->post_first = loop->post_end = 0;
    }
    pthread_mutex_unlock(&loop->lock);
    return n;
}

/* ---- timers ---- */

static bool sooner(const struct timer *a, const struct timer *b)
{
    return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->token < b->token;
}

static void swap(struct timer *a, struct timer *b)
{
    struct timer t = *a;
    *a = *b;
    *b = t;
}

static void sift_up(struct timer *heap, size_t i)
{
    for (; i && sooner(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&heap[i], &heap[(i - 1) / 2]);
}

static void sift_down(struct timer *heap, size_t count, size_t i)
{
    for (;;) {
        size_t first = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < count; child++) {
            if (sooner(&heap[child], &heap[first]))
                first = child;
        }
        if (first == i)
            return;
        swap(&heap[i], &heap[first]);
        i = first;
    }
}

static void remove_timer(struct loop *loop, size_t i)
{
    loop->timers[i] = loop->timers[--loop->timer_count];
    if (i < loop->timer_count) {
        sift_up(loop->timers, i);
        sift_down(loop->timers, loop->timer_count, i);
    }
}

int loop_timer(struct loop *loop, uint64_t token, uint64_t after_ms, struct nc_err *err)
{
    if (grow((void **)&loop->timers, loop->timer_count, &loop->timer_cap, sizeof *loop->timers))
        return nc_err_sys(err, ENOMEM, "start a timer");
    /* Rounded up, so that none fires before its time. */
    uint64_t now_ms = after_ms ? (clock_us() + 999) / 1000 : clock_ms();
    uint64_t due_ms = after_ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + after_ms;
    loop->timers[loop->timer_count] = (struct timer){due_ms, token};
    sift_up(loop->timers, loop->timer_count++);
    return 0;
}

static size_t take_timers(struct loop *loop, struct loop_event *out, size_t max)
{
    size_t n = 0;
    uint64_t now_ms = clock_ms();
    while (n < max && loop->timer_count && loop->timers[0].due_ms <= now_ms) {
        out[n++] = (struct loop_event){loop->timers[0].token, LOOP_TIMER, 0};
        remove_timer(loop, 0);
    }
    return n;
}

/* ---- descriptors ---- */

int loop_watch(struct loop *loop, uint64_t token, int fd, uint32_t events, struct nc_err *err)
{
    if (grow((void **)&loop->watches, loop->watch_count, &loop->watch_cap, sizeof *loop->watches))
        return nc_err_sys(err, ENOMEM, "watch a descriptor");
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    struct epoll_event ev = {.events = events, .data.u64 = token};
    if (own < 0 || epoll_ctl(loop->epoll, EPOLL_CTL_ADD, own, &ev)) {
        int saved = errno;
        close_fd(own);
        return nc_err_sys(err, saved, "watch a descriptor");
    }
    loop->watches[loop->watch_count++] = (struct watch){token, own};
    return 0;
}

static bool remove_watch(struct loop *loop, uint64_t token)
{
    for (size_t i = 0; i < loop->watch_count; i++) {
        if (loop->watches[i].token == token) {
            /* Closing a duplicate does not take it out of epoll: the file is still open. */
            epoll_ctl(loop->epoll, EPOLL_CTL_DEL, loop->watches[i].fd, NULL);
            close(loop->watches[i].fd);
            loop->watches[i] = loop->watches[--loop->watch_count];
            return true;
        }
    }
    return false;
}

bool loop_cancel(struct loop *loop, uint64_t token)
{
    for (size_t i = 0; i < loop->timer_count; i++) {
        if (loop->timers[i].token == token) {
            remove_timer(loop, i);
            return true;
        }
    }
    return remove_watch(loop, token);
}

/* ---- waiting ---- */

static bool take_signal(struct loop *loop, struct loop_event *out)
{
    struct signalfd_siginfo info;
    if (read(loop->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return false;
    *out = (struct loop_event){0, LOOP_SIGNAL, info.ssi_signo};
    return true;
}

static int timeout_for(const struct loop *loop, int64_t timeout_ms)
{
    if (loop->timer_count) {
        uint64_t now_ms = clock_ms(), due_ms = loop->timers[0].due_ms;
        uint64_t left_ms = due_ms > now_ms ? due_ms - now_ms : 0;
        if (timeout_ms < 0 || (uint64_t)timeout_ms > left_ms)
            timeout_ms = left_ms > INT_MAX ? INT_MAX : (int64_t)left_ms;
    }
    return timeout_ms > INT_MAX ? INT_MAX : (int)timeout_ms;
}

size_t loop_wait(struct loop *loop, int64_t timeout_ms, struct loop_event *out, size_t max)
{
    struct epoll_event ready[64];
    int want = max < 64 ? (int)max : 64;
    int got = epoll_wait(loop->epoll, ready, want, timeout_for(loop, timeout_ms));

    size_t n = 0;
    bool posts = false;
    for (int i = 0; i < got; i++) {
        uint64_t token = ready[i].data.u64;
        if (token == (uint64_t)TOKEN_POSTS)
            posts = true;
        else if (token == (uint64_t)TOKEN_SIGNALS)
            n += take_signal(loop, &out[n]);
        else if (remove_watch(loop, token))
            out[n++] = (struct loop_event){token, LOOP_FD, 0};
    }
    if (posts)
        n += take_posts(loop, out + n, max - n);
    return n + take_timers(loop, out + n, max - n);
}
