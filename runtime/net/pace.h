/* A rate that many transfers keep together.
 *
 * Bytes are booked before they move: each booking begins where the one before it ends, at so many
 * bytes a second, and whoever booked waits for its begin. So turns are taken in the order of
 * asking, nobody starves, and what is late once is made up for. A quiet time of up to 100 ms may be
 * made up for, too.
 *
 * Any thread; lives as long as any request that names it.
 */
#ifndef NC_NET_PACE_H
#define NC_NET_PACE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct pace {
    uint64_t rate;           /* bytes a second */
    _Atomic uint64_t due_us; /* when all that is booked has moved (monotonic) */
};

/* A rate of at least 1. */
void pace_init(struct pace *p, uint64_t rate);

/* In how many us these bytes may move; 0: at once. They count as moved. */
uint64_t pace_book(struct pace *p, uint64_t bytes, uint64_t now_us);

/* How much is best booked at once: what moves in 50 ms, from 1 KiB to 1 MiB. */
size_t pace_slice(const struct pace *p);

#endif
