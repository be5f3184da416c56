/* What begins when, on which thread. Private to transfer/.
 *
 * Whoever changes a transfer enters it, makes the change, and leaves it: leaving begins whatever
 * can be begun now, and notices that nothing is left. */
#ifndef NC_TRANSFER_SCHEDULE_H
#define NC_TRANSFER_SCHEDULE_H

#include "transfer/state.h"

void schedule_enter(struct transfer *t); /* takes the lock */
void schedule_leave(struct transfer *t); /* begins, looks, lets go of the lock */

/* Calls a hand where there is something for one to do. The lock is held. */
void schedule_call_hand(struct transfer *t);
/* Threads for a transfer with a local end, whose work would keep the caller's or a worker's. */
void schedule_call_hands(struct transfer *t);
/* In place of schedule_leave where nothing is to be begun on this thread; keeps the lock. */
void schedule_rest_when_over(struct transfer *t);

#endif
