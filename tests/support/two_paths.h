/* Ranks as threads, on two wires of threads as one: a path that is like pool+wan and needs neither.
 * cmocka's headers come first. */
#ifndef HALLEY_TESTS_TWO_PATHS_H
#define HALLEY_TESTS_TWO_PATHS_H

#include "support/ranks.h"
#include "wires/pair.h"
#include "wires/wires.h"

enum { TWO_PATHS_LANES = 2 }; /* of each path */

struct two_paths {
    struct hl_threads_shared *second; /* where the ranks meet on the other path */
    bool slow;
};

/* In a body of two_paths_run: r->wire becomes both. returns the second one, which r->wire owns */
static inline struct hl_wire *two_paths_open(struct rank_context *r) {
    const struct two_paths *both = r->shared;
    const struct hl_wire_place place = {
        .rank = r->rank, .n_ranks = r->n_ranks, .shared = both->second};
    struct hl_wire *second = NULL;
    ranks_check(r, hl_wire_threads.open(hl_mem_default(), &place, &second, NULL) == HL_OK &&
                       hl_wire_pair(hl_mem_default(), r->wire, second, &r->wire, NULL) == HL_OK);
    r->wire->slow = both->slow;
    return second;
}

static inline void two_paths_run(int n_ranks, size_t part_bytes, bool slow,
                                 void (*body)(struct rank_context *r)) {
    struct two_paths both = {.slow = slow};
    assert_int_equal(hl_threads_wire_new(hl_mem_default(), n_ranks, TWO_PATHS_LANES, part_bytes,
                                         &both.second, NULL),
                     HL_OK);
    ranks_run(n_ranks, TWO_PATHS_LANES, part_bytes, body, &both);
    hl_threads_wire_free(both.second);
}

#endif
