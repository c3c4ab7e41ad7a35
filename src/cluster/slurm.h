/* What Slurm tells beyond ranks: tasks on this node, and where they can meet. */
#ifndef HALLEY_CLUSTER_SLURM_H
#define HALLEY_CLUSTER_SLURM_H

#include <stddef.h>

#include "halley/status.h"

/* Tasks of this step on this node; 0: not told. */
int hl_slurm_tasks_here(void);
/* "node:port": the first node of the step, and a port that depends on job and step. HL_END: not
 * told. */
enum hl_status hl_slurm_address(char *out, size_t capacity);

#endif
