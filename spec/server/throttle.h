/* Holds a stream to a rate: each piece waits its turn on one shared timetable. Thread-safe. */
#ifndef NCDEV_THROTTLE_H
#define NCDEV_THROTTLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct throttle {
    pthread_mutex_t lock;
    atomic_uint_fast64_t rate; /* bytes a second; 0: no limit */
    uint64_t next_us;          /* when the next piece may go */
};

void throttle_init(struct throttle *t, uint64_t rate);
void throttle_free(struct throttle *t);
void throttle_set(struct throttle *t, uint64_t rate); /* from the next piece on */
uint64_t throttle_rate(const struct throttle *t);
/* How much to move at once so that the stream stays even: at most max, at least 1. */
size_t throttle_piece(const struct throttle *t, size_t max);
/* Returns when n more bytes may have moved, or when *stop became true. */
void throttle_wait(struct throttle *t, size_t n, const atomic_bool *stop);

#endif
