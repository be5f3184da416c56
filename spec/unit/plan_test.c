/* How files are cut into parts, at and beyond S3's limits. */
#include "transfer/plan.h"

#include "unit.h"

static const uint64_t MIB = 1024 * 1024, GIB = 1024 * MIB, TIB = 1024 * GIB;

static uint64_t chosen(uint64_t size, uint64_t wish)
{
    uint64_t part = 0;
    struct nc_err err;
    return plan_part_size(size, wish, &part, &err) ? 0 : part;
}

static const char *refused(uint64_t size, uint64_t wish)
{
    static struct nc_err err;
    uint64_t part = 77;
    err = (struct nc_err){0};
    int rc = plan_part_size(size, wish, &part, &err);
    return rc && part == 77 ? err.code : "not refused";
}

static void test_parts(void)
{
    CHECK(plan_parts(0, 8 * MIB) == 1, "an empty file is one part");
    CHECK(plan_parts(1, 8 * MIB) == 1, "one byte is one part");
    CHECK(plan_parts(24 * MIB, 8 * MIB) == 3, "exactly three parts");
    CHECK(plan_parts(24 * MIB + 1, 8 * MIB) == 4, "a byte more is one part more");
    CHECK(plan_parts(24 * MIB - 1, 8 * MIB) == 3, "a byte less is as many");
    CHECK(plan_parts(UINT64_MAX, 1) == UINT32_MAX,
          "too many parts to count are the most there are");
    CHECK(plan_part_len(0, 8 * MIB, 0) == 0, "the part of an empty file is empty");
    CHECK(plan_part_len(24 * MIB + 1, 8 * MIB, 2) == 8 * MIB, "all parts are equal");
    CHECK(plan_part_len(24 * MIB + 1, 8 * MIB, 3) == 1, "but the last, which has the rest");
    CHECK(plan_part_len(24 * MIB, 8 * MIB, 3) == 0, "there is nothing after the last part");
}

static void test_sizes(void)
{
    CHECK(chosen(0, 0) == 8 * MIB, "an empty file's part size is the first one");
    CHECK(chosen(8000 * MIB - 1, 0) == 8 * MIB, "8 MiB up to 1,000 parts");
    CHECK(chosen(8000 * MIB, 0) == 16 * MIB, "then 16 MiB");
    CHECK(chosen(16000 * MIB, 0) == 32 * MIB, "then 32 MiB");
    CHECK(chosen(TIB / 2, 0) == 64 * MIB, "then 64 MiB");
    CHECK(chosen(640000 * MIB, 0) == 64 * MIB, "10,000 parts are allowed");
    CHECK(chosen(640000 * MIB + 1, 0) == 128 * MIB, "10,001 are not");
    CHECK(chosen(5 * TIB, 0) == GIB, "5 TiB is cut too");
    CHECK(plan_parts(5 * TIB, chosen(5 * TIB, 0)) == 5120, "into 5,120 parts");
    CHECK_STR(refused(5 * TIB + 1, 0), "EntityTooLarge", "a byte more is no object");
    CHECK_STR(refused(UINT64_MAX, 0), "EntityTooLarge", "nor is the largest number");
}

static void test_wishes(void)
{
    CHECK(chosen(100 * MIB, 5 * MIB) == 5 * MIB, "a wish for the least is met");
    CHECK(chosen(100 * MIB, 5 * GIB) == 5 * GIB, "and one for the most");
    CHECK_STR(refused(100 * MIB, 5 * MIB - 1), "Usage", "less than 5 MiB is refused");
    CHECK_STR(refused(100 * MIB, 5 * GIB + 1), "Usage", "more than 5 GiB is refused");
    CHECK_STR(refused(100 * MIB, UINT64_MAX), "Usage", "and so is the largest number");
    CHECK(chosen(50000 * MIB, 5 * MIB) == 5 * MIB, "10,000 parts of the wished size");
    CHECK_STR(refused(50000 * MIB + 1, 5 * MIB), "Usage", "10,001 of them are refused");
    CHECK(chosen(7 * MIB + 1, 6 * MIB + 1) == 6 * MIB + 1, "a wish may be odd");
}

/* Every size that is accepted is cut into parts that add up to it. */
static void test_sums(void)
{
    bool right = true;
    for (uint64_t size = 1; size <= 5 * TIB; size = size * 3 + 7) {
        uint64_t part = chosen(size, 0), sum = 0;
        uint32_t n = plan_parts(size, part);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t len = plan_part_len(size, part, i);
            right = right && len > 0 && (i + 1 == n || len == part);
            sum += len;
        }
        right = right && sum == size && n <= PLAN_PARTS_MAX && part >= PLAN_PART_MIN &&
                part <= PLAN_PART_MAX;
    }
    CHECK(right, "parts add up to their file, whatever its size");
}

int main(void)
{
    test_parts();
    test_sizes();
    test_wishes();
    test_sums();
    return unit_done();
}
