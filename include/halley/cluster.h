/* Where this process stands among the ranks of a run, as whoever started it says.
 *
 * `halley launch`, torchrun, mpirun and srun tell their children in variables of the environment.
 * The place says which wire leads to the others; opening it is the caller's business. */
#ifndef HALLEY_CLUSTER_H
#define HALLEY_CLUSTER_H

#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

/* A rank that saves a large checkpoint keeps the others waiting. */
enum { HL_DEFAULT_TIMEOUT_S = 300 };
enum { HL_ADDRESS_CAPACITY = 256, HL_TOKEN_CAPACITY = 132, HL_INTERFACE_CAPACITY = 64 };

struct hl_cluster_place {
    int rank, n_ranks;
    int local_rank, n_local;           /* among the ranks of this machine; n_local 0: not told */
    char wire[16];                     /* empty: not told, and nothing suggests one */
    char address[HL_ADDRESS_CAPACITY]; /* the pool's folder, or "host:port"; empty: none */
    char token[HL_TOKEN_CAPACITY];     /* the job's shared secret; empty: none */
    char interface[HL_INTERFACE_CAPACITY]; /* of the network; empty: the route decides */
    void *shared;                          /* threads: where they meet; else NULL */
    int64_t timeout_ns;                    /* how long a peer may be missing or make no progress */
    const char *source;                    /* who told: "torchrun", ...; static */
};

/* The variables: halley launch's HALLEY_RANK, HALLEY_N_RANKS, HALLEY_LOCAL_RANK, HALLEY_N_LOCAL win
 * over all others. Then those of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), Open
 * MPI (OMPI_COMM_WORLD_*), MPICH (PMI_RANK, PMI_SIZE), PMIx and Slurm (SLURM_PROCID, ...).
 * MASTER_ADDR and MASTER_PORT are the address of the wire `wan`. HALLEY_WIRE, HALLEY_ADDRESS,
 * HALLEY_TOKEN, HALLEY_TIMEOUT (seconds) and HALLEY_INTERFACE (or GLOO_SOCKET_IFNAME) go with any.
 * HL_END: nobody said anything: one rank, on its own; timeout, wire, ... are filled in all the
 * same. errors HL_E_USER: half of a pair is missing, numbers that do not fit, two launchers that
 * disagree
 */
enum hl_status hl_cluster_from_environment(struct hl_cluster_place *out,
                                           struct hl_diag *diag) HL_MUST_CHECK;

#endif
