#include "loop/loop.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "loop/child.h"
#include "unit.h"

enum { THREADS = 4, POSTS = 5000 };

static struct loop *loop;

/* The next event, or one of token 0 when none comes within a second. */
static struct loop_event next_event(void)
{
    struct loop_event ev = {0};
    uint64_t end_ms = clock_ms() + 1000;
    while (clock_ms() < end_ms && loop_wait(loop, 100, &ev, 1) == 0)
        continue;
    return ev;
}

static void *post_many(void *arg)
{
    uint64_t token = *(uint64_t *)arg;
    for (int i = 1; i <= POSTS; i++)
        loop_post(loop, token, i);
    return NULL;
}

static void test_posts(void)
{
    pthread_t threads[THREADS];
    uint64_t tokens[THREADS];
    int64_t last[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        tokens[i] = loop_token(loop);
        pthread_create(&threads[i], NULL, post_many, &tokens[i]);
    }
    int total = 0;
    bool in_order = true, known = true;
    uint64_t end_ms = clock_ms() + 20000;
    while (total < THREADS * POSTS && clock_ms() < end_ms) {
        struct loop_event ev[7];
        size_t n = loop_wait(loop, 1000, ev, 7);
        for (size_t i = 0; i < n; i++, total++) {
            uint64_t which = ev[i].token - tokens[0];
            known = known && which < THREADS && ev[i].kind == LOOP_POST;
            if (which < THREADS) {
                in_order = in_order && ev[i].value == last[which] + 1;
                last[which] = ev[i].value;
            }
        }
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(total == THREADS * POSTS, "posts from several threads all arrive");
    CHECK(in_order, "posts of one thread keep their order");
    CHECK(known, "each with its token");
    struct loop_event ev;
    CHECK(loop_wait(loop, 0, &ev, 1) == 0, "and none is left over");
}

static void test_timers(void)
{
    static const uint64_t after_ms[] = {30, 10, 20, 10, 0, 40, 25};
    enum { N = sizeof after_ms / sizeof *after_ms };
    static const int order[] = {4, 1, 3, 2, 6, 0};
    uint64_t tokens[N], start_ms = clock_ms();
    for (int i = 0; i < N; i++) {
        tokens[i] = loop_token(loop);
        CHECK(loop_timer(loop, tokens[i], after_ms[i], NULL) == 0, "a timer starts");
    }
    CHECK(loop_cancel(loop, tokens[5]), "a timer can be cancelled");
    CHECK(!loop_cancel(loop, tokens[5]), "but only once");
    bool right = true, early = false;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        struct loop_event ev = next_event();
        right = right && ev.kind == LOOP_TIMER && ev.token == tokens[order[i]];
        early = early || clock_ms() < start_ms + after_ms[order[i]];
    }
    CHECK(right, "timers fire in the order of their times, equal ones in that of their start");
    CHECK(!early, "and never before their time");
    struct loop_event ev;
    CHECK(loop_wait(loop, 20, &ev, 1) == 0, "a cancelled one does not fire");
}

static void test_watches(void)
{
    int ends[2];
    if (pipe(ends))
        abort();
    uint64_t a = loop_token(loop), b = loop_token(loop), c = loop_token(loop);
    CHECK(loop_watch(loop, a, ends[0], EPOLLIN, NULL) == 0, "a pipe is watched");
    CHECK(loop_watch(loop, b, ends[0], EPOLLIN, NULL) == 0, "by two at once");
    struct loop_event ev;
    CHECK(loop_wait(loop, 10, &ev, 1) == 0, "nothing while it is empty");
    CHECK(loop_cancel(loop, a), "a watch can be cancelled");
    close(ends[0]);
    CHECK(write(ends[1], "x", 1) == 1, "the other watch keeps the pipe open");
    ev = next_event();
    CHECK(ev.kind == LOOP_FD && ev.token == b, "and fires");
    CHECK(loop_wait(loop, 10, &ev, 1) == 0, "once");
    struct nc_err err;
    CHECK(loop_watch(loop, c, ends[0], EPOLLIN, &err) == -1, "a closed descriptor is refused");
    CHECK_STR(err.code, "EBADF", "with the reason");
    close(ends[1]);
}

static void test_signals(void)
{
    kill(getpid(), SIGTERM);
    struct loop_event ev = next_event();
    CHECK(ev.kind == LOOP_SIGNAL && ev.token == 0 && ev.value == SIGTERM, "a signal is an event");
}

static bool run_child(struct child *c, const char *script)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    struct child_options opt = {.argv = argv};
    struct nc_err err;
    return child_spawn(c, &opt, &err) == 0;
}

static bool wait_child(struct child *c)
{
    uint64_t token = loop_token(loop);
    if (loop_watch(loop, token, c->pidfd, EPOLLIN, NULL))
        return false;
    return next_event().token == token && child_reap(c);
}

static void test_children(void)
{
    struct child c;
    CHECK(run_child(&c, "exit 7"), "a child starts");
    CHECK(wait_child(&c) && c.code == 7 && c.signal == 0, "its exit code is known");
    CHECK(!child_signal(&c, SIGTERM), "its number is not signalled afterwards");
    child_free(&c);

    CHECK(run_child(&c, "kill -STOP $$; sleep 10") && !child_reap(&c), "another one runs");
    CHECK(child_signal(&c, SIGKILL) && wait_child(&c), "and is killed");
    CHECK(c.signal == SIGKILL, "which shows as the signal");
    child_free(&c);

    struct nc_err err;
    char *missing[] = {"no-such-command", NULL}, *plain[] = {"/etc/passwd", NULL};
    struct child_options opt = {.argv = missing};
    CHECK(child_spawn(&c, &opt, &err) == -1, "a program that is not there");
    CHECK_STR(err.code, "CommandNotFound", "is told from");
    opt.argv = plain;
    CHECK(child_spawn(&c, &opt, &err) == -1, "one that");
    CHECK_STR(err.code, "CommandNotExecutable", "can't be run");
}

int main(void)
{
    struct nc_err err;
    loop_catch_signals();
    if (loop_new(&loop, &err))
        abort();
    CHECK(loop_main() == loop, "the first loop is the main one");
    test_posts();
    test_timers();
    test_watches();
    test_signals();
    test_children();
    loop_free(loop);
    return unit_done();
}
