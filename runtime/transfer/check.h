/* Digests of files, in the order of their parts. Private to transfer/; the lock is held. */
#ifndef NC_TRANSFER_CHECK_H
#define NC_TRANSFER_CHECK_H

#include "transfer/state.h"

/* A part that went into its file's digests as it came has come, or (well: false) has not. */
void check_turn_over(struct transfer *t, struct part *p, bool well);
/* Hashes what came before its turn: buffers here, one thread a file, without the lock while it
 * computes; for what is in the sink, a hand is asked to call check_reread. */
void check_in_order(struct transfer *t, struct file *f);
void check_reread(struct transfer *t, struct file *f);

#endif
