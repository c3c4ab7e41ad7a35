/* A pool's bytes as the memory of a ring: where they lie (devices, stripes) and how they become
 * visible (modes). All accesses of the modes go through a processor (struct hl_pool_cpu), which is
 * the real one, or in tests one whose caches nobody keeps coherent (tests/support/shadow.h). The
 * rules R1 to R16 are those of docs/formats/pool.md. */
#ifndef HALLEY_WIRES_POOL_MEMORY_H
#define HALLEY_WIRES_POOL_MEMORY_H

#include "memory/pool_format.h"
#include "os/lines.h"
#include "wires/ring.h"

/* What a processor can do with memory. Addresses are those of the pool. */
struct hl_pool_cpu;
struct hl_pool_cpu_ops {
    /* Ordinary stores of a line, its first word last. */
    void (*store_line)(struct hl_pool_cpu *cpu, void *to, const struct hl_line *line);
    /* Its first word first. */
    void (*load_line)(struct hl_pool_cpu *cpu, const void *from, struct hl_line *out);
    /* Past the caches, whole lines; done after the next fence of stores. */
    void (*stream)(struct hl_pool_cpu *cpu, void *to, const void *from, size_t n);
    /* Write back and drop one line, in order; and many, in any order until the next fence. */
    void (*flush_line)(struct hl_pool_cpu *cpu, const void *at);
    void (*flush_lines)(struct hl_pool_cpu *cpu, const void *at, size_t n);
    void (*fence_stores)(struct hl_pool_cpu *cpu);
    void (*fence_loads)(struct hl_pool_cpu *cpu);
    void (*fence_all)(struct hl_pool_cpu *cpu);
    /* Where the program itself stores to, and what it stored there until now. */
    void *(*place)(struct hl_pool_cpu *cpu, void *at, size_t n);
    void (*stored)(struct hl_pool_cpu *cpu, void *at, size_t n);
    /* Where the program itself may load from, until the part is acknowledged. */
    const void *(*reach)(struct hl_pool_cpu *cpu, const void *at, size_t n);
};
struct hl_pool_cpu {
    const struct hl_pool_cpu_ops *ops;
};
struct hl_pool_real_cpu {
    struct hl_pool_cpu cpu; /* first */
    enum hl_flush flush;
};
void hl_pool_real_cpu_init(struct hl_pool_real_cpu *cpu);

struct hl_pool_memory {
    struct hl_ring_memory ring; /* first */
    struct hl_pool_cpu *cpu;
    const struct hl_pool_head *head;
    size_t slots; /* offsets of the ring from here on are bulk */
    char *write[HL_POOL_DEVICES];
    const char *read[HL_POOL_DEVICES];
    char *rooms; /* nc-wb: [n_lanes * n_ranks, part_bytes] */
    size_t part_bytes;
    bool read_back; /* nc-wb: look at the last line of a part before its bell is rung (R15) */
};
/* Modes by hl_pool_mode; ours and close are NULL in them. */
extern const struct hl_ring_memory_ops hl_pool_mode_ops[3];

char *hl_pool_memory_write(const struct hl_pool_memory *m, size_t offset);
const char *hl_pool_memory_read(const struct hl_pool_memory *m, size_t offset);

#endif
