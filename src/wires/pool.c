/* pool: ranks are processes that map one memory, on one machine or on several. The ring protocol
 * (ring.h) over a pool's lines and slots; a heart for each rank. See memory/pool.h for what lies
 * where, pool_modes.c for visibility. */
#include "wires/pool.h"

#include <stdio.h>
#include <string.h>

#include "os/beat.h"
#include "os/clock.h"
#include "wires/pool_memory.h"
#include "wires/wires.h"

enum { SLOTS = 4 };
static const int64_t DEAD_AFTER_NS = 3000000000, LEASE_NS = 1000000000;

struct pool_wire {
    struct hl_pool_memory memory; /* first */
    struct hl_ring_memory_ops ops;
    struct hl_pool_real_cpu cpu;
    struct hl_mem *mem;
    struct hl_pool *pool;
    struct hl_ring_shape shape;
    struct hl_shared beds;
    struct hl_beat *heart;
    int rank;
    uint64_t n_beats;
    int64_t beaten_ns; /* the coarse clock; written by the heart's thread, as is `lost` */
    bool lost;         /* the pool is another job's */
};

/* ---- shapes ---- */

static struct hl_ring_shape shape_of(int n_ranks, int n_lanes, int n_slots, size_t part_bytes,
                                     uint32_t n_devices) {
    return (struct hl_ring_shape){.n_ranks = n_ranks,
                                  .n_lanes = n_lanes,
                                  .n_slots = n_slots,
                                  .part_bytes = part_bytes,
                                  .stripe_bytes = HL_POOL_STRIPE_BYTES,
                                  .n_devices = (int)n_devices};
}

struct hl_ring_shape hl_pool_wire_shape(const struct hl_pool_head *head) {
    const struct hl_pool_job *job = &head->job;
    return shape_of((int)job->n_ranks, (int)job->n_lanes, (int)job->n_slots, job->part_bytes,
                    head->n_devices);
}

static enum hl_status check_shape(int n_ranks, int n_lanes, size_t part_bytes,
                                  struct hl_diag *diag) {
    if (n_ranks < 1 || n_ranks > HL_MAX_RANKS)
        return hl_fail(diag, HL_E_USER, "a pool for %d ranks; there can be 1 to %d", n_ranks,
                       HL_MAX_RANKS);
    if (n_lanes < 1 || n_lanes > HL_MAX_LANES)
        return hl_fail(diag, HL_E_USER, "a pool with %d lanes; there can be 1 to %d", n_lanes,
                       HL_MAX_LANES);
    if (part_bytes < 64 || part_bytes % 64 || part_bytes > HL_POOL_STRIPE_BYTES)
        return hl_fail(
            diag, HL_E_USER,
            "a pool with parts of %zu bytes; they must be multiples of 64 and at most %d",
            part_bytes, HL_POOL_STRIPE_BYTES);
    return HL_OK;
}

/* ---- memory of a ring ---- */

static enum hl_status memory_init(struct pool_wire *w, const struct hl_pool *pool,
                                  struct hl_diag *diag) {
    struct hl_ring_layout layout;
    enum hl_pool_mode mode = hl_pool_head_mode(&pool->head);
    const struct hl_pool_head *head = &pool->head;
    w->shape = hl_pool_wire_shape(head);
    enum hl_status status =
        check_shape(w->shape.n_ranks, w->shape.n_lanes, w->shape.part_bytes, diag);
    if (status != HL_OK) return status;
    hl_ring_lay_out(&w->shape, &layout);
    if (w->shape.n_slots != SLOTS || layout.lines_end > head->lines.bytes ||
        layout.end - layout.slots > head->bulk.bytes * head->n_devices || mode > HL_POOL_UNCACHED)
        return hl_fail(diag, HL_E_FORMAT, "pool %s: its areas do not fit its job: make it again",
                       pool->address);
    hl_pool_real_cpu_init(&w->cpu);
    w->ops = hl_pool_mode_ops[mode];
    w->memory = (struct hl_pool_memory){.ring = {.ops = &w->ops},
                                        .cpu = &w->cpu.cpu,
                                        .head = head,
                                        .slots = layout.slots,
                                        .part_bytes = w->shape.part_bytes,
                                        .read_back = head->flags & HL_POOL_READ_BACK};
    for (uint32_t d = 0; d < head->n_devices; d++) {
        w->memory.write[d] = pool->devices[d].write;
        w->memory.read[d] = pool->devices[d].read;
    }
    return HL_OK;
}

/* ---- the launcher's part ---- */

