#include "run/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "loop/loop.h"
#include "run/family.h"
#include "run/relay.h"

enum {
    LEFTOVERS_MS = 1000, /* for what the command has left behind */
    HURRY_MS = 1000,     /* what a second TERM leaves of the grace */
    KILLING_MS = 2000,   /* for processes to die of SIGKILL */
    LOOK_MS = 20,        /* how often it is looked whether anybody is left */
    DRAIN_MS = 1000,     /* for what is left in the pipe */
    IDLE_MS = 2000,      /* a sink that takes nothing for so long at the end is given up */
    FLUSH_MS = 5000,
};

enum state { RUNNING, STOPPING, KILLING, OVER };

struct supervisor {
    pthread_t thread;
    struct child child;
    struct relay *relay;
    struct supervisor_options opt; /* the sinks' array is ours */
    sigset_t watched;
    int signals; /* signalfd */
    int wake;    /* eventfd: look at `stop` and `kill` */
    atomic_bool stop, kill;
    atomic_bool ended; /* the command's end has been seen */
    enum state state;  /* the thread's from here on, ours after its end */
    unsigned asked;    /* signals that ask to stop, so far */
    uint64_t until_ms; /* when the state's time is over */
};

/* ---- the thread ---- */

/* Everybody: the group at once, who has left it by itself. */
static void tell_all(struct supervisor *s, int signal)
{
    child_signal_rest(&s->child, signal);
    family_signal(s->child.pid, signal, s->child.pid);
}

static void begin_stop(struct supervisor *s, int signal, uint64_t grace_ms)
{
    s->state = STOPPING;
    s->until_ms = clock_ms() + grace_ms;
    tell_all(s, signal);
    if (signal != SIGCONT)
        tell_all(s, SIGCONT); /* or one that is stopped would not notice */
}

static void ask_to_stop(struct supervisor *s, int signal)
{
    if (s->asked++ == 0) {
        loop_post(loop_main(), s->opt.told_token, signal);
        if (s->state == RUNNING) {
            begin_stop(s, signal, s->opt.grace_ms);
            return;
        }
    }
    tell_all(s, signal);
    uint64_t hurry_ms = clock_ms() + (s->asked > 2 ? 0 : HURRY_MS);
    if (s->state == STOPPING && s->until_ms > hurry_ms)
        s->until_ms = hurry_ms;
}

static void take_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;
        if (signal == SIGUSR1)
            loop_post(loop_main(), s->opt.warned_token, signal);
        if (signal == SIGTERM || signal == SIGINT)
            ask_to_stop(s, signal);
        else if (signal != SIGCHLD)
            child_signal_rest(&s->child, signal);
    }
}

static void take_orders(struct supervisor *s)
{
    uint64_t count;
    ssize_t n = read(s->wake, &count, sizeof count);
    (void)n;
    if (atomic_exchange(&s->stop, false))
        ask_to_stop(s, SIGTERM);
    if (s->kill && s->state < KILLING) {
        s->state = STOPPING;
        s->until_ms = 0;
    }
}

/* What follows from the time and from who is left. */
static void step(struct supervisor *s)
{
    bool ended = child_reap(&s->child);
    if (ended)
        s->ended = true;
    family_reap();
    if (s->state == RUNNING) {
        if (!ended)
            return;
        if (family_signal(s->child.pid, 0, 0)) {
            begin_stop(s, SIGTERM, LEFTOVERS_MS);
            return;
        }
        s->state = OVER;
    }
    if (ended && !family_signal(s->child.pid, 0, 0))
        s->state = OVER;
    if (s->state == OVER || clock_ms() < s->until_ms)
        return;
    if (s->state == KILLING) {
        s->state = OVER;
        return;
    }
    s->state = KILLING;
    s->until_ms = clock_ms() + KILLING_MS;
}

static void watch(struct supervisor *s)
{
    while (s->state != OVER) {
        struct pollfd ready[] = {
            {.fd = s->signals, .events = POLLIN},
            {.fd = s->wake, .events = POLLIN},
            {.fd = s->child.ended ? -1 : s->child.pidfd, .events = POLLIN},
        };
        poll(ready, 3, s->state == RUNNING ? -1 : LOOK_MS);
        take_signals(s);
        take_orders(s);
        if (s->state == KILLING)
            tell_all(s, SIGKILL); /* again: there may be new ones */
        step(s);
    }
}

