/* Rates, latencies, and whether what was written is what the other one reads. See pool_check.h. */
#include "pool_check.h"

#include <string.h>

#include "os/clock.h"
#include "os/futex.h"
#include "os/parallel.h"
#include "wires/pool.h"
#include "wires/wires.h"

enum { CHUNK = 1 << 20, LINES = 2000, PART = 128 << 10, WARM = 100 };
static const struct effort { uint64_t trips, parts; } THOROUGH = {2000, 1000}, BRIEF = {300, 100};

/* ---- one device ---- */

static void fill(uint64_t *words, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) words[i] = (seed + i) * 0x9e3779b97f4a7c15u;
}

static double rate(uint64_t bytes, int64_t ns) { return (double)bytes * 1e9 / (double)(ns + 1); }

static double measure_line(const struct hl_pool *p, uint32_t d, uint64_t at) {
    uint64_t line[8] = {0};
    int64_t before = hl_clock_ns();
    for (uint64_t i = 0; i < LINES; i++) {
        line[0] = i;
        hl_pool_put(p, d, at, line, sizeof line);
        hl_pool_get(p, d, at, line, sizeof line);
    }
    return (double)(hl_clock_ns() - before) / LINES;
}

/* Pages are mapped when they are touched; that is not what is measured. */
static void touch(const struct hl_pool *p, uint32_t d, uint64_t first, uint64_t end) {
    for (uint64_t at = first; at < end; at += 4096) {
        char byte;
        memcpy(&byte, p->devices[d].read + at, 1);
        hl_pool_put(p, d, at, &byte, 1);
    }
}

void pool_measure_device(const struct hl_pool *p, uint32_t d, uint64_t most,
                         struct pool_rates *out) {
    _Alignas(64) static uint64_t chunk[CHUNK / 8]; /* one thread calls this */
    uint64_t first = (p->head.records.offset + p->head.records.bytes + CHUNK - 1) / CHUNK * CHUNK;
    uint64_t end = p->head.device_bytes / CHUNK * CHUNK;
    *out = (struct pool_rates){0};
    if (end > first + most) end = first + most / CHUNK * CHUNK;
    if (first >= end) return;
    touch(p, d, first, end);
    out->line_ns = measure_line(p, d, first);
    int64_t write_ns = 0, read_ns = 0;
    for (uint64_t at = first; at < end; at += CHUNK) {
        fill(chunk, CHUNK / 8, at);
        int64_t before = hl_clock_ns();
        hl_lines_stream(p->devices[d].write + at, chunk, CHUNK);
        hl_fence_stores();
        write_ns += hl_clock_ns() - before;
    }
    for (uint64_t at = first; at < end; at += CHUNK) {
        const uint64_t *words = (const uint64_t *)(const void *)(p->devices[d].read + at);
        int64_t before = hl_clock_ns();
        hl_lines_flush(p->flush, words, CHUNK);
        hl_fence_all();
        for (size_t i = 0; i < CHUNK / 8; i++)
            out->n_wrong += words[i] != (at + i) * 0x9e3779b97f4a7c15u;
        read_ns += hl_clock_ns() - before;
    }
    out->n_bytes = end - first;
    out->write = rate(out->n_bytes, write_ns);
    out->read = rate(out->n_bytes, read_ns);
}

/* ---- two ranks ---- */

struct side {
    struct hl_mem *mem;
    const char *address;
    int rank, n_ranks;
    struct effort effort;
    int64_t timeout_ns;
    struct pool_exchange result;
    enum hl_status status;
    struct hl_diag diag;
};

static enum hl_status wait_a_little(struct hl_wire *w, int64_t *left_ns) {
    int64_t before = hl_clock_ns();
    (void)w->ops->wait(w, 10000000);
    *left_ns -= hl_clock_ns() - before;
    return *left_ns > 0 ? HL_OK : HL_E_TIMEOUT;
}

static enum hl_status send(struct hl_wire *w, uint64_t seed, size_t bytes, int64_t timeout_ns) {
    const struct hl_stream s = {0, w->rank, 1 - w->rank};
    void *room;
    enum hl_status status;
    while ((status = w->ops->reserve(w, s, &room)) == HL_PENDING)
        if (wait_a_little(w, &timeout_ns) != HL_OK) return HL_E_TIMEOUT;
    if (status != HL_OK) return status;
    fill(room, bytes / 8, seed);
    return w->ops->commit(w, s, bytes);
}

static enum hl_status receive(struct hl_wire *w, uint64_t seed, size_t bytes, int64_t timeout_ns,
                              struct pool_exchange *result) {
    const struct hl_stream s = {0, 1 - w->rank, w->rank};
    const void *data;
    size_t n;
    enum hl_status status;
    while ((status = w->ops->view(w, s, &data, &n)) == HL_PENDING)
        if (wait_a_little(w, &timeout_ns) != HL_OK) return HL_E_TIMEOUT;
    if (status != HL_OK) return status;
    const uint64_t *words = data;
    for (size_t i = 0; i < bytes / 8; i++)
        result->n_wrong += n != bytes || words[i] != (seed + i) * 0x9e3779b97f4a7c15u;
    result->n_words += bytes / 8;
    return w->ops->release(w, s);
}

