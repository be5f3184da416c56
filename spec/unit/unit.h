/* A C unit test: each CHECK is one counted result in TAP, so `prove`-like runners can read it.
 *
 *     int main(void) { CHECK_STR(hex("a"), "61", "one byte"); return unit_done(); }
 */
#ifndef NC_SPEC_UNIT_H
#define NC_SPEC_UNIT_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int unit_count, unit_failed;

static inline void unit_check(bool ok, const char *file, int line, const char *what)
{
    unit_count++;
    if (!ok)
        unit_failed++;
    printf("%s %d - %s\n", ok ? "ok" : "not ok", unit_count, what);
    if (!ok)
        printf("# %s:%d\n", file, line);
    fflush(stdout); /* a child that the test forks must not say it again */
}

static inline void unit_check_str(const char *got, const char *want, const char *file, int line,
                                  const char *what)
{
    bool ok = got && want && strcmp(got, want) == 0;
    unit_check(ok, file, line, what);
    if (!ok)
        printf("#  got: %s\n# want: %s\n", got ? got : "(null)", want ? want : "(null)");
}

static inline int unit_done(void)
{
    printf("1..%d\n", unit_count);
    return unit_failed ? 1 : 0;
}

#define CHECK(cond, what) unit_check((cond), __FILE__, __LINE__, (what))
#define CHECK_STR(got, want, what) unit_check_str((got), (want), __FILE__, __LINE__, (what))

#endif
