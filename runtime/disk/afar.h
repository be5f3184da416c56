/* Looks at a folder whose file system may not answer: a network mount whose server is gone holds
 * whoever touches it, past any signal. Each is done by a thread of its own, which is left behind
 * when nobody waits for it any more. */
#ifndef NC_DISK_AFAR_H
#define NC_DISK_AFAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum afar_what {
    AFAR_READ,  /* a file's bytes */
    AFAR_LIST,  /* the plain files below a folder; links are followed */
    AFAR_CLOCK, /* the time by the clock of whoever keeps the folder */
};

struct afar_file {
    char *path; /* below the folder */
    uint64_t size;
    double modified;
};

/* Times are seconds since 1970. */
struct afar_answer {
    bool failed;
    struct nc_err err; /* why */
    bool there;        /* READ, LIST: else all below is empty */
    char *text;        /* READ */
    size_t len;
    double time; /* READ: when it was written; CLOCK */
    struct afar_file *files;
    size_t count, room;
};

struct afar;

/* `answered` is called once, by that thread, unless afar_free comes first. */
int afar_ask(struct afar **out, enum afar_what what, const char *path, void (*answered)(void *arg),
             void *arg, struct nc_err *err);
/* Once it was; owned by the afar. */
const struct afar_answer *afar_answer(const struct afar *a);
/* At any time, without waiting; NULL is allowed. */
void afar_free(struct afar *a);

/* What AFAR_CLOCK does, here and now: the time given to a new file in the folder. */
int afar_clock(const char *folder, double *seconds, struct nc_err *err);

#endif
