/* Several ranks in one test: each is a thread with an end of a threads wire. */
#ifndef HALLEY_TESTS_RANKS_H
#define HALLEY_TESTS_RANKS_H

#include "halley/wire.h"

/* body runs once for each rank; it must not use cmocka's asserts (they jump): it records what went
 * wrong by calling ranks_fail, and ranks_run then fails the test with it. It closes the wire
 * itself, or returns and leaves that to ranks_run. */
struct rank_context {
    struct hl_wire *wire;
    int rank, n_ranks;
    void *shared; /* the test's */
    char failure[400];
    bool closed;
};
void ranks_fail(struct rank_context *r, const char *format, ...) HL_PRINTF(2, 3);
#define ranks_check(r, condition)                                                                  \
    do {                                                                                           \
        if (!(condition)) ranks_fail(r, "%s:%d: %s", __FILE__, __LINE__, #condition);              \
    } while (0)

void ranks_run(int n_ranks, int n_lanes, size_t part_bytes, void (*body)(struct rank_context *r),
               void *shared);

#endif
