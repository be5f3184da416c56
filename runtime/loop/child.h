/* A child process in a process group of its own.
 *
 * Created with posix_spawn: no memory is copied, and a program that can't be executed is an error
 * of child_spawn with the code "CommandNotFound" (a shell's 127) or "CommandNotExecutable" (126).
 * The child has the default disposition of every signal the loop catches and nothing blocked, and
 * of our descriptors only 0 to 2. Its zombie is kept until child_reap, so that its number can't be
 * given to someone else before. One owner, one thread at a time.
 */
#ifndef NC_LOOP_CHILD_H
#define NC_LOOP_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

enum child_io {
    CHILD_NULL,    /* /dev/null */
    CHILD_INHERIT, /* ours */
    CHILD_PIPE,    /* a pipe whose other end is in struct child */
    CHILD_FILE,    /* path: read as stdin; created, appended to as the others */
    CHILD_STDOUT,  /* stderr only: where stdout goes */
};

struct child_stream {
    enum child_io io;
    const char *path;
};

struct child_options {
    char *const *argv; /* NULL-terminated; argv[0] is looked up in our PATH */
    char *const *envp; /* NULL-terminated; NULL: our environment */
    const char *cwd;   /* NULL: ours */
    struct child_stream stream[3];
};

struct child {
    pid_t pid;  /* also the number of its process group */
    int pidfd;  /* readable once it has ended */
    int fd[3];  /* our ends of its pipes, non-blocking; -1 where there is none */
    bool ended; /* reaped; then one of: */
    int code;   /* its exit code */
    int signal; /* the signal that ended it, else 0 */
};

int child_spawn(struct child *c, const struct child_options *opt, struct nc_err *err);

/* Sends a signal to the whole group. False once it has been reaped, or when nobody is left. */
bool child_signal(const struct child *c, int signal);

/* The same for those of its group that are left once it has been reaped (a shell ends before what
 * it has started), while it is being closed: not later, when their number may be someone else's.
 * Takes the zombies among them that were left to us. False when nobody is left. */
bool child_signal_rest(const struct child *c, int signal);

/* Takes the exit status if there is one; true once ended. Never waits. */
bool child_reap(struct child *c);

void child_close(struct child *c, int stream); /* our end of one pipe */

/* Kills what has not ended, without waiting for it. Accepts one that was freed before. */
void child_free(struct child *c);

/* Whether a struct child that has not been reaped stands for this process. Any thread. */
bool child_owns(pid_t pid);

/* Takes the exit status of a child of ours that has ended, unless a struct child stands for it;
 * false then, or when there is none. Any thread. */
bool child_reap_stranger(pid_t pid);

#endif
