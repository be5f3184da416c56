/* From when on an answer is late. */
#include "net/latency.h"

#include "unit.h"

enum { MS = 1000, S = 1000 * MS };

static void add(struct latency *l, unsigned n, uint64_t us)
{
    while (n--)
        latency_add(l, us);
}

static void test_limits(void)
{
    struct latency l = {0};
    CHECK(latency_limit_us(&l) == 0, "who has never answered is not late");
    add(&l, 7, 20 * MS);
    CHECK(latency_limit_us(&l) == 0, "nor is there a rule in a few answers");
    add(&l, 1, 20 * MS);
    CHECK(latency_limit_us(&l) == 2 * S, "what is quick gets two seconds");
    add(&l, 100, 2 * S);
    uint64_t limit = latency_limit_us(&l);
    CHECK(limit >= 4 * S && limit < 5 * S, "what takes longer gets longer");
    add(&l, 100, 4900 * MS);
    CHECK(latency_limit_us(&l) >= 9 * S && latency_limit_us(&l) <= 10 * S, "up to ten seconds");
    add(&l, 100, 6 * S);
    CHECK(latency_limit_us(&l) == 0, "what always takes so long is never late");
    add(&l, 200, 20 * MS);
    CHECK(latency_limit_us(&l) == 2 * S, "until it is quick again");
}

static void test_spread(void)
{
    struct latency l = {0};
    for (int i = 0; i < 100; i++)
        latency_add(&l, i % 4 ? 50 * MS : 1500 * MS);
    uint64_t limit = latency_limit_us(&l);
    CHECK(limit > 4 * S && limit <= 10 * S, "answers that vary get more time than their mean");
}

/* Cuts at the limit itself, as all of a service's requests hang. */
static void test_cuts(void)
{
    struct latency l = {0};
    add(&l, 100, 20 * MS);
    int cuts = 0;
    while (latency_limit_us(&l) && cuts < 1000) {
        latency_add(&l, latency_limit_us(&l));
        cuts++;
    }
    CHECK(cuts < 30, "a service that has become slow is soon waited for");
    latency_add(&l, UINT64_MAX);
    CHECK(latency_limit_us(&l) == 0, "however slow");
}

int main(void)
{
    test_limits();
    test_spread();
    test_cuts();
    return unit_done();
}
