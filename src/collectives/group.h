/* What the two files of collectives share. */
#ifndef HALLEY_COLLECTIVES_GROUP_H
#define HALLEY_COLLECTIVES_GROUP_H

#include "halley/collective.h"

/* The flows of an operation for one rank; with one rank there are none. */
void hl_collective_prepare(const struct hl_collective_args *args, int rank, int n_ranks,
                           struct hl_collective *op);
/* Bytes of an element while it travels. */
size_t hl_collective_wire_bytes(const struct hl_collective *op);

#endif