static enum hl_status make_new(struct hl_mem *mem, const struct hl_pool_wire_spec *spec,
                               struct hl_pool **out, struct hl_diag *diag) {
    uint32_t n = spec->n_devices ? spec->n_devices : 1;
    struct hl_ring_shape shape = shape_of(spec->n_ranks, spec->n_lanes, SLOTS, spec->part_bytes, n);
    struct hl_ring_layout layout;
    struct hl_pool_head head;
    char address[HL_PATH_CAPACITY];
    uint64_t random;
    if (!hl_random_bytes(&random, sizeof random))
        return hl_fail(diag, HL_E_IO,
                       "the pool cannot have a name: the system gives no random numbers: %m");
    if (snprintf(address, sizeof address, "%s/" HL_POOL_PREFIX "%016llx",
                 spec->parent ? spec->parent : HL_POOL_PARENT,
                 (unsigned long long)random) >= HL_PATH_CAPACITY)
        return hl_fail(diag, HL_E_USER, "the pool's folder '%.80s...' is too long", spec->parent);
    hl_ring_lay_out(&shape, &layout);
    hl_pool_head_begin(&head, n, 0, spec->mode, false);
    const struct hl_pool_spec pool = {
        .address = address,
        .n_devices = n,
        .device_bytes = hl_pool_head_lay_out(&head, layout.lines_end, layout.end - layout.slots),
        .mode = spec->mode};
    return hl_pool_make(mem, &pool, out, diag);
}

static enum hl_status begin(struct hl_pool *pool, const struct hl_pool_wire_spec *spec,
                            struct hl_diag *diag) {
    const struct hl_pool_job job = {.n_ranks = (uint32_t)spec->n_ranks,
                                    .n_lanes = (uint32_t)spec->n_lanes,
                                    .n_slots = SLOTS,
                                    .part_bytes = spec->part_bytes,
                                    .dead_after_ns =
                                        spec->dead_after_ns ? spec->dead_after_ns : DEAD_AFTER_NS};
    struct hl_ring_shape shape =
        shape_of(spec->n_ranks, spec->n_lanes, SLOTS, spec->part_bytes, pool->head.n_devices);
    struct hl_ring_layout layout;
    hl_ring_lay_out(&shape, &layout);
    return hl_pool_begin(pool, &job, spec->one_kernel, layout.lines_end, layout.end - layout.slots,
                         spec->force, diag);
}

enum hl_status hl_pool_wire_new(struct hl_mem *mem, const struct hl_pool_wire_spec *spec,
                                struct hl_pool **out, struct hl_diag *diag) {
    struct hl_pool *pool = NULL;
    enum hl_status status = check_shape(spec->n_ranks, spec->n_lanes, spec->part_bytes, diag);
    if (status == HL_OK)
        status = spec->address ? hl_pool_attach(mem, spec->address, false, 0, &pool, diag)
                               : make_new(mem, spec, &pool, diag);
    if (status == HL_OK) status = begin(pool, spec, diag);
    if (status == HL_OK) *out = pool;
    else hl_pool_close(pool);
    return status;
}

enum hl_status hl_pool_wire_again(struct hl_pool *pool, int n_ranks, struct hl_diag *diag) {
    const struct hl_pool_job *job = &pool->head.job;
    const struct hl_pool_wire_spec spec = {.n_ranks = n_ranks,
                                           .n_lanes = (int)job->n_lanes,
                                           .part_bytes = job->part_bytes,
                                           .one_kernel = pool->head.flags & HL_POOL_ONE_KERNEL,
                                           .dead_after_ns = job->dead_after_ns};
    return begin(pool, &spec, diag);
}

void hl_pool_wire_bury(struct hl_pool *pool, int rank) {
    struct pool_wire w;
    if (memory_init(&w, pool, NULL) != HL_OK) return;
    if (hl_pool_map_beds(pool, &w.beds, NULL) != HL_OK) w.beds = (struct hl_shared){0};
    hl_ring_bury(&w.memory.ring, &w.shape, rank, pool->head.incarnation,
                 (struct hl_ring_bed *)(void *)w.beds.write);
    hl_shared_close(&w.beds);
}

/* ---- a rank's part ---- */

static struct pool_wire *of(struct hl_ring_memory *m) { return (struct pool_wire *)(void *)m; }

/* The heart stands still when the job has ended without us. */
static void beat(void *context) {
    struct pool_wire *w = context;
    if (!hl_pool_is_current(w->pool)) {
        __atomic_store_n(&w->lost, true, __ATOMIC_RELEASE);
        return;
    }
    w->n_beats++;
    hl_ring_beat(&w->memory.ring, &w->shape, w->rank, w->pool->head.incarnation, w->n_beats);
    hl_pool_beat(w->pool, w->rank, w->n_beats);
    __atomic_store_n(&w->beaten_ns, hl_clock_coarse_ns(), __ATOMIC_RELEASE);
}

/* A heart that beat just now has looked. Else we may have been stopped: look before we write. */
static bool ours(struct hl_ring_memory *m) {
    struct pool_wire *w = of(m);
    if (__atomic_load_n(&w->lost, __ATOMIC_ACQUIRE)) return false;
    int64_t beaten = __atomic_load_n(&w->beaten_ns, __ATOMIC_ACQUIRE);
    return hl_clock_coarse_ns() - beaten < LEASE_NS || hl_pool_is_current(w->pool);
}

