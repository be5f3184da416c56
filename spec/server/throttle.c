#include "throttle.h"

#include "base/clock.h"

#include <time.h>

void throttle_init(struct throttle *t, uint64_t rate)
{
    *t = (struct throttle){.next_us = 0};
    atomic_init(&t->rate, rate);
    pthread_mutex_init(&t->lock, NULL);
}

void throttle_free(struct throttle *t)
{
    pthread_mutex_destroy(&t->lock);
}

void throttle_set(struct throttle *t, uint64_t rate)
{
    atomic_store(&t->rate, rate);
}

uint64_t throttle_rate(const struct throttle *t)
{
    return atomic_load(&t->rate);
}

size_t throttle_piece(const struct throttle *t, size_t max)
{
    uint64_t rate = throttle_rate(t), piece = rate / 50; /* 20 ms */
    if (rate == 0 || piece >= max)
        return max;
    return piece ? (size_t)piece : 1;
}

void throttle_wait(struct throttle *t, size_t n, const atomic_bool *stop)
{
    uint64_t rate = throttle_rate(t);
    if (rate == 0)
        return;
    pthread_mutex_lock(&t->lock);
    uint64_t now = clock_us();
    if (t->next_us < now)
        t->next_us = now;
    t->next_us += (uint64_t)n * 1000000 / rate;
    uint64_t until = t->next_us;
    pthread_mutex_unlock(&t->lock);
    while ((now = clock_us()) < until && !atomic_load(stop)) {
        uint64_t us = until - now < 100000 ? until - now : 100000;
        nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
    }
}
