/* The owner of weights, gradients and optimizer state. Everybody else asks for ranges of the flat
 * vector and never keeps a pointer across calls that may move them.
 *
 * All of it lies in this process's memory, whole or in this rank's slices; tiers and versions grow
 * behind these calls. The calls strategies may use are declared in halley/strategy.h. One thread:
 * the loop's. */
#ifndef HALLEY_MEMORY_ENGINE_H
#define HALLEY_MEMORY_ENGINE_H

#include "halley/layout.h"
#include "halley/mem.h"
#include "halley/strategy.h"

struct hl_engine_shape {
    bool train;     /* gradients and optimizer slots exist */
    bool bf16_copy; /* compute reads a bf16 copy of the master */
    bool apart;     /* compute reads a copy of the master in f32, too (need.weights_apart) */
    int n_slots;
    enum hl_sliced sliced;
    bool whole_gradient; /* even so */
    bool grad_windows;   /* even where gradients are not sliced */
    int rank, n_ranks;   /* whose slices; n_ranks 0: as 1 */
};
struct hl_engine_bytes {
    size_t parameters, gradients, optimizer;
};

/* layout is borrowed. Everything starts as zero. */
enum hl_status hl_engine_new(struct hl_mem *mem, const struct hl_layout *layout,
                             const struct hl_engine_shape *shape, struct hl_engine **out,
                             struct hl_diag *diag) HL_MUST_CHECK;
void hl_engine_free(struct hl_engine *engine);
struct hl_engine_bytes hl_engine_measure(const struct hl_layout *layout,
                                         const struct hl_engine_shape *shape);

/* The part of a block that is in a buffer on this rank: all of it, or its slice. */
struct hl_range hl_engine_held(const struct hl_engine *engine, enum hl_buffer buffer, int block);

/* Can any block be read at any time? */
bool hl_engine_has_all_weights(const struct hl_engine *engine);
/* The same of what compute reads, beyond windows. */
struct hl_range hl_engine_held_weights(const struct hl_engine *engine, int block);

/* Weights of the compute type, for reading: of a block or a part of one. With sliced weights its
 * window must be open. */
const void *hl_engine_acquire(struct hl_engine *engine, struct hl_range range);
/* The gradient of a block in full, to be written. Sliced gradients: takes a window when the block
 * has none yet (hl_engine_grad_room must say that there is one). */
float *hl_engine_grad_open(struct hl_engine *engine, int block);
/* The gradient of a block is about to take a contribution. True when something is there to add to.
 */
bool hl_engine_grad_adds(struct hl_engine *engine, int block);

static inline struct hl_range hl_layout_all(const struct hl_layout *layout) {
    return (struct hl_range){0, layout->n_parameters};
}

#endif
