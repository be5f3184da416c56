/* The Lua files inside this binary, made by embed.sh at build time. Read-only, any thread.
 * A module is named as `require` names it ("nc.task", "manifests.models"), a recipe by its path
 * ("recipes/stage-weights.lua"). */
#ifndef NC_BASE_EMBED_H
#define NC_BASE_EMBED_H

#include <stddef.h>
#include <stdint.h>

struct embed_file {
    const char *name;
    const char *path;  /* in the source tree */
    const char *start; /* the bytes, NUL-terminated at end */
    const char *end;
};

extern const struct embed_file embed_files[];
extern const uint64_t embed_count;

#endif
