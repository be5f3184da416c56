/* What the hub and its CDN share. */
#ifndef NCDEV_HUB_H
#define NCDEV_HUB_H

#include "request.h"

/* The signature of a CDN URL: over the encoded path and the time it ends. */
void cdn_sign(struct server *s, const char *path, int64_t expires, char hex[65]);
/* Text bodies that stand for a file: a login page or an LFS pointer, as the faults ask.
 * True: replied. */
bool hub_impostor(struct request *r, struct hub_snapshot *s, const struct hub_file *f);

#endif
