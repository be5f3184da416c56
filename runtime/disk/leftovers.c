#include "disk/leftovers.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char suffix[] = ".part";
enum { HEX = 8, TAIL = 1 + HEX + sizeof suffix - 1 }; /* ".xxxxxxxx.part" */

void leftovers_init(struct leftovers *l)
{
    *l = (struct leftovers){0};
    pthread_mutex_init(&l->lock, NULL);
}

void leftovers_free(struct leftovers *l)
{
    for (struct leftover *one = l->first, *next; one; one = next) {
        next = one->next;
        free(one->path);
        free(one);
    }
    for (size_t i = 0; i < l->count; i++)
        free(l->folders[i]);
    free(l->folders);
    pthread_mutex_destroy(&l->lock);
}

static bool is_temporary(const char *name)
{
    size_t len = strlen(name);
    if (len <= TAIL || strcmp(name + len - (sizeof suffix - 1), suffix) != 0)
        return false;
    const char *tail = name + len - TAIL;
    return tail[0] == '.' && strspn(tail + 1, "0123456789abcdef") == HEX;
}

/* Where the folder is in the list, or would be. */
static bool find(const struct leftovers *l, const char *folder, size_t *at)
{
    size_t low = 0, high = l->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(l->folders[middle], folder);
        if (order == 0)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low;
    return false;
}

static int remember(struct leftovers *l, char *folder, size_t at)
{
    if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 16;
        char **folders = realloc(l->folders, room * sizeof folders[0]);
        if (!folders)
            return -1;
        l->folders = folders;
        l->room = room;
    }
    memmove(l->folders + at + 1, l->folders + at, (l->count - at) * sizeof l->folders[0]);
    l->folders[at] = folder;
    l->count++;
    return 0;
}

static void add(struct leftovers *l, const char *folder, const char *name)
{
    struct leftover *one = malloc(sizeof *one);
    size_t len = strlen(folder), name_len = strlen(name);
    char *path = malloc(len + 1 + name_len + 1);
    if (!one || !path) {
        free(one);
        free(path);
        return;
    }
    memcpy(path, folder, len);
    path[len] = '/';
    memcpy(path + len + 1, name, name_len + 1);
    one->path = path;
    one->next = l->first;
    l->first = one;
}

/* A folder that can't be read has none that could be used. */
static void look_into(struct leftovers *l, const char *final)
{
    const char *slash = strrchr(final, '/');
    char *folder = strndup(final, slash ? (size_t)(slash - final) : 0);
    size_t at;
    if (!folder || find(l, folder, &at) || remember(l, folder, at)) {
        free(folder);
        return;
    }
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (is_temporary(entry->d_name))
            add(l, folder, entry->d_name);
    }
    closedir(dir);
}

char *leftovers_take(struct leftovers *l, const char *final)
{
    size_t len = strlen(final);
    char *path = NULL;
    pthread_mutex_lock(&l->lock);
    look_into(l, final);
    struct leftover **at = &l->first;
    while (*at && (strlen((*at)->path) != len + TAIL || memcmp((*at)->path, final, len) != 0))
        at = &(*at)->next;
    struct leftover *one = *at;
    if (one) {
        path = one->path;
        *at = one->next;
        free(one);
    }
    pthread_mutex_unlock(&l->lock);
    return path;
}