/* Back and forth; the time of the first ones does not count. */
static enum hl_status small_parts(struct hl_wire *w, struct side *side) {
    enum hl_status status = HL_OK;
    int64_t before = 0;
    for (uint64_t i = 0; i < WARM + side->effort.trips && status == HL_OK; i++) {
        int64_t patience = i ? side->timeout_ns : 10 * side->timeout_ns;
        if (i == WARM) before = hl_clock_ns();
        if (w->rank == 0) status = send(w, i, 64, patience);
        if (status == HL_OK) status = receive(w, i, 64, patience, &side->result);
        if (w->rank == 1 && status == HL_OK) status = send(w, i, 64, patience);
    }
    side->result.round_trip_ns = (double)(hl_clock_ns() - before) / (double)side->effort.trips;
    return status;
}

static enum hl_status large_parts(struct hl_wire *w, struct side *side) {
    enum hl_status status = HL_OK;
    int64_t before = hl_clock_ns();
    for (uint64_t i = 0; i < side->effort.parts && status == HL_OK; i++) {
        status = send(w, i * 977, w->part_bytes, side->timeout_ns);
        if (status == HL_OK)
            status = receive(w, i * 977, w->part_bytes, side->timeout_ns, &side->result);
    }
    side->result.rate = rate(side->effort.parts * w->part_bytes, hl_clock_ns() - before);
    return status;
}

static void explain(struct side *side, const struct hl_wire *w) {
    const char *what = side->status == HL_E_TIMEOUT ? "sent nothing for too long"
                       : side->status == HL_E_PEER  ? "is gone"
                                                    : "sent what cannot be";
    (void)hl_fail(&side->diag, side->status, "pool %s: rank %d %s", side->address, 1 - w->rank,
                  what);
}

static void run_side(struct side *side) {
    struct hl_wire *w;
    const struct hl_wire_place place = {.rank = side->rank,
                                        .n_ranks = side->n_ranks,
                                        .address = side->address,
                                        .timeout_ns = side->timeout_ns};
    side->status = hl_wire_pool.open(side->mem, &place, &w, &side->diag);
    if (side->status != HL_OK) return;
    side->status = small_parts(w, side);
    if (side->status == HL_OK) side->status = large_parts(w, side);
    if (side->status != HL_OK) explain(side, w);
    w->ops->close(w);
}

static void run_both(void *context, int i) { run_side((struct side *)context + i); }

/* Rank 0 owns the job; it waits until rank 1 has detached, or the job would end under it. */
static void wait_for_the_other(const struct hl_pool *pool, int64_t timeout_ns) {
    struct hl_pool_user user;
    int64_t end = hl_clock_ns() + timeout_ns;
    do {
        hl_pool_look(pool, 1, &user);
        if (user.attached) hl_sleep_ns(10000000);
    } while (user.attached && hl_clock_ns() < end);
}

enum hl_status pool_exchange(struct hl_mem *mem, const char *address, int rank, bool force,
                             int64_t timeout_ns, struct pool_exchange *out, struct hl_diag *diag) {
    struct side sides[2];
    struct hl_pool *pool = NULL;
    for (int r = 0; r < 2; r++)
        sides[r] = (struct side){.mem = mem,
                                 .address = address,
                                 .rank = r,
                                 .n_ranks = 2,
                                 .effort = THOROUGH,
                                 .timeout_ns = timeout_ns};
    const struct hl_pool_wire_spec spec = {.address = address,
                                           .n_ranks = 2,
                                           .n_lanes = 1,
                                           .part_bytes = PART,
                                           .one_kernel = rank < 0,
                                           .force = force,
                                           .dead_after_ns = timeout_ns};
    if (rank != 1) {
        enum hl_status status = hl_pool_wire_new(mem, &spec, &pool, diag);
        if (status != HL_OK) return status;
    }
    if (rank < 0) hl_parallel(2, run_both, sides);
    else run_side(&sides[rank]);
    if (rank == 0) wait_for_the_other(pool, timeout_ns);
    hl_pool_close(pool);
    const struct side *bad = rank < 0 && sides[0].status == HL_OK ? &sides[1]
                             : rank < 0                           ? &sides[0]
                                                                  : &sides[rank];
    if (bad->status != HL_OK && diag) *diag = bad->diag;
    *out = sides[rank < 0 ? 0 : rank].result;
    if (rank < 0) out->n_wrong += sides[1].result.n_wrong;
    return bad->status;
}

enum hl_status pool_try(struct hl_mem *mem, const struct hl_pool_wire_spec *spec,
                        int64_t timeout_ns, struct pool_exchange *exchange_out,
                        struct pool_rates *rates_out, struct hl_diag *diag) {
    struct side sides[2];
    struct hl_pool *pool = NULL;
    enum hl_status status = hl_pool_wire_new(mem, spec, &pool, diag);
    if (status != HL_OK) return status;
    for (int r = 0; r < 2; r++)
        sides[r] = (struct side){.mem = mem,
                                 .address = pool->address,
                                 .rank = r,
                                 .n_ranks = spec->n_ranks,
                                 .effort = BRIEF,
                                 .timeout_ns = timeout_ns};
    hl_parallel(2, run_both, sides);
    const struct side *bad = sides[0].status == HL_OK ? &sides[1] : &sides[0];
    if (bad->status == HL_OK) pool_measure_device(pool, 0, 16 * CHUNK, rates_out);
    else if (diag) *diag = bad->diag;
    *exchange_out = sides[0].result;
    exchange_out->n_wrong += sides[1].result.n_wrong;
    hl_pool_close(pool);
    return bad->status;
}