static void close_memory(struct hl_ring_memory *m) {
    struct pool_wire *w = of(m);
    hl_beat_stop(w->heart);
    hl_pool_leave(w->pool, w->rank);
    hl_shared_close(&w->beds);
    hl_free(w->mem, w->memory.rooms);
    hl_pool_close(w->pool);
    hl_free(w->mem, w);
}

static enum hl_status available(struct hl_diag *diag) {
    struct hl_shared_room room;
    if (hl_shared_room(HL_POOL_PARENT, &room, NULL) == HL_OK) return HL_OK;
    return hl_fail(diag, HL_E_UNSUPPORTED,
                   "there is no folder " HL_POOL_PARENT " for memory that processes share: mount a "
                   "tmpfs there");
}

/* What the rank was told must be what the pool was made for. */
static enum hl_status check_place(const struct hl_pool *pool, const struct hl_wire_place *place,
                                  struct hl_diag *diag) {
    const struct hl_pool_job *job = &pool->head.job;
    if (job->n_ranks && place->n_ranks != (int)job->n_ranks)
        return hl_fail(diag, HL_E_USER, "pool %s is for %u ranks, and this run has %d",
                       pool->address, job->n_ranks, place->n_ranks);
    if (job->n_ranks && ((place->n_lanes && place->n_lanes != (int)job->n_lanes) ||
                         (place->part_bytes && place->part_bytes != job->part_bytes)))
        return hl_fail(diag, HL_E_USER,
                       "pool %s has %u lanes and parts of %llu bytes, and this run %d and %zu: all "
                       "ranks and the launcher must be told the same",
                       pool->address, job->n_lanes, (unsigned long long)job->part_bytes,
                       place->n_lanes, place->part_bytes);
    if (place->rank < 0 || place->rank >= place->n_ranks)
        return hl_fail(diag, HL_E_USER, "the pool has no place for rank %d of %d ranks",
                       place->rank, place->n_ranks);
    return HL_OK;
}

/* Everything but the wire itself; what fails is undone by the caller. */
static enum hl_status join(struct pool_wire *w, const struct hl_wire_place *place,
                           struct hl_diag *diag) {
    const struct hl_pool *pool = w->pool;
    enum hl_status status = check_place(pool, place, diag);
    if (status == HL_OK) status = memory_init(w, pool, diag);
    if (status == HL_OK && hl_pool_head_mode(&pool->head) == HL_POOL_WRITE_BACK) {
        size_t n = (size_t)w->shape.n_lanes * (size_t)w->shape.n_ranks;
        w->memory.rooms = hl_alloc(w->mem, n, w->shape.part_bytes);
        if (!w->memory.rooms)
            status = hl_fail_memory(diag, n * w->shape.part_bytes, "parts on their way to a pool");
    }
    if (status == HL_OK) status = hl_pool_map_beds(pool, &w->beds, diag);
    if (status == HL_OK) status = hl_pool_join(w->pool, w->rank, diag);
    if (status != HL_OK) return status;
    w->ops.ours = ours;
    w->ops.close = close_memory;
    beat(w); /* peers watch from the first beat on */
    status = hl_beat_start(w->mem, HL_RING_BEAT_NS, beat, w, &w->heart, diag);
    if (status != HL_OK) hl_pool_leave(w->pool, w->rank);
    return status;
}

static enum hl_status open_pool(struct hl_mem *mem, const struct hl_wire_place *place,
                                struct hl_wire **out, struct hl_diag *diag) {
    if (!place->address)
        return hl_fail(diag, HL_E_USER, "which pool? give its name, folder or devices");
    struct pool_wire *w = hl_alloc(mem, 1, sizeof *w);
    if (!w) return hl_fail_memory(diag, sizeof *w, "a pool wire");
    w->mem = mem;
    w->rank = place->rank;
    enum hl_status status =
        hl_pool_attach(mem, place->address, true, place->timeout_ns, &w->pool, diag);
    if (status == HL_OK) status = join(w, place, diag);
    if (status != HL_OK) {
        hl_shared_close(&w->beds);
        hl_free(mem, w->memory.rooms);
        hl_pool_close(w->pool);
        hl_free(mem, w);
        return status;
    }
    const struct hl_ring_place at = {.name = "pool",
                                     .shape = w->shape,
                                     .rank = w->rank,
                                     .memory = &w->memory.ring,
                                     .beds = (struct hl_ring_bed *)(void *)w->beds.write,
                                     .incarnation = w->pool->head.incarnation,
                                     .dead_after_ns = w->pool->head.job.dead_after_ns};
    return hl_ring_open(mem, &at, out, diag);
}

const struct hl_wire_plugin hl_wire_pool = {.name = "pool",
                                            .summary = "ranks are processes that share memory",
                                            .processes = true,
                                            .available = available,
                                            .open = open_pool};
