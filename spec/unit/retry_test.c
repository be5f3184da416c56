/* Backoff, gates and Retry-After. */
#include "net/retry.h"

#include "unit.h"

static uint64_t ceiling(unsigned attempt)
{
    return retry_backoff_ms(attempt, UINT32_MAX);
}

static void test_backoff(void)
{
    CHECK(ceiling(1) == 200, "the first retry waits 200 ms at most");
    CHECK(ceiling(2) == 400 && ceiling(3) == 800 && ceiling(7) == 12800, "then twice as long");
    CHECK(ceiling(8) == 20000 && ceiling(9) == 20000, "up to 20 s");
    CHECK(ceiling(1000) == 20000 && ceiling(UINT32_MAX) == 20000, "however often");
    CHECK(ceiling(0) == 200, "no attempt yet is like the first");
    CHECK(retry_backoff_ms(8, 0) == 0, "the jitter is full: from nothing");
    CHECK(retry_backoff_ms(8, UINT32_MAX / 2) == 9999, "to the middle");
}

static void test_gate(void)
{
    struct retry_gate gate = {0};
    retry_gate_throttle(&gate, 1000, 3000, 0);
    CHECK(gate.until_ms == 4000, "a wish for a pause is met");
    retry_gate_throttle(&gate, 1500, 1000, 0);
    CHECK(gate.until_ms == 4000, "a shorter one does not shorten it");
    retry_gate_throttle(&gate, 1500, 9000, 0);
    CHECK(gate.until_ms == 10500, "a longer one makes it longer");
    retry_gate_throttle(&gate, 2000, 0, UINT32_MAX);
    CHECK(gate.until_ms == 10500 && gate.throttled == 0, "one without a wish adds nothing to it");
    retry_gate_throttle(NULL, 1, 1, 1);
    retry_gate_ok(NULL);
    CHECK(true, "there may be no gate");
}

static void test_gate_backoff(void)
{
    struct retry_gate gate = {0};
    retry_gate_throttle(&gate, 1000, 0, 0);
    CHECK(gate.until_ms == 1100 && gate.throttled == 1, "no wish: at least half the ceiling");
    retry_gate_throttle(&gate, 1050, 0, 0);
    CHECK(gate.until_ms == 1100 && gate.throttled == 1, "a burst of refusals is one refusal");
    retry_gate_throttle(&gate, 1100, 0, UINT32_MAX);
    CHECK(gate.until_ms == 1500 && gate.throttled == 2, "the next is twice as long");
    retry_gate_ok(&gate);
    CHECK(gate.throttled == 0 && gate.until_ms == 1500, "an answer starts it over, later");
    retry_gate_throttle(&gate, 2000, 0, UINT32_MAX);
    CHECK(gate.until_ms == 2200, "with the first ceiling");
}

static void test_status(void)
{
    static const int again[] = {408, 429, 500, 502, 503, 504};
    static const int never[] = {0, 200, 206, 301, 400, 401, 403, 404, 409, 412, 416, 501, 505};
    bool all = true, none = true;
    for (size_t i = 0; i < sizeof again / sizeof again[0]; i++)
        all = all && retry_status(again[i]);
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        none = none && !retry_status(never[i]);
    CHECK(all, "statuses that may change are tried again");
    CHECK(none, "all others are not");
}

static void test_after(void)
{
    const int64_t now = 784111777; /* Sun, 06 Nov 1994 08:49:37 GMT */
    CHECK(retry_after_ms("7", now) == 7000, "seconds");
    CHECK(retry_after_ms("0", now) == 0, "none");
    CHECK(retry_after_ms("299", now) == 299000, "almost five minutes");
    CHECK(retry_after_ms("300", now) == 300000, "five minutes");
    CHECK(retry_after_ms("301", now) == 300000, "no more than five minutes");
    CHECK(retry_after_ms("18446744073709551615", now) == 300000, "whatever the number");
    CHECK(retry_after_ms("Sun, 06 Nov 1994 08:49:42 GMT", now) == 5000, "a date");
    CHECK(retry_after_ms("Sun, 06 Nov 1994 09:49:37 GMT", now) == 300000, "a far date");
    CHECK(retry_after_ms("Sun, 06 Nov 1994 08:49:37 GMT", now) == 0, "this very second");
    CHECK(retry_after_ms("Sun, 06 Nov 1994 08:49:30 GMT", now) == 0, "a date that has passed");
    CHECK(retry_after_ms("", now) == 0 && retry_after_ms(NULL, now) == 0, "no value");
    CHECK(retry_after_ms("-3", now) == 0, "a negative number is none");
    CHECK(retry_after_ms("soon", now) == 0 && retry_after_ms("1.5", now) == 0, "nor is this");
}

int main(void)
{
    test_backoff();
    test_gate();
    test_gate_backoff();
    test_status();
    test_after();
    return unit_done();
}
