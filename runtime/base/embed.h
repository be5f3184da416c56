/* The files inside this binary, made by embed.sh at build time. Read-only, any thread.
 * A Lua module is named as `require` names it ("nc.task", "manifests.models"), a recipe by its path
 * ("recipes/stage-weights.lua"), what a build has made ("ca-certificates" in the static one) by its
 * file's name. */
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

/* NULL when there is none of that name. */
const struct embed_file *embed_find(const char *name);

#endif
