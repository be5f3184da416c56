/* Writes YAML through libyaml, value by value, into a buffer.
 *
 *     struct yaml_emitter *e = yaml_emit_open(&buf);
 *     yaml_emit_map(e); yaml_emit_string(e, "kind", 4); yaml_emit_string(e, "Job", 3);
 * yaml_emit_end(e); if (yaml_emit_close(e, &err)) ...
 *
 * Two blanks a level, lists not indented below their key, lines never folded, UTF-8. One owner, any
 * thread. The first failure latches: close reports it, calls in between are ignored. */
#ifndef NC_YAML_EMIT_H
#define NC_YAML_EMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct yaml_emitter;

/* The buffer is borrowed until close. NULL when memory has run out. */
struct yaml_emitter *yaml_emit_open(struct buf *out);

void yaml_emit_map(struct yaml_emitter *e);  /* then a key, its value, ..., end */
void yaml_emit_list(struct yaml_emitter *e); /* then values, end */
void yaml_emit_end(struct yaml_emitter *e);  /* of the innermost map or list */

/* A string, a key too, in the style of yaml_style_of. */
void yaml_emit_string(struct yaml_emitter *e, const char *s, size_t len);

/* What is no string, as its plain text: null, true, 8, 0.5. */
void yaml_emit_plain(struct yaml_emitter *e, const char *text);

/* Frees e. -1 with code "BadYaml" for a string that is no UTF-8, a depth of more than
 * YAML_EMIT_DEPTH or a text that outgrows the buffer. */
#define YAML_EMIT_DEPTH 64
int yaml_emit_close(struct yaml_emitter *e, struct nc_err *err);

#endif