static void *run(void *arg)
{
    struct supervisor *s = arg;
    watch(s);
    relay_free(s->relay, DRAIN_MS);
    s->relay = NULL;
    uint64_t end_ms = clock_ms() + FLUSH_MS;
    for (size_t i = 0; i < s->opt.sink_count; i++) {
        uint64_t now_ms = clock_ms();
        sink_flush(s->opt.sinks[i], IDLE_MS, now_ms < end_ms ? end_ms - now_ms : 0);
    }
    loop_post(loop_main(), s->opt.over_token, 0);
    return NULL;
}

/* ---- the main thread ---- */

static sigset_t warnings(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    return set;
}

void supervisor_hold_signals(void)
{
    sigset_t held = warnings();
    pthread_sigmask(SIG_BLOCK, &held, NULL); /* other threads block all */
}

static void drop_held_signals(void)
{
    sigset_t held = warnings();
    while (sigtimedwait(&held, NULL, &(struct timespec){0}) > 0)
        continue;
}

/* Before the command starts, so that none is lost: from now on they wait for this thread. */
static int take_over_signals(struct supervisor *s)
{
    static const int also[] = {SIGCHLD, SIGQUIT, SIGUSR1, SIGUSR2};
    s->watched = *loop_release_signals(loop_main());
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        sigaddset(&s->watched, also[i]);
    pthread_sigmask(SIG_BLOCK, &s->watched, NULL);
    drop_held_signals();
    s->signals = signalfd(-1, &s->watched, SFD_CLOEXEC | SFD_NONBLOCK);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->signals < 0 || s->wake < 0 ? -1 : 0;
}

static int copy_sinks(struct supervisor *s, const struct supervisor_options *opt)
{
    struct sink **sinks = calloc(opt->sink_count + 1, sizeof *sinks);
    for (size_t i = 0; sinks && i < opt->sink_count; i++)
        sinks[i] = opt->sinks[i];
    s->opt = *opt;
    s->opt.sinks = sinks;
    return sinks ? 0 : -1;
}

static int start_command(struct supervisor *s, struct nc_err *err)
{
    struct child_options command = s->opt.command;
    /* One pipe for both, or their order would be lost. */
    command.stream[1].io = CHILD_PIPE;
    command.stream[2].io = CHILD_STDOUT;
    if (child_spawn(&s->child, &command, err))
        return -1;
    int fd = s->child.fd[1];
    s->child.fd[1] = -1;
    return relay_new(&s->relay, fd, s->opt.sinks, s->opt.sink_count, err);
}

int supervisor_start(struct supervisor **out, const struct supervisor_options *opt,
                     struct nc_err *err)
{
    struct supervisor *s = calloc(1, sizeof *s);
    if (!s)
        return nc_err_sys(err, ENOMEM, "start the command");
    s->signals = s->wake = -1;
    s->child = (struct child){.pidfd = -1, .fd = {-1, -1, -1}, .ended = true};
    int rc = take_over_signals(s) || copy_sinks(s, opt)
                 ? nc_err_sys(err, errno, "start the command")
                 : start_command(s, err);
    if (rc == 0) {
        int failed = pthread_create(&s->thread, NULL, run, s);
        rc = failed ? nc_err_sys(err, failed, "start a thread") : 0;
    }
    if (rc) {
        s->state = OVER;
        supervisor_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

static void wake_up(struct supervisor *s)
{
    ssize_t n = write(s->wake, &(uint64_t){1}, sizeof(uint64_t));
    (void)n;
}

void supervisor_stop(struct supervisor *s)
{
    s->stop = true;
    wake_up(s);
}

bool supervisor_ended(const struct supervisor *s)
{
    return s->ended;
}

struct supervisor_result supervisor_result(const struct supervisor *s)
{
    /* Not even SIGKILL has ended it (a dead file system): it counts as killed. */
    if (!s->child.ended)
        return (struct supervisor_result){.signal = SIGKILL};
    return (struct supervisor_result){s->child.code, s->child.signal};
}

void supervisor_free(struct supervisor *s)
{
    if (!s)
        return;
    if (s->thread) {
        s->kill = true;
        wake_up(s);
        pthread_join(s->thread, NULL);
    }
    relay_free(s->relay, 0);
    child_free(&s->child);
    if (s->signals >= 0)
        close(s->signals);
    if (s->wake >= 0)
        close(s->wake);
    free((void *)s->opt.sinks);
    /* QUIT and the others stay blocked: one that came too late must not kill us now. */
    loop_reclaim_signals(loop_main());
    free(s);
}
