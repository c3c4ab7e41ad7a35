/* What a launcher does with the pool wire; ranks only open it (halley/wire.h) at the pool's
 * address. */
#ifndef HALLEY_WIRES_POOL_H
#define HALLEY_WIRES_POOL_H

#include "halley/wire.h"
#include "memory/pool.h"

struct hl_pool_wire_spec {
    const char *address;    /* an existing pool; NULL: a new one that ends with this process */
    const char *parent;     /* the folder of a new one; NULL: /dev/shm */
    uint32_t n_devices;     /* of a new one; 0: 1 */
    enum hl_pool_mode mode; /* of a new one */
    int n_ranks, n_lanes;
    size_t part_bytes;     /* multiple of 64, at most a stripe */
    bool one_kernel;       /* all ranks run on this machine */
    int64_t dead_after_ns; /* silence after which a rank is dead; 0: 3 s */
    bool force; /* an existing pool: although former ranks on other machines did not detach */
};

/* A pool, and in it a job that ranks can attach to. Its address: (*out)->address; close it with
 * hl_pool_close when the job is over. A new pool is removed then, and by hl_pool_sweep when this
 * process could not. Nothing is written unless all can be had.
 * errors as of hl_pool_make, hl_pool_attach, hl_pool_begin */
enum hl_status hl_pool_wire_new(struct hl_mem *mem, const struct hl_pool_wire_spec *spec,
                                struct hl_pool **out, struct hl_diag *diag) HL_MUST_CHECK;
/* Another job in the pool of this one, which all its ranks have left, for as many ranks or fewer;
 * lanes and parts are the same. errors as of hl_pool_begin */
enum hl_status hl_pool_wire_again(struct hl_pool *pool, int n_ranks,
                                  struct hl_diag *diag) HL_MUST_CHECK;
/* The process of `rank` is gone, and was not heard to say so: its peers get HL_E_PEER. Only the
 * owner calls it, who has waited for the process. */
void hl_pool_wire_bury(struct hl_pool *pool, int rank);

/* The shape of the ring of a job. */
struct hl_ring_shape hl_pool_wire_shape(const struct hl_pool_head *head);

#endif
