/* The three modes of a pool. See pool_memory.h.
 *
 *                nc-wb                              nc-uc            hc
 *   to the pool  room aside, streaming stores,      stores, sfence   stores, sfence
 *                sfence
 *   ring a bell  store, clflush, mfence             store, mfence    store-release
 *   look at it   clflush, mfence, load, lfence      load, lfence     load-acquire
 *   from the     clflushopt, mfence, load           load             load
 *   pool */
#include "wires/pool_memory.h"

enum { LINE = sizeof(struct hl_line) };

/* ---- where ---- */

static size_t place_of(const struct hl_pool_memory *m, size_t offset, uint32_t *device_out) {
    *device_out = 0;
    if (offset < m->slots) return m->head->lines.offset + offset;
    return hl_pool_stripe(m->head, offset - m->slots, device_out);
}

char *hl_pool_memory_write(const struct hl_pool_memory *m, size_t offset) {
    uint32_t device;
    size_t at = place_of(m, offset, &device);
    return m->write[device] + at;
}

const char *hl_pool_memory_read(const struct hl_pool_memory *m, size_t offset) {
    uint32_t device;
    size_t at = place_of(m, offset, &device);
    return m->read[device] + at;
}

static struct hl_pool_memory *of(struct hl_ring_memory *m) {
    return (struct hl_pool_memory *)(void *)m;
}

/* ---- the real processor ---- */

static enum hl_flush flush_of(struct hl_pool_cpu *cpu) {
    return ((struct hl_pool_real_cpu *)(void *)cpu)->flush;
}
static void real_store_line(struct hl_pool_cpu *cpu, void *to, const struct hl_line *line) {
    (void)cpu;
    hl_line_store(to, line);
}
static void real_load_line(struct hl_pool_cpu *cpu, const void *from, struct hl_line *out) {
    (void)cpu;
    hl_line_load(from, out);
}
static void real_stream(struct hl_pool_cpu *cpu, void *to, const void *from, size_t n) {
    (void)cpu;
    hl_lines_stream(to, from, n);
}
static void real_flush_line(struct hl_pool_cpu *cpu, const void *at) {
    (void)cpu;
    hl_line_flush(at);
}
static void real_flush_lines(struct hl_pool_cpu *cpu, const void *at, size_t n) {
    hl_lines_flush(flush_of(cpu), at, n);
}
static void real_fence_stores(struct hl_pool_cpu *cpu) {
    (void)cpu;
    hl_fence_stores();
}
static void real_fence_loads(struct hl_pool_cpu *cpu) {
    (void)cpu;
    hl_fence_loads();
}
static void real_fence_all(struct hl_pool_cpu *cpu) {
    (void)cpu;
    hl_fence_all();
}
static void *real_place(struct hl_pool_cpu *cpu, void *at, size_t n) {
    (void)cpu, (void)n;
    return at;
}
static void real_stored(struct hl_pool_cpu *cpu, void *at, size_t n) {
    (void)cpu, (void)at, (void)n;
}
static const void *real_reach(struct hl_pool_cpu *cpu, const void *at, size_t n) {
    (void)cpu, (void)n;
    return at;
}

static const struct hl_pool_cpu_ops real_ops = {.store_line = real_store_line,
                                                .load_line = real_load_line,
                                                .stream = real_stream,
                                                .flush_line = real_flush_line,
                                                .flush_lines = real_flush_lines,
                                                .fence_stores = real_fence_stores,
                                                .fence_loads = real_fence_loads,
                                                .fence_all = real_fence_all,
                                                .place = real_place,
                                                .stored = real_stored,
                                                .reach = real_reach};

void hl_pool_real_cpu_init(struct hl_pool_real_cpu *cpu) {
    cpu->cpu.ops = &real_ops;
    cpu->flush = hl_flush_kind();
}

/* ---- what hc and nc-uc share: the program stores and loads in place ---- */

static void *direct_room(struct hl_ring_memory *ring, size_t stream, size_t offset, size_t bytes) {
    struct hl_pool_memory *m = of(ring);
    (void)stream;
    return m->cpu->ops->place(m->cpu, hl_pool_memory_write(m, offset), bytes);
}

/* Also in hc: whoever filled the room may have used streaming stores, which a release does not
 * order (R13). */
static void direct_publish(struct hl_ring_memory *ring, size_t stream, size_t offset,
                           size_t bytes) {
    struct hl_pool_memory *m = of(ring);
    (void)stream;
    m->cpu->ops->stored(m->cpu, hl_pool_memory_write(m, offset), bytes);
    m->cpu->ops->fence_stores(m->cpu);
}

