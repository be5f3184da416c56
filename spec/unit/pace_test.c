/* Bytes that keep to a rate. */
#include "net/pace.h"

#include "unit.h"

enum { S = 1000 * 1000, MIB = 1024 * 1024 };

/* How many bytes the takers move in so many us, each asking again lag_us after its turn. */
static uint64_t moved_in(struct pace *p, uint64_t from_us, uint64_t us, unsigned takers,
                         uint64_t piece, uint64_t lag_us)
{
    uint64_t at[16] = {0}, moved = 0;
    for (unsigned i = 0; i < takers; i++)
        at[i] = from_us + pace_book(p, piece, from_us);
    for (;;) {
        unsigned first = 0;
        for (unsigned i = 1; i < takers; i++)
            first = at[i] < at[first] ? i : first;
        if (at[first] >= from_us + us)
            return moved;
        moved += piece;
        uint64_t now = at[first] + lag_us;
        at[first] = now + pace_book(p, piece, now);
    }
}

static void test_rate(void)
{
    static const struct {
        unsigned takers;
        uint64_t rate, piece, lag_us;
    } cases[] = {{1, MIB, 16384, 0},
                 {1, MIB, 16384, 10000},
                 {16, MIB, 16384, 3000},
                 {16, 100 * MIB, MIB, 1000},
                 {4, 10000, 1024, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pace p;
        pace_init(&p, cases[i].rate);
        uint64_t bytes = moved_in(&p, 5 * (uint64_t)S, 10 * (uint64_t)S, cases[i].takers,
                                  cases[i].piece, cases[i].lag_us);
        uint64_t want = 10 * cases[i].rate;
        CHECK(bytes > want * 95 / 100 && bytes < want * 102 / 100 + 16 * cases[i].piece,
              "so many bytes a second move, however many move them");
    }
}

static void test_turns(void)
{
    struct pace p;
    pace_init(&p, 1000);
    CHECK(pace_book(&p, 500, 10 * S) == 0, "who comes first does not wait");
    CHECK(pace_book(&p, 500, 10 * S) == 400 * 1000, "who comes next waits for him");
    CHECK(pace_book(&p, 100, 10 * S) == 900 * 1000, "and so on");
    CHECK(pace_book(&p, 100, 11 * S) == 0, "who comes when all is done does not");
    CHECK(pace_book(&p, 1, 100 * S) == 0 && pace_book(&p, 100, 100 * S) == 0 &&
              pace_book(&p, 1, 100 * S) == 1000,
          "a long rest is not made up for");
}

static void test_slices(void)
{
    struct pace p;
    pace_init(&p, MIB);
    CHECK(pace_slice(&p) == MIB / 20, "a slice is what moves in 50 ms");
    pace_init(&p, 0);
    CHECK(pace_slice(&p) == 1024, "not too little of it");
    pace_init(&p, UINT64_MAX);
    CHECK(pace_slice(&p) == MIB, "nor too much");
}

int main(void)
{
    test_rate();
    test_turns();
    test_slices();
    return unit_done();
}
