/* Ranks of a test that meet over any wire that one machine can have, with wrappers in front of it:
 * threads of the test or, where the wire is one for processes, processes that it forks. */
#ifndef HALLEY_TESTS_MEETING_H
#define HALLEY_TESTS_MEETING_H

#include "support/ranks.h"

struct meeting {
    const char *wire;     /* its name: of wires.def, or sim */
    const char *wrappers; /* as --wire_wrappers; NULL: none */
    int n_ranks, n_lanes;
    size_t part_bytes;
    struct hl_mem **mem; /* [n_ranks], of each rank's wire; NULL: the process's */
};

/* Over which wires can ranks of a test meet here? NULL-terminated. */
const char *const *meeting_wires(void);
/* It takes a second to meet over it. */
bool meeting_is_slow(const char *wire);
/* Those of wires.def that a test cannot have: ranks are started by somebody else. */
bool meeting_is_elsewhere(const char *wire);

/* As ranks_run, but failures are returned, so that any thread may ask where ranks are threads:
 * false with the rank and what it said in why. killed_out: bits of the ranks that a signal ended.
 * With processes, what a body writes to `shared` is seen by others only in memory of
 * meeting_memory. */
bool meeting_run(const struct meeting *m, void (*body)(struct rank_context *r), void *shared,
                 unsigned *killed_out, char why[500]);

/* Zeroed memory that forked processes share; NULL when there is none. */
void *meeting_memory(size_t bytes);
void meeting_memory_free(void *memory, size_t bytes);

#endif
