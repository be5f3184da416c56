/* What the hub and its CDN share. */
#ifndef NCDEV_HUB_H
#define NCDEV_HUB_H

#include "request.h"

/* The signature of a CDN URL: over the encoded path and the time it ends. */
void cdn_sign(const struct server *s, const char *path, int64_t expires, char hex[65]);
/* Text bodies that stand for a file: a login page or an LFS pointer, as the faults ask.
 * True: replied. */
bool hub_impostor(struct request *r, struct hub_snapshot *s, const struct hub_file *f);
/* The status of a status=CODE:NAME:RETRY fault; its parts are cut out of word. */
int hub_status_fault(const struct request *r, char word[96], const char **name, const char **retry);

#endif
