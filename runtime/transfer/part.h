/* One part on its way. Private to transfer/. */
#ifndef NC_TRANSFER_PART_H
#define NC_TRANSFER_PART_H

#include "transfer/state.h"

/* Bytes of buffer that a part of this file needs, `len` long. */
size_t part_need(const struct file *f, size_t len);
/* Its share of a slot, in sixteenths: small ones cost a server little more than their round trip.
 */
unsigned part_weight(const struct part *p);
/* Of a length that weighs less than a slot. */
bool part_is_small(uint64_t len);
/* All its bytes have come: its digests in hex. Without the lock. NULL when they are right; else
 * err, filled. */
const struct nc_err *part_end(struct part *p, struct nc_err *err);
/* Its digests' memory. */
void part_free(struct part *p);

#endif
