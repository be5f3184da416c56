/* A descriptor that stands for nothing, where a program must have one. Any thread. */
#ifndef NC_BASE_NULL_H
#define NC_BASE_NULL_H

#include <stdbool.h>

/* /dev/null, for reading or for output. An image may have no /dev: then reading is at its end at
 * once, and writing fails as on a closed descriptor. CLOEXEC; -1 with errno. */
int null_open(bool output);

#endif
