/* Streams of parts over an MPI library's table, and which library that is. */
#ifndef HALLEY_WIRES_MPI_STREAMS_H
#define HALLEY_WIRES_MPI_STREAMS_H

#include "halley/wire.h"
#include "wires/mpi_module.h"

/* The MPI whose mpirun started this process, told by its environment; HALLEY_MPI overrides.
 * variable: getenv. out: "openmpi" or "mpich", static. errors HL_E_USER: none did */
enum hl_status hl_mpi_choose(const char *(*variable)(const char *name), const char **out,
                             struct hl_diag *diag) HL_MUST_CHECK;

/* Start MPI on this thread and join its ranks, all of them within place->timeout_ns.
 * errors HL_E_MEMORY; HL_E_USER: MPI started other ranks than place says, or they disagree;
 * HL_E_TIMEOUT names the absent; HL_E_PEER one that failed; HL_E_UNSUPPORTED: MPI ended earlier */
enum hl_status hl_mpi_streams_open(struct hl_mem *mem, const struct hl_wire_place *place,
                                   const struct hl_mpi_table *table, struct hl_wire **out,
                                   struct hl_diag *diag) HL_MUST_CHECK;

#endif
