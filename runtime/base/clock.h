/* Monotonic time in milliseconds and microseconds, and wall-clock seconds. Thread-safe. */
#ifndef NC_BASE_CLOCK_H
#define NC_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static inline uint64_t clock_ms(void)
{
    return clock_us() / 1000;
}

/* Seconds since 1970 on this machine's wall clock. */
static inline int64_t clock_wall_s(void)
{
    return (int64_t)time(NULL);
}

#endif
