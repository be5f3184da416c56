/* The processes that descend from this one, found by walking /proc.
 *
 * A child may leave its process group (setsid) but not its ancestry: main makes us a subreaper, so
 * an orphan's parent is us. Left out are children that a struct child other than the given one
 * stands for (a credential helper, say), and what descends from those. Any thread.
 */
#ifndef NC_RUN_FAMILY_H
#define NC_RUN_FAMILY_H

#include <stddef.h>
#include <sys/types.h>

/* How many of them live (zombies don't); each is sent the signal, but for those of process group
 * `but_group` (0: no exception). Signal 0 only counts. `own` is the child that counts itself. */
size_t family_signal(pid_t own, int signal, pid_t but_group);

/* Takes the exit status of every ended child that no struct child stands for: what a dead child
 * left to us, and as PID 1 everybody's orphans. */
void family_reap(void);

#endif
