/* How long the answers of one service take to begin, and from when on one is late.
 *
 * A smoothed mean and deviation (as TCP keeps for its round trips, RFC 6298, with a longer memory)
 * of the time from a request to its answer's first byte. An answer that takes much longer than that
 * most likely hangs on one sick server of many: asking again, over another connection, is quicker
 * than waiting. What was cut for it counts as a sample, too, so that a service that becomes slow as
 * a whole is soon waited for again.
 *
 * A struct is zero-initialised and may be used by any threads at once.
 */
#ifndef NC_NET_LATENCY_H
#define NC_NET_LATENCY_H

#include <stdatomic.h>
#include <stdint.h>

struct latency {
    _Atomic uint64_t smoothed; /* mean and deviation in us, 32 bits each */
    _Atomic unsigned samples;
};

void latency_add(struct latency *l, uint64_t us);

/* After how many us an answer is late: 2 to 10 s. 0: too little is known, or the service takes as
 * long as a rule. */
uint64_t latency_limit_us(struct latency *l);

#endif
