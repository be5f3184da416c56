/* How a file is cut into parts. Pure functions.
 *
 * S3's limits hold for every sink, so that a copy has the same parts wherever it lies: equal parts
 * (the last one shorter), at most 10,000, each from 5 MiB (but the last) to 5 GiB.
 */
#ifndef NC_TRANSFER_PLAN_H
#define NC_TRANSFER_PLAN_H

#include "base/err.h"

#include <stdint.h>

#define PLAN_PARTS_MAX 10000u
#define PLAN_PART_MIN ((uint64_t)5 << 20)
#define PLAN_PART_MAX ((uint64_t)5 << 30)
#define PLAN_FILE_MAX ((uint64_t)5 << 40) /* the largest object S3 keeps */

/* The part size for a file of `size` bytes, in bytes. `wish` 0: 8 MiB, doubled while the file
 * would have more than 1,000 parts and a part stays within 64 MiB. A wish that gives too many
 * parts is refused, as is one outside the limits and a file over 5 TiB. */
int plan_part_size(uint64_t size, uint64_t wish, uint64_t *out, struct nc_err *err);

/* Parts of a file, at least 1 (an empty file is one empty part). */
uint32_t plan_parts(uint64_t size, uint64_t part_size);

/* Length of part `index` (from 0). */
uint64_t plan_part_len(uint64_t size, uint64_t part_size, uint32_t index);

#endif
