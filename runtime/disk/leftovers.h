/* What runs that are over have left half-written: NAME.<8 hex digits>.part beside the NAME that it
 * was to become, and its journal NAME.<8 hex digits>.parts.
 *
 * A folder is read once, when the first of its names is asked for; so ask before you write there.
 * Any thread. */
#ifndef NC_DISK_LEFTOVERS_H
#define NC_DISK_LEFTOVERS_H

#include <pthread.h>
#include <stddef.h>

struct leftover {
    char *path; /* of the .part; owned */
    struct leftover *next;
};

struct leftovers {
    pthread_mutex_t lock;
    char **folders; /* read so far, sorted; owned */
    size_t count, room;
    struct leftover *first;
};

void leftovers_init(struct leftovers *l);
void leftovers_free(struct leftovers *l);
/* One that was to become `final`, for the caller to free; NULL when there is none (any more). */
char *leftovers_take(struct leftovers *l, const char *final);

#endif
