/* Digests: of every part as it comes, of every file in the order of its parts. Private to
 * transfer/; the lock is held but for check_part. */
#ifndef NC_TRANSFER_CHECK_H
#define NC_TRANSFER_CHECK_H

#include "transfer/state.h"

/* All digests of a part that has come, block by block, so that its bytes come from memory only
 * once: its own, the sink's, and the file's where it is this part's turn. Without the lock. */
int check_part(struct transfer *t, struct part *p, bool its_turn, struct nc_err *err);
/* The next part of its file has gone into the file's digest. */
void check_hashed(struct transfer *t, struct part *p);
/* Hashes what has come before its turn; one worker a file, without the lock while it computes. */
void check_in_order(struct transfer *t, struct file *f);

#endif
