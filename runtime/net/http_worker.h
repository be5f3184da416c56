/* A pool and its workers. Private to net/. */
#ifndef NC_NET_HTTP_WORKER_H
#define NC_NET_HTTP_WORKER_H

#include "net/http_easy.h"

#include <pthread.h>

enum { HTTP_RESOLUTIONS = 8 }; /* of a name, in each worker */

struct worker {
    struct http_pool *pool;
    unsigned index;
    pthread_t thread;
    bool started;
    CURLM *multi;
    uint32_t random;
    struct http_transfer *active; /* doubly linked */
    struct http_transfer *spare;
    /* libcurl keeps one list of a name's addresses and begins each connection with the first of
     * them. With several such caches, each in an order of its own, connections spread. */
    CURLSH *names[HTTP_RESOLUTIONS];
    unsigned transfers; /* made so far: the most that were ever in flight */
    unsigned kept;      /* connections that libcurl does not close when a request has ended */
    struct http_request *delayed; /* by start_after_ms */
    uint64_t resume_us; /* when the first of those that wait for their turn may go on; 0: none */
    uint64_t ticked_ms;
    uint64_t turn_ms; /* since when it is away from poll */
    uint64_t late_ms; /* when it last was for too long */
    /* Shared. */
    atomic_uint load; /* requests that are its own and not done */
    pthread_mutex_t lock;
    struct http_request *inbox, **inbox_end;
    bool look_for_cancelled;
    atomic_bool stopping;
};

struct http_pool {
    unsigned n;
    atomic_uint next;
    struct worker workers[];
};

/* A worker's thread (arg): from here to the end of the pool. */
void *http_work(void *arg);
/* The worker whose thread this is, or NULL. */
struct worker *http_this_worker(void);

#endif
