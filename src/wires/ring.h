/* The protocol of wires whose ranks share memory: threads of one process, processes over a pool.
 *
 * Each stream is a ring of slots for parts. A slot's bell is a 64-byte line that only the sender
 * writes; each reader has an acknowledgement line of its own. Bells and acknowledgements hold
 * sequence numbers that only grow, so nothing is ever reset. How bytes and lines become visible to
 * others is the memory's business (struct hl_ring_memory): on one coherent machine by ordered
 * stores, on a pool without coherence by flushes. Offsets, never pointers, lie in shared memory. */
#ifndef HALLEY_WIRES_RING_H
#define HALLEY_WIRES_RING_H

#include "halley/wire.h"

/* One line: one writer, ever. */
struct hl_line {
    _Alignas(64) uint64_t value; /* written last, read first */
    uint32_t bytes, incarnation;
    uint64_t rest[6];
};
/* Store and load the line at an address of memory that ranks share. A line is looked at while it is
 * written, so each of its words is an atomic, and whoever sees one sees all that was written before
 * it. The words of one line may still be of two writings; value is never newer than the others. */
void hl_line_store(void *to, const struct hl_line *line);
void hl_line_load(const void *from, struct hl_line *line_out);

/* The bytes of a ring, and what makes them visible. Offsets from its start. */
struct hl_ring_memory;
struct hl_ring_memory_ops {
    /* To be written: at most one room for each of this rank's streams, [0, n_lanes * n_ranks). */
    void *(*room)(struct hl_ring_memory *m, size_t stream, size_t offset, size_t bytes);
    /* What was written to room is visible to whoever sees a line that is rung after this. */
    void (*publish)(struct hl_ring_memory *m, size_t stream, size_t offset, size_t bytes);
    void (*ring)(struct hl_ring_memory *m, size_t offset, const struct hl_line *line);
    void (*look)(struct hl_ring_memory *m, size_t offset, struct hl_line *line_out);
    /* What was published before the line that was looked at. Valid until its acknowledgement. */
    const void *(*fetch)(struct hl_ring_memory *m, size_t offset, size_t bytes);
    /* May this process still write here? false: another run has taken the memory. May be NULL. */
    bool (*ours)(struct hl_ring_memory *m);
    void (*close)(struct hl_ring_memory *m); /* the last call; may be NULL */
};
struct hl_ring_memory {
    const struct hl_ring_memory_ops *ops;
    char *base; /* coherent memory: where it is mapped */
};
/* Coherent memory at base: ordered loads and stores, no flushes. */
extern const struct hl_ring_memory_ops hl_ring_coherent;

/* Where ranks of one kernel sleep; not part of the shared memory above. */
struct hl_ring_bed {
    _Alignas(64) uint32_t word; /* changes when the rank should look again */
    uint32_t sleeping;
};

/* Memory over several devices is cut into stripes, which go round over the devices; consecutive
 * slots lie on different devices, and no slot crosses a stripe. */
struct hl_ring_shape {
    int n_ranks, n_lanes, n_slots;
    size_t part_bytes;
    size_t stripe_bytes; /* a multiple of 4096, at least part_bytes; 0: one device, no stripes */
    int n_devices;       /* with stripes: at least 1 */
};
/* Offsets from the ring's start: lines in front, slots behind. */
struct hl_ring_layout {
    size_t bells, acks, lines_end;
    size_t slots; /* a multiple of the stripe */
    size_t end;   /* with stripes: slots + a multiple of n_devices * stripe_bytes */
};
void hl_ring_lay_out(const struct hl_ring_shape *shape, struct hl_ring_layout *out);
size_t hl_ring_bytes(const struct hl_ring_shape *shape); /* the layout's end */

/* Join as `rank`. memory is owned by the wire from here on and closed with it, also on failure.
 * beds [n_ranks], NULL: ranks live on several kernels and look again after short sleeps.
 * incarnation: not 0, equal on all ranks; lines of another are ignored.
 * dead_after_ns: a peer whose heart has not beaten for so long is dead; 0: hearts are not watched.
 * The time is counted in beats of one's own heart, so that a machine that slept buries nobody. */
struct hl_ring_place {
    const char *name;
    struct hl_ring_shape shape;
    int rank;
    struct hl_ring_memory *memory;
    struct hl_ring_bed *beds;
    uint32_t incarnation;
    int64_t dead_after_ns;
};
enum hl_status hl_ring_open(struct hl_mem *mem, const struct hl_ring_place *place,
                            struct hl_wire **out, struct hl_diag *diag) HL_MUST_CHECK;
/* One more beat of this rank's heart: from any one thread, every HL_RING_BEAT_NS, from 1. */
enum { HL_RING_BEAT_NS = 100000000 };
void hl_ring_beat(struct hl_ring_memory *memory, const struct hl_ring_shape *shape, int rank,
                  uint32_t incarnation, uint64_t beat);
/* Say of a rank that its process is gone; only the one who watches processes may. */
void hl_ring_bury(struct hl_ring_memory *memory, const struct hl_ring_shape *shape, int rank,
                  uint32_t incarnation, struct hl_ring_bed *beds);

#endif
