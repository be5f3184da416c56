#include "run/family.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop/child.h"

struct process {
    pid_t pid, parent, group;
    char state;
};

/* proc(5): pid (name) state ppid pgrp ...; the name may hold anything, so read from its end. */
static bool read_process(pid_t pid, struct process *p)
{
    char path[40], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    char *after = strrchr(text, ')');
    if (!after || strlen(after) < 5)
        return false;
    p->pid = pid;
    p->state = after[2];
    p->parent = (pid_t)strtol(after + 3, &after, 10);
    p->group = (pid_t)strtol(after, NULL, 10);
    return true;
}

/* Every process there is, in an array to free; none where /proc can't be read. */
static size_t read_all(struct process **out)
{
    size_t count = 0, cap = 0;
    *out = NULL;
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    for (struct dirent *e = readdir(proc); e; e = readdir(proc)) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid <= 0)
            continue;
        if (count == cap) {
            cap = cap ? cap * 2 : 256;
            struct process *more = reallocarray(*out, cap, sizeof *more);
            if (!more)
                break;
            *out = more;
        }
        count += read_process(pid, &(*out)[count]);
    }
    closedir(proc);
    return count;
}

static int by_pid(const void *a, const void *b)
{
    const struct process *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Whether p descends from us through `own` or through an orphan. The walk up is bounded: the table
 * is no snapshot, and numbers may have been used again meanwhile. */
static bool is_family(const struct process *all, size_t count, const struct process *p, pid_t own)
{
    pid_t us = getpid();
    for (int up = 0; p && up < 1000; up++) {
        if (p->parent == us)
            return p->pid == own || !child_owns(p->pid);
        struct process key = {.pid = p->parent};
        p = bsearch(&key, all, count, sizeof *all, by_pid);
    }
    return false;
}

size_t family_signal(pid_t own, int signal, pid_t but_group)
{
    struct process *all;
    size_t count = read_all(&all), living = 0;
    if (count)
        qsort(all, count, sizeof *all, by_pid);
    for (size_t i = 0; i < count; i++) {
        const struct process *p = &all[i];
        if (p->state == 'Z' || p->state == 'X' || !is_family(all, count, p, own))
            continue;
        living++;
        if (signal && (but_group == 0 || p->group != but_group))
            kill(p->pid, signal);
    }
    free(all);
    return living;
}

void family_reap(void)
{
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == 0)
            return;
        if (!child_reap_stranger(info.si_pid))
            break;
    }
    /* One that somebody stands for comes first in the kernel's list, and hides the others. */
    struct process *all;
    size_t count = read_all(&all);
    for (size_t i = 0; i < count; i++) {
        if (all[i].state == 'Z' && all[i].parent == getpid())
            child_reap_stranger(all[i].pid);
    }
    free(all);
}
