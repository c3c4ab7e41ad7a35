/* Limits of the control groups that hold this process, version 1 or 2. Only src/os uses it. */
#ifndef HALLEY_OS_CGROUP_H
#define HALLEY_OS_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* The first bytes of a small file, NUL-terminated; false when there is none or it is empty. */
bool hl_read_small(const char *path, char *out, size_t capacity);

/* The least positive answer over the process's group and every group above it; 0 when none has a
 * limit. controller  "cpu" or "memory", for version 1 v2, v1      read the limit from one group's
 * folder; 0: none */
double hl_cgroup_least(const char *root, const char *controller, double (*v2)(const char *folder),
                       double (*v1)(const char *folder));

#endif
