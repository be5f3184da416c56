/* How many parts are to be in flight, second by second. */
#include "transfer/climb.h"

#include "unit.h"

enum { MIB = 1024 * 1024 };

/* A second in which all slots were in use and `moved` came. */
struct clock {
    struct climb c;
    uint64_t now_ms, done, refusals;
};

static struct clock at_level(unsigned level, unsigned least, unsigned most)
{
    struct clock k = {.now_ms = 5000};
    climb_init(&k.c, level, least, most);
    climb_look(&k.c, k.now_ms, 0, 0);
    return k;
}

static unsigned second(struct clock *k, bool full, uint64_t moved)
{
    k->now_ms += 1000;
    k->done += moved;
    if (full)
        climb_full(&k->c);
    climb_look(&k->c, k->now_ms, k->done, k->refusals);
    return k->c.level;
}

static void test_up(void)
{
    struct clock k = at_level(16, 4, 64);
    CHECK(second(&k, false, 100 * MIB) == 16, "slots that are not all in use are enough");
    CHECK(second(&k, true, 100 * MIB) == 25, "where all are in use, half as many more are tried");
    CHECK(second(&k, true, 105 * MIB) == 38, "a twentieth more is worth it");
    CHECK(second(&k, true, 200 * MIB) == 58, "and so on");
    CHECK(second(&k, true, 400 * MIB) == 64, "up to the most that is allowed");
    CHECK(second(&k, true, 800 * MIB) == 64, "and not beyond");
}

static void test_back(void)
{
    struct clock k = at_level(16, 4, 64);
    second(&k, true, 100 * MIB);
    CHECK(second(&k, true, 104 * MIB) == 16, "what is not faster is taken back");
    for (int i = 0; i < 29; i++)
        second(&k, true, 100 * MIB);
    CHECK(k.c.level == 16, "and not tried for half a minute");
    CHECK(second(&k, true, 100 * MIB) == 25, "but then again");
    CHECK(second(&k, false, 0) == 16, "nothing at all is not faster");
}

static void test_refused(void)
{
    struct clock k = at_level(16, 4, 64);
    k.refusals = 3;
    CHECK(second(&k, true, 100 * MIB) == 12, "a refusal takes a quarter off");
    CHECK(second(&k, true, 100 * MIB) == 12, "once");
    for (int i = 0; i < 3; i++)
        second(&k, true, 100 * MIB);
    CHECK(k.c.level == 12, "for five seconds no more are tried");
    CHECK(second(&k, true, 100 * MIB) == 19, "then they are");
    k.refusals++;
    CHECK(second(&k, true, 1) == 15, "a refused try is not what it is measured by");
    for (int i = 0; i < 40; i++) {
        k.refusals++;
        second(&k, true, 1);
    }
    CHECK(k.c.level == 4, "however often, some are left");
    struct clock one = at_level(1, 1, 64);
    one.refusals = 1;
    CHECK(second(&one, true, 1) == 1, "the last one stays");
}

static void test_fixed(void)
{
    struct clock k = at_level(8, 8, 8);
    CHECK(second(&k, true, MIB) == 8 && second(&k, true, 100 * MIB) == 8,
          "a number that was given does not climb");
    k.refusals = 1;
    CHECK(second(&k, true, MIB) == 8, "nor does it fall");
}

static void test_looks(void)
{
    struct clock k = at_level(16, 4, 64);
    climb_full(&k.c);
    for (int i = 0; i < 999; i++)
        climb_look(&k.c, k.now_ms + (uint64_t)i, 100 * MIB, 5);
    CHECK(k.c.level == 16, "nothing is judged within a second");
    climb_look(&k.c, k.now_ms + 1000, 100 * MIB, 0);
    CHECK(k.c.level == 25, "but what was in use within it counts");

    struct clock slow = at_level(16, 4, 64);
    second(&slow, true, 100 * MIB);
    slow.now_ms += 9000; /* nobody looked */
    CHECK(second(&slow, true, 500 * MIB) == 16, "a long look is judged by what came per second");

    struct clock less = at_level(16, 4, 64);
    second(&less, true, 100 * MIB);
    less.done -= 50 * MIB;
    CHECK(second(&less, true, 0) == 16, "what is taken back is no speed");
}

/* A service that gives so much a slot, and no more than so much in all. */
static unsigned settles(unsigned level, unsigned slots_that_help)
{
    struct clock k = at_level(level, 4, 256);
    for (int i = 0; i < 120; i++) {
        unsigned helping = k.c.level < slots_that_help ? k.c.level : slots_that_help;
        second(&k, true, (uint64_t)helping * MIB);
    }
    while (k.c.before) /* a try is on */
        second(&k, true, (uint64_t)slots_that_help * MIB);
    return k.c.level;
}

static void test_settles(void)
{
    unsigned at_100 = settles(16, 100), at_20 = settles(16, 20);
    CHECK(at_100 >= 100 && at_100 < 160, "it comes to where more no longer helps");
    CHECK(at_20 >= 20 && at_20 < 40, "also when that is near");
    CHECK(settles(16, 8) == 16, "and stays where more never did");
}

int main(void)
{
    test_up();
    test_back();
    test_refused();
    test_fixed();
    test_looks();
    test_settles();
    return unit_done();
}
