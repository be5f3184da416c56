/* What is to be begun next, if anything may be. Private to transfer/; the lock is held. */
#ifndef NC_TRANSFER_CHOOSE_H
#define NC_TRANSFER_CHOOSE_H

#include "transfer/state.h"

/* A part to fetch (or, direct, to copy), with its buffer; NULL where no slot, buffer or file is. */
struct part *choose_part(struct transfer *t);
/* Whether there may be one; false is certain. */
bool choose_may(const struct transfer *t);
/* Whether that will be a small file, as far as can be told. */
bool choose_is_small(const struct transfer *t);
/* Sixteenths of slots that are free for parts that wait to be stored. */
unsigned choose_room(const struct transfer *t);
/* Whether half of them are: time to read on. A hand is not to be called for each part. */
bool choose_is_low(const struct transfer *t);
/* A part to store, or NULL. */
struct part *choose_ready(struct transfer *t);
/* A file that is to be opened, finished or left, or NULL. */
struct file *choose_chore(struct transfer *t);
/* Comes to the file's next part that is neither stored nor on its way; false where there is none.
 */
bool choose_skip(struct file *f);

#endif
