/* An ordered map from strings to pointers: a skip list, so that listings walk keys in byte order
 * and start anywhere. The map owns its copies of the keys, not the values. No locking. */
#ifndef NCDEV_OMAP_H
#define NCDEV_OMAP_H

#include <stddef.h>
#include <stdint.h>

#define OMAP_LEVELS 20

struct omap_node {
    const char *key; /* behind the links */
    void *value;
    int levels;
    struct omap_node *next[]; /* next[0] is the successor */
};

struct omap {
    struct omap_node *head[OMAP_LEVELS]; /* head[0] is the first node */
    size_t count;
    uint64_t random;
};

struct omap_node *omap_seek(const struct omap *m, const char *key); /* first node >= key, or NULL */
void *omap_get(const struct omap *m, const char *key);              /* NULL when absent */
void *omap_put(struct omap *m, const char *key, void *value); /* the value replaced, or NULL */
void *omap_remove(struct omap *m, const char *key);           /* the value removed, or NULL */
void omap_free(struct omap *m); /* nodes and keys; take the values out first */

#endif
