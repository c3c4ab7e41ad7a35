/* threads: ranks are threads of one process and meet in its memory. See ring.h for the protocol. */
#include <string.h>

#include "wires/ring.h"
#include "wires/wires.h"

enum { SLOTS = 4 };

struct hl_threads_shared {
    struct hl_mem *mem;
    struct hl_ring_shape shape;
    struct hl_ring_memory memory;
    struct hl_ring_bed *beds;
};

enum hl_status hl_threads_wire_new(struct hl_mem *mem, int n_ranks, int n_lanes, size_t part_bytes,
                                   struct hl_threads_shared **out, struct hl_diag *diag) {
    struct hl_threads_shared *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "the threads wire");
    s->mem = mem;
    s->shape = (struct hl_ring_shape){
        .n_ranks = n_ranks, .n_lanes = n_lanes, .n_slots = SLOTS, .part_bytes = part_bytes};
    size_t bytes = hl_ring_bytes(&s->shape);
    s->memory = (struct hl_ring_memory){&hl_ring_coherent, hl_alloc(mem, bytes, 1)};
    s->beds = hl_alloc(mem, (size_t)n_ranks, sizeof *s->beds);
    if (!s->memory.base || !s->beds) {
        hl_threads_wire_free(s);
        return hl_fail_memory(diag, bytes, "the threads wire's slots");
    }
    *out = s;
    return HL_OK;
}

void hl_threads_wire_free(struct hl_threads_shared *s) {
    if (!s) return;
    hl_free(s->mem, s->memory.base);
    hl_free(s->mem, s->beds);
    hl_free(s->mem, s);
}

static enum hl_status available(struct hl_diag *diag) {
    (void)diag;
    return HL_OK;
}

static enum hl_status open_threads(struct hl_mem *mem, const struct hl_wire_place *place,
                                   struct hl_wire **out, struct hl_diag *diag) {
    struct hl_threads_shared *s = place->shared;
    const struct hl_ring_place at = {.name = "threads",
                                     .shape = s->shape,
                                     .rank = place->rank,
                                     .memory = &s->memory,
                                     .beds = s->beds,
                                     .incarnation = 1};
    return hl_ring_open(mem, &at, out, diag);
}

const struct hl_wire_plugin hl_wire_threads = {.name = "threads",
                                               .summary = "ranks are threads of one process",
                                               .available = available,
                                               .open = open_threads};
