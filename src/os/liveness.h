/* Whether another process of this machine still runs. */
#ifndef HALLEY_OS_LIVENESS_H
#define HALLEY_OS_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

/* It has ended; whether its parent has noticed does not matter. A stopped process runs. */
bool hl_process_gone(int64_t pid);

/* Equal for processes that see each other under their pids: one boot of one kernel, one namespace.
 * 0: not known. */
uint64_t hl_process_space(void);

#endif
