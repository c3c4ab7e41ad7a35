/* What the two files of collectives share. */
#ifndef HALLEY_COLLECTIVES_GROUP_H
#define HALLEY_COLLECTIVES_GROUP_H

#include "halley/collective.h"

/* Of each slice, from and to so many of HL_SHARES: what one path carries. */
struct hl_part {
    int from, to;
};
#define HL_ALL_PARTS ((struct hl_part){0, HL_SHARES})
/* The flows of an operation for one rank; with one rank there are none. */
void hl_collective_prepare(const struct hl_collective_args *args, struct hl_part part, int rank,
                           int n_ranks, struct hl_collective *op);
/* What a rank sends and receives. */
struct hl_load {
    int rounds;
    int64_t out_each, out_all, in; /* bytes: for one rank, for everyone (counted once); received */
};
struct hl_load hl_collective_load(const struct hl_collective_args *args, int rank, int n_ranks);
/* Bytes of an element while it travels. */
size_t hl_collective_wire_bytes(const struct hl_collective *op);

/* Both paths of the group's wire, measured by all ranks together. Takes memory and gives it back.
 * errors HL_E_MEMORY, those of hl_group_poll */
enum hl_status hl_paths_measure(struct hl_mem *mem, struct hl_group *group, struct hl_paths *out,
                                struct hl_diag *diag) HL_MUST_CHECK;

#endif
