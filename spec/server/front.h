/* The listening ports: libmicrohttpd with a thread for each connection. */
#ifndef NCDEV_FRONT_H
#define NCDEV_FRONT_H

#include "base/err.h"
#include "server.h"

struct front; /* both ports */

/* Fills s->port and s->cdn_port. */
int front_start(struct front **out, struct server *s, struct nc_err *err);
void front_stop(struct front *f); /* ends every connection, waits for the threads */

#endif
