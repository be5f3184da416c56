/* What went wrong, as a value.
 *
 * A function that can fail returns 0 or -1 and takes a struct nc_err, filled once, where most is
 * known, and passed up unchanged. `code` is a short machine name ("NoSuchKey", "Timeout",
 * "ENOSPC"); `message` is one sentence for a person: what was tried, on what, what came back.
 * Neither ever holds a secret. The struct owns nothing; copy it freely between threads.
 */
#ifndef NC_BASE_ERR_H
#define NC_BASE_ERR_H

#include <stdbool.h>

struct nc_err {
    char code[48];     /* empty: no error */
    char message[640]; /* UTF-8, no control characters */
    int status;        /* HTTP status where there was one, else 0 */
    bool retryable;    /* trying the same again later may succeed */
};

/* Fills *err (a NULL err is allowed and ignored). The formatted text is cut at the field's size
 * and its control characters become '?'. Clears status and retryable. Returns -1 always, so that
 * a caller can `return nc_err_set(...)`. */
int nc_err_set(struct nc_err *err, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As nc_err_set with code taken from errno's value (its name, such as "ENOENT") and
 * ": <strerror>" appended to the message. */
int nc_err_sys(struct nc_err *err, int saved_errno, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
