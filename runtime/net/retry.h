/* When to try again, and when to wait with everybody else.
 *
 * Backoff is exponential with full jitter: a wait is drawn evenly from 0 to the ceiling of its
 * attempt, so that many workers do not come back in step. A gate is what all requests to one
 * service share: a 503 or 429 seen by one of them holds the start of the others back too; and how
 * long its answers take tells which of them is late.
 */
#ifndef NC_NET_RETRY_H
#define NC_NET_RETRY_H

#include "net/latency.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zero-initialised; lives as long as any request that names it. Any thread. */
struct retry_gate {
    _Atomic uint64_t until_ms;  /* no request starts before this (monotonic ms) */
    _Atomic unsigned throttled; /* refusals in a row, for the gate's own backoff */
    struct latency first_byte;  /* of the requests that may be cut for it */
};

/* How long to wait before attempt number `attempt` (1 = the first retry), in ms. `random` is any
 * evenly spread 32-bit number. Ceilings: 200 ms, doubling, up to 20 s. */
uint64_t retry_backoff_ms(unsigned attempt, uint32_t random);

/* The service said "slow down" at now_ms and, where after_ms is not 0, for how long. */
void retry_gate_throttle(struct retry_gate *gate, uint64_t now_ms, uint64_t after_ms,
                         uint32_t random);

/* The service answered a request normally: the gate's backoff starts over next time. */
void retry_gate_ok(struct retry_gate *gate);

/* Statuses that may be different next time whoever the server is: 408, 429, 500, 502, 503, 504. */
bool retry_status(int status);

/* Retry-After as seconds or as an HTTP date; the wait in ms, 0 where there is none. Capped at 5
 * minutes. RFC 9110, 10.2.3. */
uint64_t retry_after_ms(const char *value, int64_t now_wall_s);

#endif
