/* How many parts are to be in flight: more for as long as more makes it faster, fewer when the
 * service says that it is too much. Pure; the caller brings the time and what was moved.
 *
 * Once a second, where all slots were in use: a level that moved at least a twentieth more than the
 * one before is followed by a higher one; one that did not is taken back, and tried again half a
 * minute later, since what else is on the way changes. A refusal (503, 429) takes a quarter off. */
#ifndef NC_TRANSFER_CLIMB_H
#define NC_TRANSFER_CLIMB_H

#include <stdbool.h>
#include <stdint.h>

struct climb {
    unsigned level;       /* slots now */
    unsigned least, most; /* equal: it stays */
    unsigned before;      /* the level that was left for this one; 0: not trying */
    uint64_t rate_before; /* what that one moved, per second */
    uint64_t since_ms;    /* this look began then */
    uint64_t done;        /* work done by then */
    uint64_t rest_ms;     /* no try before this */
    uint64_t refusals;    /* seen by then */
    bool was_full;        /* all slots were in use at some time since */
};

void climb_init(struct climb *c, unsigned level, unsigned least, unsigned most);
/* All slots are in use. */
void climb_full(struct climb *c);
/* At any time, as often as wanted. done: work so far, in any unit; refusals: so far. */
void climb_look(struct climb *c, uint64_t now_ms, uint64_t done, uint64_t refusals);

#endif
