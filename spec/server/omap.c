#include "omap.h"

#include "text.h"

#include <stdlib.h>
#include <string.h>

/* Fills before[i] with the link of level i that leads to the first node >= key. */
static void find(struct omap *m, const char *key, struct omap_node **before[OMAP_LEVELS])
{
    struct omap_node **links = m->head;
    for (int i = OMAP_LEVELS - 1; i >= 0; i--) {
        while (links[i] && strcmp(links[i]->key, key) < 0)
            links = links[i]->next;
        before[i] = &links[i];
    }
}

struct omap_node *omap_seek(const struct omap *m, const char *key)
{
    struct omap_node *const *links = m->head;
    for (int i = OMAP_LEVELS - 1; i >= 0; i--) {
        while (links[i] && strcmp(links[i]->key, key) < 0)
            links = links[i]->next;
    }
    return links[0];
}

void *omap_get(const struct omap *m, const char *key)
{
    const struct omap_node *n = omap_seek(m, key);
    return n && strcmp(n->key, key) == 0 ? n->value : NULL;
}

/* One level more with probability 1/2, from a linear congruence: any cheap generator does. */
static int draw_levels(struct omap *m)
{
    int levels = 1;
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    for (uint64_t bits = m->random >> 33; (bits & 1) && levels < OMAP_LEVELS; bits >>= 1)
        levels++;
    return levels;
}

void *omap_put(struct omap *m, const char *key, void *value)
{
    struct omap_node **before[OMAP_LEVELS];
    find(m, key, before);
    struct omap_node *n = *before[0];
    if (n && strcmp(n->key, key) == 0) {
        void *old = n->value;
        n->value = value;
        return old;
    }
    int levels = draw_levels(m);
    size_t links = sizeof n->next[0] * (size_t)levels, room = strlen(key) + 1;
    n = str_alloc(sizeof *n + links + room);
    n->key = memcpy((char *)n->next + links, key, room);
    n->value = value;
    n->levels = levels;
    for (int i = 0; i < levels; i++) {
        n->next[i] = *before[i];
        *before[i] = n;
    }
    m->count++;
    return NULL;
}

void *omap_remove(struct omap *m, const char *key)
{
    struct omap_node **before[OMAP_LEVELS];
    find(m, key, before);
    struct omap_node *n = *before[0];
    if (!n || strcmp(n->key, key) != 0)
        return NULL;
    for (int i = 0; i < n->levels; i++)
        *before[i] = n->next[i];
    void *value = n->value;
    free(n);
    m->count--;
    return value;
}

void omap_free(struct omap *m)
{
    struct omap_node *next;
    for (struct omap_node *n = m->head[0]; n; n = next) {
        next = n->next[0];
        free(n);
    }
    *m = (struct omap){0};
}
