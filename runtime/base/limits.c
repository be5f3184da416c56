#include "base/limits.h"

#include "base/text.h"

#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* The first line of a small file; 0 where there is none. */
static int first_line(const char *path, char *out, int size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    char *got = fgets(out, size, f);
    fclose(f);
    return got ? 0 : -1;
}

/* CPU time in a period, both in microseconds, where a cgroup bounds it; "max" is no number. */
static void read_quota(uint64_t *quota, uint64_t *period)
{
    char line[128];
    const char *p = line;
    if (first_line("/sys/fs/cgroup/cpu.max", line, sizeof line) == 0) {
        if (text_take_u64(&p, quota) == 0 && *p++ == ' ')
            text_take_u64(&p, period);
        return;
    }
    if (first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line) == 0)
        text_take_u64(&p, quota);
    p = line;
    if (first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line) == 0)
        text_take_u64(&p, period);
}

unsigned limits_cpus(void)
{
    cpu_set_t set;
    unsigned n = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        n = (unsigned)CPU_COUNT(&set);
    } else {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        n = online > 0 ? (unsigned)online : 1;
    }
    uint64_t quota = 0, period = 0;
    read_quota(&quota, &period);
    if (quota && period) {
        uint64_t whole = (quota + period - 1) / period;
        if (whole < n)
            n = (unsigned)whole;
    }
    return n ? n : 1;
}

static void lower(uint64_t *least, uint64_t value)
{
    if (value && value < *least)
        *least = value;
}

uint64_t limits_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    uint64_t least = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    static const char *const files[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.high",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char line[64];
        const char *p = line;
        uint64_t limit;
        if (first_line(files[i], line, sizeof line) == 0 && text_take_u64(&p, &limit) == 0)
            lower(&least, limit);
    }
    static const int limits[] = {RLIMIT_AS, RLIMIT_DATA};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit lim;
        if (getrlimit((__rlimit_resource_t)limits[i], &lim) == 0 && lim.rlim_cur != RLIM_INFINITY)
            lower(&least, (uint64_t)lim.rlim_cur);
    }
    return least;
}
