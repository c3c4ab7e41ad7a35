/* A rank that breaks at a place one can choose, for tests of what the others do then. */
#ifndef HALLEY_CMD_RANK_FAULT_H
#define HALLEY_CMD_RANK_FAULT_H

#include "halley/wire.h"

enum { RANK_FAULTS = 4 };
struct rank_fault {
    int n;
    struct one_fault {
        int kind, rank;
        enum hl_phase phase;
        int64_t step;
        uint64_t generation; /* of ranks, from 1 */
    } list[RANK_FAULTS];
};
/* HALLEY_FAULT=KIND:RANK:PHASE:STEP[:GENERATION], KIND one of kill, stop, segv, exit, hang;
 * several with commas between them.
 * errors HL_E_USER: it is set and is none */
enum hl_status rank_fault_read(struct rank_fault *out, struct hl_diag *diag) HL_MUST_CHECK;
/* Breaks this process when it is its turn. */
void rank_fault_at(const struct rank_fault *fault, uint64_t generation, int rank,
                   enum hl_phase phase, int64_t step);

#endif
