/* Part buffers: what is out and what is kept never exceed the budget together. */
#include "transfer/buffers.h"

#include <string.h>

#include "unit.h"

enum { KIB = 1024, SLOTS = 32, ROUNDS = 20000 };

static void test_budget(void)
{
    struct buffers b;
    buffers_init(&b, 100 * KIB);
    CHECK(buffers_have(&b, 100 * KIB), "all of the budget may be one part");
    CHECK(!buffers_have(&b, 100 * KIB + 1), "but not more");
    char *first = buffers_take(&b, 60 * KIB);
    CHECK(first && b.used == 60 * KIB, "what is out is counted");
    CHECK(buffers_have(&b, 40 * KIB) && !buffers_have(&b, 40 * KIB + 1), "the rest is free");
    CHECK(buffers_have(&b, 0), "an empty part always fits");
    char *empty = buffers_take(&b, 0);
    CHECK(empty && b.used == 60 * KIB, "and costs nothing");
    buffers_give(&b, empty);
    buffers_give(&b, first);
    CHECK(b.used == 0 && b.kept == 60 * KIB, "what comes back is kept");
    char *again = buffers_take(&b, 60 * KIB);
    CHECK(again == first && b.kept == 0, "and used again");
    buffers_give(&b, again);
    buffers_free(&b);
    CHECK(b.kept == 0, "until it is freed");
}

/* The memory of a long part stays resident when a short one takes its place. */
static void test_touched(void)
{
    struct buffers b;
    buffers_init(&b, 100 * KIB);
    char *p = buffers_take(&b, 60 * KIB);
    buffers_give(&b, p);
    p = buffers_take(&b, 40 * KIB);
    CHECK(b.used == 60 * KIB, "a buffer counts what it held before");
    char *q = buffers_take(&b, 40 * KIB);
    CHECK(b.used == 100 * KIB && !buffers_have(&b, 1), "beside a fresh one");
    buffers_give(&b, q);
    buffers_give(&b, p);
    q = buffers_take(&b, 20 * KIB);
    CHECK(b.used + b.kept <= 100 * KIB, "one of another size drops what is kept, if need be");
    p = buffers_take(&b, 60 * KIB);
    CHECK(p && b.used == 80 * KIB && b.kept <= 20 * KIB, "and so does a longer one");
    buffers_give(&b, p);
    buffers_give(&b, q);
    buffers_free(&b);
}

/* A huge page can only be had where one begins. */
static void test_large(void)
{
    enum { MIB = 1024 * KIB };
    struct buffers b;
    buffers_init(&b, 100 * MIB);
    static const size_t lens[] = {4096, MIB, 2 * MIB, 3 * MIB, 16 * MIB};
    char *data[5];
    bool pages = true, huge = true, whole = true;
    for (size_t i = 0; i < 5; i++) {
        data[i] = buffers_take(&b, lens[i]);
        memset(data[i], (int)i + 1, lens[i]);
        pages = pages && (uintptr_t)data[i] % 4096 == 0;
        huge = huge && (lens[i] < 2 * MIB || (uintptr_t)data[i] % (2 * MIB) == 0);
    }
    for (size_t i = 0; i < 5; i++) {
        whole = whole && data[i][0] == (char)(i + 1) && data[i][lens[i] - 1] == (char)(i + 1);
        buffers_give(&b, data[i]);
    }
    CHECK(pages, "a buffer begins with a page");
    CHECK(huge, "a large one with a huge page");
    CHECK(whole && b.kept == 22 * MIB + 4096, "and none lies in another");
    buffers_free(&b);
}

static uint32_t draw(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
}

static void test_at_random(void)
{
    struct buffers b;
    struct {
        char *data;
        size_t len;
        char fill;
    } out[SLOTS] = {0};
    const uint64_t budget = 300 * KIB;
    uint32_t x = 12345;
    uint64_t most = 0;
    bool within = true, intact = true, served = true;
    buffers_init(&b, budget);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned at = draw(&x) % SLOTS;
        if (out[at].data) {
            for (size_t j = 0; j < out[at].len; j += 1021)
                intact = intact && out[at].data[j] == out[at].fill;
            buffers_give(&b, out[at].data);
            out[at].data = NULL;
        } else {
            size_t len = draw(&x) % (100 * KIB);
            if (!buffers_have(&b, len))
                continue;
            out[at].data = buffers_take(&b, len);
            served = served && out[at].data;
            if (!out[at].data)
                continue;
            out[at].len = len;
            out[at].fill = (char)i;
            memset(out[at].data, out[at].fill, len);
        }
        within = within && b.used + b.kept <= budget;
        most = b.used > most ? b.used : most;
    }
    CHECK(within, "used and kept never exceed the budget together");
    CHECK(served, "what fits is served");
    CHECK(intact, "no buffer is handed out twice");
    CHECK(most > budget / 2, "and the budget is made use of");
    for (unsigned i = 0; i < SLOTS; i++) {
        if (out[i].data)
            buffers_give(&b, out[i].data);
    }
    CHECK(b.used == 0, "nothing is out at the end");
    buffers_free(&b);
}

int main(void)
{
    test_budget();
    test_touched();
    test_large();
    test_at_random();
    return unit_done();
}
