/* What this process may use of the machine: CPUs and memory, as affinity, cgroups (v1 and v2) and
 * rlimits say. Read at each call; any thread. */
#ifndef NC_BASE_LIMITS_H
#define NC_BASE_LIMITS_H

#include <stdint.h>

/* At least 1. A cgroup quota of 1.5 CPUs counts as 2. */
unsigned limits_cpus(void);

/* Bytes: the smallest of physical memory, the cgroup's limit and RLIMIT_AS / RLIMIT_DATA. */
uint64_t limits_memory(void);

#endif