static const void *direct_fetch(struct hl_ring_memory *ring, size_t offset, size_t bytes) {
    struct hl_pool_memory *m = of(ring);
    return m->cpu->ops->reach(m->cpu, hl_pool_memory_read(m, offset), bytes);
}

/* ---- hc ---- */

static void hc_ring(struct hl_ring_memory *ring, size_t offset, const struct hl_line *line) {
    struct hl_pool_memory *m = of(ring);
    m->cpu->ops->store_line(m->cpu, hl_pool_memory_write(m, offset), line);
}

static void hc_look(struct hl_ring_memory *ring, size_t offset, struct hl_line *out) {
    struct hl_pool_memory *m = of(ring);
    m->cpu->ops->load_line(m->cpu, hl_pool_memory_read(m, offset), out);
}

/* ---- nc-uc ---- */

static void uc_ring(struct hl_ring_memory *ring, size_t offset, const struct hl_line *line) {
    struct hl_pool_memory *m = of(ring);
    m->cpu->ops->store_line(m->cpu, hl_pool_memory_write(m, offset), line);
    m->cpu->ops->fence_all(m->cpu);
}

static void uc_look(struct hl_ring_memory *ring, size_t offset, struct hl_line *out) {
    struct hl_pool_memory *m = of(ring);
    m->cpu->ops->load_line(m->cpu, hl_pool_memory_read(m, offset), out);
    m->cpu->ops->fence_loads(m->cpu);
}

/* ---- nc-wb ---- */

/* Not in the pool: a store there would first fetch the line. */
static void *wb_room(struct hl_ring_memory *ring, size_t stream, size_t offset, size_t bytes) {
    struct hl_pool_memory *m = of(ring);
    (void)offset, (void)bytes;
    return m->rooms + stream * m->part_bytes;
}

/* R2, R9, R12: whole lines, past the caches, complete before the bell that follows. */
static void wb_publish(struct hl_ring_memory *ring, size_t stream, size_t offset, size_t bytes) {
    struct hl_pool_memory *m = of(ring);
    size_t n = (bytes + LINE - 1) / LINE * LINE;
    char *to = hl_pool_memory_write(m, offset);
    m->cpu->ops->stream(m->cpu, to, m->rooms + stream * m->part_bytes, n);
    m->cpu->ops->fence_stores(m->cpu);
    if (!m->read_back || !n) return;
    struct hl_line last;
    m->cpu->ops->flush_line(m->cpu, to + n - LINE);
    m->cpu->ops->fence_all(m->cpu);
    m->cpu->ops->load_line(m->cpu, to + n - LINE, &last);
    m->cpu->ops->fence_loads(m->cpu);
}

/* R2, R14 */
static void wb_ring(struct hl_ring_memory *ring, size_t offset, const struct hl_line *line) {
    struct hl_pool_memory *m = of(ring);
    char *to = hl_pool_memory_write(m, offset);
    m->cpu->ops->store_line(m->cpu, to, line);
    m->cpu->ops->flush_line(m->cpu, to);
    m->cpu->ops->fence_all(m->cpu);
}

/* R3 */
static void wb_look(struct hl_ring_memory *ring, size_t offset, struct hl_line *out) {
    struct hl_pool_memory *m = of(ring);
    const char *from = hl_pool_memory_read(m, offset);
    m->cpu->ops->flush_line(m->cpu, from);
    m->cpu->ops->fence_all(m->cpu);
    m->cpu->ops->load_line(m->cpu, from, out);
    m->cpu->ops->fence_loads(m->cpu);
}

/* R4 */
static const void *wb_fetch(struct hl_ring_memory *ring, size_t offset, size_t bytes) {
    struct hl_pool_memory *m = of(ring);
    const char *from = hl_pool_memory_read(m, offset);
    m->cpu->ops->flush_lines(m->cpu, from, bytes);
    m->cpu->ops->fence_all(m->cpu);
    return m->cpu->ops->reach(m->cpu, from, bytes);
}

const struct hl_ring_memory_ops hl_pool_mode_ops[3] = {
    [HL_POOL_COHERENT] = {.room = direct_room,
                          .publish = direct_publish,
                          .ring = hc_ring,
                          .look = hc_look,
                          .fetch = direct_fetch},
    [HL_POOL_WRITE_BACK] = {.room = wb_room,
                            .publish = wb_publish,
                            .ring = wb_ring,
                            .look = wb_look,
                            .fetch = wb_fetch},
    [HL_POOL_UNCACHED] = {.room = direct_room,
                          .publish = direct_publish,
                          .ring = uc_ring,
                          .look = uc_look,
                          .fetch = direct_fetch},
};
