#include "base/embed.h"

#include <string.h>

const struct embed_file *embed_find(const char *name)
{
    for (uint64_t i = 0; i < embed_count; i++) {
        if (strcmp(embed_files[i].name, name) == 0)
            return &embed_files[i];
    }
    return NULL;
}
