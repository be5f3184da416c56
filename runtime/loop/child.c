#include "loop/child.h"

#include "base/null.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The processes that a struct child stands for. Held while one is started, so that nobody takes it
 * for an orphan before it is in here. */
static pthread_mutex_t owned_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t *owned;
static size_t owned_count, owned_cap;

/* With the lock held, room for one more: before there is a process that could be forgotten. */
static bool own_room(void)
{
    if (owned_count < owned_cap)
        return true;
    size_t cap = owned_cap ? owned_cap * 2 : 16;
    pid_t *more = reallocarray(owned, cap, sizeof *more);
    if (!more)
        return false;
    owned = more;
    owned_cap = cap;
    return true;
}

static void disown(pid_t pid)
{
    pthread_mutex_lock(&owned_lock);
    for (size_t i = 0; i < owned_count; i++) {
        if (owned[i] == pid) {
            owned[i] = owned[--owned_count];
            break;
        }
    }
    pthread_mutex_unlock(&owned_lock);
}

static bool owns(pid_t pid)
{
    for (size_t i = 0; i < owned_count; i++) {
        if (owned[i] == pid)
            return true;
    }
    return false;
}

bool child_owns(pid_t pid)
{
    pthread_mutex_lock(&owned_lock);
    bool found = owns(pid);
    pthread_mutex_unlock(&owned_lock);
    return found;
}

bool child_reap_stranger(pid_t pid)
{
    siginfo_t info = {0};
    pthread_mutex_lock(&owned_lock);
    bool reaped = !owns(pid) && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0;
    pthread_mutex_unlock(&owned_lock);
    return reaped && info.si_pid;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int open_pipe(int stream, int *ours, int *theirs, struct nc_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return nc_err_sys(err, errno, "open a pipe");
    *ours = stream == 0 ? ends[1] : ends[0];
    *theirs = stream == 0 ? ends[0] : ends[1];
    fcntl(*ours, F_SETFL, O_NONBLOCK);
    return 0;
}

/* Opens what the child gets as one of 0, 1, 2. `theirs` stays -1 where nothing is to be replaced.
 */
static int open_stream(struct child *c, int stream, const struct child_stream *s, int *theirs,
                       struct nc_err *err)
{
    const char *path = s->path;
    int flags = stream == 0 ? O_RDONLY : O_WRONLY | O_CREAT | O_APPEND;
    switch (s->io) {
    case CHILD_INHERIT:
    case CHILD_STDOUT:
        return 0;
    case CHILD_PIPE:
        return open_pipe(stream, &c->fd[stream], theirs, err);
    case CHILD_NULL:
        path = "/dev/null";
        *theirs = null_open(stream != 0);
        break;
    case CHILD_FILE:
        *theirs = open(path, flags | O_CLOEXEC, 0666);
        break;
    }
    return *theirs < 0 ? nc_err_sys(err, errno, "open %s", path) : 0;
}

static int exec_error(const struct child_options *opt, int saved, struct nc_err *err)
{
    struct stat st;
    const char *name = opt->argv[0];
    /* posix_spawn says only which error it was, not of which step. */
    if (opt->cwd && (stat(opt->cwd, &st) || access(opt->cwd, X_OK)))
        return nc_err_sys(err, errno, "start %s in %s", name, opt->cwd);
    switch (saved) {
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case E2BIG:
        return nc_err_sys(err, saved, "start %s", name);
    case ENOENT:
    case ENOTDIR:
        return nc_err_set(err, "CommandNotFound", "start %s: command not found", name);
    default:
        return nc_err_set(err, "CommandNotExecutable", "start %s: %s", name, strerror(saved));
    }
}

static int spawn(struct child *c, const struct child_options *opt, const int theirs[3])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);

    for (int i = 0; i < 3; i++) {
        if (theirs[i] >= 0)
            posix_spawn_file_actions_adddup2(&actions, theirs[i], i);
    }
    if (opt->stream[2].io == CHILD_STDOUT)
        posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (opt->cwd)
        posix_spawn_file_actions_addchdir_np(&actions, opt->cwd);

    /* What we block or ignore is our own business: the child starts with a clean slate. */
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    sigaddset(&defaults, SIGTERM);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);

    pthread_mutex_lock(&owned_lock);
    int failed = own_room() ? posix_spawnp(&c->pid, opt->argv[0], &actions, &attr, opt->argv,
                                           opt->envp ? opt->envp : environ)
                            : ENOMEM;
    if (!failed)
        owned[owned_count++] = c->pid;
    pthread_mutex_unlock(&owned_lock);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

int child_spawn(struct child *c, const struct child_options *opt, struct nc_err *err)
{
    *c = (struct child){.pidfd = -1, .fd = {-1, -1, -1}, .ended = true};
    int theirs[3] = {-1, -1, -1};
    int rc = -1;

    for (int i = 0; i < 3; i++) {
        if (open_stream(c, i, &opt->stream[i], &theirs[i], err))
            goto out;
    }
    int failed = spawn(c, opt, theirs);
    if (failed) {
        exec_error(opt, failed, err);
        goto out;
    }
    c->ended = false;
    c->pidfd = pidfd_open(c->pid, 0);
    if (c->pidfd < 0) {
        nc_err_sys(err, errno, "watch the process of %s", opt->argv[0]);
        goto out;
    }
    rc = 0;
out:
    for (int i = 0; i < 3; i++)
        close_fd(&theirs[i]);
    if (rc)
        child_free(c);
    return rc;
}

bool child_signal(const struct child *c, int signal)
{
    return !c->ended && kill(-c->pid, signal) == 0;
}

bool child_signal_rest(const struct child *c, int signal)
{
    if (!c->ended)
        return child_signal(c, signal);
    siginfo_t info;
    do {
        info.si_pid = 0;
    } while (waitid(P_PGID, (id_t)c->pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid);
    return kill(-c->pid, signal) == 0;
}

bool child_reap(struct child *c)
{
    siginfo_t info = {0};
    if (c->ended)
        return true;
    if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG) || info.si_pid == 0)
        return false;
    c->ended = true;
    disown(c->pid);
    if (info.si_code == CLD_EXITED)
        c->code = info.si_status;
    else
        c->signal = info.si_status;
    return true;
}

void child_close(struct child *c, int stream)
{
    close_fd(&c->fd[stream]);
}

void child_free(struct child *c)
{
    for (int i = 0; i < 3; i++)
        close_fd(&c->fd[i]);
    if (child_signal(c, SIGKILL) && !child_reap(c))
        disown(c->pid);
    close_fd(&c->pidfd);
    c->ended = true;
}
