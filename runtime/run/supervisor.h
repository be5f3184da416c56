/* One command and everything that descends from it, from its start to the last of them.
 *
 * A thread of its own carries what the command writes, passes signals on (TERM INT HUP QUIT USR1
 * USR2, to its process group), reaps zombies (also those of strangers: we may be PID 1), and ends
 * it all: nothing that Lua, a log or a bucket does is on that way.
 *
 *     running   --TERM or INT, supervisor_stop-->  stopping   everybody told; the grace runs
 *     running   --the command has ended------->    stopping   what it left behind is told: 1 s
 *     stopping  --another TERM or INT--------->    stopping   1 s is left; with a third, none
 *     stopping  --the grace is over----------->    killing    SIGKILL, again and again
 *     any       --nobody is left-------------->    over       the rest of its output is carried
 *     killing   --2 s------------------------->    over       someone can't be killed
 *
 * "Everybody" is the command's process group and, when it is to end, all other descendants of ours
 * (family.h): one that has called setsid is told with a TERM of its own. The command's exit status
 * is its own, whatever happened to the others.
 *
 * While there is a supervisor the loop gets no signals; from supervisor_end on it does again.
 */
#ifndef NC_RUN_SUPERVISOR_H
#define NC_RUN_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/child.h"
#include "run/sink.h"

struct supervisor;

struct supervisor_options {
    struct child_options command; /* its streams are ours to set, but for stdin */
    uint64_t grace_ms;            /* from the first TERM to SIGKILL */
    struct sink *const *sinks;    /* where its stdout and stderr go; borrowed until the end */
    size_t sink_count;
    uint64_t told_token;   /* posted to the main loop with the first signal that asks to stop */
    uint64_t warned_token; /* ... with each USR1: a batch system says that the end is near */
    uint64_t over_token;   /* posted when it is over, and its output in the sinks or given up */
};

struct supervisor_result {
    int code;   /* the command's exit code */
    int signal; /* the signal that ended it, else 0 */
};

/* Main thread: from now on USR1 and USR2 don't end us. What of them comes before the command starts
 * is dropped: it could not be ready for them yet. */
void supervisor_hold_signals(void);

/* Main thread, once at a time. A command that can't be started is an error of child_spawn. */
int supervisor_start(struct supervisor **out, const struct supervisor_options *opt,
                     struct nc_err *err);
/* As a TERM from outside. Any thread. */
void supervisor_stop(struct supervisor *s);
/* Whether the command itself has ended, whoever else is left. Any thread. */
bool supervisor_ended(const struct supervisor *s);
/* After over_token. */
struct supervisor_result supervisor_result(const struct supervisor *s);
/* Main thread. Kills what has not ended and waits for that. Accepts NULL. */
void supervisor_free(struct supervisor *s);

#endif
