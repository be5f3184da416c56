#include "transfer/plan.h"

#include <inttypes.h>

static const uint64_t first_size = (uint64_t)8 << 20;
static const uint64_t doubled_up_to = (uint64_t)64 << 20;
enum { PARTS_WANTED = 1000 };

int plan_part_size(uint64_t size, uint64_t wish, uint64_t *out, struct nc_err *err)
{
    if (size > PLAN_FILE_MAX)
        return nc_err_set(err, "EntityTooLarge",
                          "%" PRIu64 " bytes is more than the 5 TiB that an "
                          "object can have",
                          size);
    if (wish && (wish < PLAN_PART_MIN || wish > PLAN_PART_MAX))
        return nc_err_set(err, "Usage", "part_size is from 5 MiB to 5 GiB, not %" PRIu64 " bytes",
                          wish);
    uint64_t part = wish ? wish : first_size;
    while (!wish && part < doubled_up_to && size / part >= PARTS_WANTED)
        part *= 2;
    if (!wish) {
        while (plan_parts(size, part) > PLAN_PARTS_MAX)
            part *= 2;
    }
    if (plan_parts(size, part) > PLAN_PARTS_MAX)
        return nc_err_set(err, "Usage",
                          "part_size %" PRIu64 " would cut %" PRIu64 " bytes into "
                          "more than 10,000 parts; use at least %" PRIu64,
                          wish, size, (size + PLAN_PARTS_MAX - 1) / PLAN_PARTS_MAX);
    *out = part;
    return 0;
}

uint32_t plan_parts(uint64_t size, uint64_t part_size)
{
    uint64_t n = size / part_size + (size % part_size != 0);
    if (n > UINT32_MAX)
        return UINT32_MAX;
    return n ? (uint32_t)n : 1;
}

uint64_t plan_part_len(uint64_t size, uint64_t part_size, uint32_t index)
{
    uint64_t start = (uint64_t)index * part_size;
    uint64_t left = size > start ? size - start : 0;
    return left < part_size ? left : part_size;
}
