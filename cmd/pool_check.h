/* What `halley pool check` does with a pool that nobody uses. */
#ifndef HALLEY_POOL_CHECK_H
#define HALLEY_POOL_CHECK_H

#include "memory/pool.h"
#include "wires/pool.h"

/* Of one device, by one processor. */
struct pool_rates {
    double write, read; /* bytes per second: streamed out; flushed and loaded */
    double line_ns;     /* a line stored, flushed, and loaded again from the device */
    uint64_t n_bytes, n_wrong;
};
/* Writes over the device's bytes behind the rank records, at most `most` of them. */
void pool_measure_device(const struct hl_pool *pool, uint32_t device, uint64_t most,
                         struct pool_rates *out);

/* Two ranks send each other parts and look at every word. */
struct pool_exchange {
    double round_trip_ns; /* of a part of 64 bytes */
    double rate;          /* bytes per second in each direction, both at once */
    uint64_t n_words, n_wrong;
};
/* rank 0 or 1: the other one is another process, maybe of another host; rank 0 begins the job and
 * waits for it. -1: both, here. force: as of hl_pool_begin. */
enum hl_status pool_exchange(struct hl_mem *mem, const char *address, int rank, bool force,
                             int64_t timeout_ns, struct pool_exchange *out,
                             struct hl_diag *diag) HL_MUST_CHECK;

/* A new pool of two ranks or more, as a launcher makes it, tried by two threads and removed again.
 * A tenth of the time of the above, or less.
 * errors: those of hl_pool_wire_new, and as of pool_exchange */
enum hl_status pool_try(struct hl_mem *mem, const struct hl_pool_wire_spec *spec,
                        int64_t timeout_ns, struct pool_exchange *exchange_out,
                        struct pool_rates *rates_out, struct hl_diag *diag) HL_MUST_CHECK;

#endif
