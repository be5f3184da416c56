#include "net/latency.h"

enum {
    MEMORY = 16, /* samples that the mean follows */
    LEAST_SAMPLES = 8,
    FLOOR_US = 2 * 1000 * 1000,
    CEILING_US = 10 * 1000 * 1000,
};

/* `by` times closer to x. */
static uint32_t approach(uint32_t value, uint32_t x, unsigned by)
{
    return (uint32_t)((int64_t)value + ((int64_t)x - (int64_t)value) / (int64_t)by);
}

void latency_add(struct latency *l, uint64_t us)
{
    uint32_t x = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
    unsigned n = atomic_fetch_add(&l->samples, 1) + 1;
    unsigned by = n == 0 || n > MEMORY ? MEMORY : n; /* the first ones: their plain average */
    uint64_t was = atomic_load(&l->smoothed), is;
    do {
        uint32_t mean = (uint32_t)(was >> 32), deviation = (uint32_t)was;
        uint32_t off = x > mean ? x - mean : mean - x;
        is = n == 1 ? (uint64_t)x << 32 | x / 2
                    : (uint64_t)approach(mean, x, by) << 32 | approach(deviation, off, by);
    } while (!atomic_compare_exchange_weak(&l->smoothed, &was, is));
}

uint64_t latency_limit_us(struct latency *l)
{
    uint64_t smoothed = atomic_load(&l->smoothed);
    uint64_t mean = smoothed >> 32, deviation = (uint32_t)smoothed;
    if (atomic_load(&l->samples) < LEAST_SAMPLES || 2 * mean > CEILING_US)
        return 0;
    uint64_t limit = 2 * mean + 8 * deviation;
    return limit < FLOOR_US ? FLOOR_US : limit > CEILING_US ? CEILING_US : limit;
}
