/* sim: ranks as threads of one process that move on a virtual clock: what a network of given
 * latency and rate would do, in no time and always the same way.
 *
 * One rank runs at a time, the one whose clock is furthest behind (ties: the lower rank); the
 * others stand still inside their next call. A clock moves only in wait, which takes it to the next
 * event, and in hl_sim_compute. Each rank has one link out: parts leave it one after the other, a
 * part for everyone once for each reader; acknowledgements take the latency and no bytes.
 *
 * A rank must close its wire, or the others wait for ever. Not for speed: everything between two
 * waits runs alone. */
#ifndef HALLEY_WIRES_SIM_H
#define HALLEY_WIRES_SIM_H

#include "halley/wire.h"

struct hl_sim_link {
    int64_t latency_ns; /* > 0 */
    double bytes_per_s;
};
struct hl_sim;
enum hl_status hl_sim_new(struct hl_mem *mem, int n_ranks, int n_lanes, size_t part_bytes,
                          const struct hl_sim_link *link, struct hl_sim **out,
                          struct hl_diag *diag) HL_MUST_CHECK;
/* After the last rank closed its wire. */
void hl_sim_free(struct hl_sim *sim);
enum hl_status hl_sim_open(struct hl_mem *mem, struct hl_sim *sim, int rank, struct hl_wire **out,
                           struct hl_diag *diag) HL_MUST_CHECK;

/* Virtual nanoseconds of that rank; wire: what hl_sim_open gave. */
int64_t hl_sim_now_ns(const struct hl_wire *wire);
/* This rank is busy for so long; the others may run meanwhile. */
void hl_sim_compute(struct hl_wire *wire, int64_t ns);

#endif
