/* Several ranks in one test: each is a process that a fork made, with an end of a pool wire. */
#ifndef HALLEY_TESTS_PROCESSES_H
#define HALLEY_TESTS_PROCESSES_H

#include "support/ranks.h"
#include "wires/pool.h"

/* As ranks_run, over a new pool that spec describes. What a body writes to `shared` stays in its
 * own process. A rank that a signal ends is buried; one that a signal stops is killed when all
 * others have ended. may_die: ranks (bits) that need not return. */
void processes_run(const struct hl_pool_wire_spec *spec, void (*body)(struct rank_context *r),
                   void *shared, unsigned may_die);
/* The same over a pool whose job has begun already; no rank may die. */
void processes_run_on(struct hl_pool *pool, void (*body)(struct rank_context *r), void *shared);

#endif
