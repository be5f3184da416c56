#include "net/retry.h"

#include "base/text.h"

#include <stddef.h>

enum { FIRST_CEILING_MS = 200, LAST_CEILING_MS = 20 * 1000, LONGEST_WAIT_MS = 300 * 1000 };

uint64_t retry_backoff_ms(unsigned attempt, uint32_t random)
{
    uint64_t ceiling = FIRST_CEILING_MS;
    while (attempt-- > 1 && ceiling < LAST_CEILING_MS)
        ceiling *= 2;
    if (ceiling > LAST_CEILING_MS)
        ceiling = LAST_CEILING_MS;
    return ceiling * random / UINT32_MAX;
}

void retry_gate_throttle(struct retry_gate *gate, uint64_t now_ms, uint64_t after_ms,
                         uint32_t random)
{
    if (!gate)
        return;
    uint64_t until = atomic_load(&gate->until_ms);
    if (!after_ms) {
        if (until > now_ms)
            return; /* a burst of refusals is one refusal */
        unsigned n = atomic_fetch_add(&gate->throttled, 1) + 1;
        /* Never less than half the ceiling: a gate that opens at once has held nobody back. */
        after_ms = (retry_backoff_ms(n, UINT32_MAX) + retry_backoff_ms(n, random)) / 2;
    }
    uint64_t target = now_ms + after_ms;
    while (target > until && !atomic_compare_exchange_weak(&gate->until_ms, &until, target))
        ;
}

void retry_gate_ok(struct retry_gate *gate)
{
    if (gate && atomic_load_explicit(&gate->throttled, memory_order_relaxed))
        atomic_store(&gate->throttled, 0);
}

bool retry_status(int status)
{
    switch (status) {
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        return true;
    default:
        return false;
    }
}

uint64_t retry_after_ms(const char *value, int64_t now_wall_s)
{
    if (!value || !*value)
        return 0;
    uint64_t seconds = 0;
    int64_t date = 0;
    if (text_u64(value, &seconds) != 0) {
        if (text_http_date(value, &date) != 0 || date <= now_wall_s)
            return 0;
        seconds = (uint64_t)(date - now_wall_s);
    }
    return seconds >= LONGEST_WAIT_MS / 1000 ? LONGEST_WAIT_MS : seconds * 1000;
}
