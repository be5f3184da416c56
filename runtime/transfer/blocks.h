/* Blocks of streamed parts that a worker hands over, so that it can go on receiving while hands
 * write them. Private to transfer/. */
#ifndef NC_TRANSFER_BLOCKS_H
#define NC_TRANSFER_BLOCKS_H

#include "transfer/state.h"

/* The part's block, which begins at `at` within it and holds len bytes, is to be written; the part
 * has a new one then, unless that was its last. May wait for hands, and for memory. Without the
 * lock. */
int blocks_hand_over(struct part *p, size_t at, size_t len, struct nc_err *err);
/* Waits until none of the part's is under way, and sees that it has a block. Without the lock. */
int blocks_begin_again(struct part *p, struct nc_err *err);
/* Writes one, on a hand; returns its part, or NULL where there is none. The lock is held. */
struct part *blocks_write_one(struct transfer *t);

#endif
