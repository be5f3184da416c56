#include "run/relay.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

enum { READ_MAX = 64 * 1024 };

struct relay {
    pthread_t thread;
    int pipe;
    int ending;                  /* eventfd: readable once it is to end */
    _Atomic uint64_t end_max_ms; /* when, at the latest; 0 before that */
    size_t count;
    struct sink *sinks[];
};

/* One piece from the pipe to everybody. 0 at the end of it, -1 when there is nothing now. */
static ssize_t carry(struct relay *r, char *buffer)
{
    ssize_t n = read(r->pipe, buffer, READ_MAX);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return 0;
    for (size_t i = 0; n > 0 && i < r->count; i++)
        sink_feed(r->sinks[i], buffer, (size_t)n);
    return n;
}

static void *run(void *arg)
{
    struct relay *r = arg;
    char buffer[READ_MAX];
    for (;;) {
        struct pollfd ready[] = {{.fd = r->pipe, .events = POLLIN},
                                 {.fd = r->ending, .events = POLLIN}};
        poll(ready, 2, -1);
        uint64_t end_ms = r->end_max_ms;
        ssize_t n = carry(r, buffer);
        if (n == 0 || (end_ms && (n < 0 || clock_ms() >= end_ms)))
            return NULL;
    }
}

int relay_new(struct relay **out, int fd, struct sink *const *sinks, size_t count,
              struct nc_err *err)
{
    struct relay *r = calloc(1, sizeof *r + count * sizeof(struct sink *));
    int ending = eventfd(0, EFD_CLOEXEC);
    int failed = r && ending >= 0 ? 0 : ENOMEM;
    if (!failed) {
        r->pipe = fd;
        r->ending = ending;
        r->count = count;
        memcpy(r->sinks, sinks, count * sizeof(struct sink *));
        failed = pthread_create(&r->thread, NULL, run, r);
    }
    if (failed) {
        free(r);
        if (ending >= 0)
            close(ending);
        close(fd);
        return nc_err_sys(err, failed, "read what the command writes");
    }
    *out = r;
    return 0;
}

void relay_free(struct relay *r, uint64_t max_ms)
{
    if (!r)
        return;
    r->end_max_ms = clock_ms() + max_ms;
    ssize_t n = write(r->ending, &(uint64_t){1}, sizeof(uint64_t));
    (void)n;
    pthread_join(r->thread, NULL);
    close(r->ending);
    close(r->pipe);
    free(r);
}
