#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void clean(char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
    }
}

int nc_err_set(struct nc_err *err, const char *code, const char *fmt, ...)
{
    if (!err)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    clean(err->message);
    snprintf(err->code, sizeof err->code, "%s", code);
    clean(err->code);
    err->status = 0;
    err->retryable = false;
    return -1;
}

int nc_err_sys(struct nc_err *err, int saved_errno, const char *fmt, ...)
{
    if (!err)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->message)
        snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", strerror(saved_errno));
    clean(err->message);
    const char *name = strerrorname_np(saved_errno);
    snprintf(err->code, sizeof err->code, "%s", name ? name : "EUNKNOWN");
    err->status = 0;
    err->retryable = false;
    return -1;
}
