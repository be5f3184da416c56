/* Carries what a child writes from its pipe to some sinks, on a thread of its own.
 *
 * The pipe is read whatever becomes of the sinks, so that no child is ever stopped by a log. Bytes
 * go on as they come: no lines, no encoding. The sinks are borrowed until relay_free.
 */
#ifndef NC_RUN_RELAY_H
#define NC_RUN_RELAY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "run/sink.h"

struct relay;

/* Takes ownership of fd, the reading end of a pipe, non-blocking. The array is copied. */
int relay_new(struct relay **out, int fd, struct sink *const *sinks, size_t count,
              struct nc_err *err);
/* Reads what is in the pipe, but for no longer than max_ms, and ends: whoever holds the other end
 * open is not waited for. Accepts NULL. */
void relay_free(struct relay *r, uint64_t max_ms);

#endif
