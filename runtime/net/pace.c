#include "net/pace.h"

enum {
    SECOND_US = 1000 * 1000,
    MADE_UP_US = 100 * 1000,
    SLICES = 20, /* a second */
    LEAST_SLICE = 1024,
    MOST_SLICE = 1024 * 1024,
};

void pace_init(struct pace *p, uint64_t rate)
{
    p->rate = rate ? rate : 1;
    atomic_store(&p->due_us, 0);
}

uint64_t pace_book(struct pace *p, uint64_t bytes, uint64_t now_us)
{
    uint64_t due = atomic_load(&p->due_us), begin, end;
    do {
        begin = due + MADE_UP_US < now_us ? now_us - MADE_UP_US : due;
        end = begin + bytes * SECOND_US / p->rate;
    } while (!atomic_compare_exchange_weak(&p->due_us, &due, end));
    return begin > now_us ? begin - now_us : 0;
}

size_t pace_slice(const struct pace *p)
{
    uint64_t slice = p->rate / SLICES;
    return slice < LEAST_SLICE ? LEAST_SLICE : slice > MOST_SLICE ? MOST_SLICE : (size_t)slice;
}
