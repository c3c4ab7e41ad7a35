/* Weights, gradients and optimizer state in this process's memory. See engine.h. */
#include "memory/engine.h"

#include <assert.h>
#include <string.h>

enum {
    N_BUFFERS = HL_BUFFER_SLOT1 + 1,
    LAYER_GRADS = 2, /* windows that layers share: one is made while one is reduced */
    LAYER_WEIGHTS = HL_LAYER_WINDOWS,
};

/* A block in full where ranks keep slices. The first and the last block have windows of their own:
 * they are of other sizes than layers, and a tied embedding is used at both ends of a pass. */
struct window {
    void *data;
    int block; /* -1: free */
    bool held;
    uint64_t used; /* when it was opened last */
};
struct windows {
    int n;
    struct window all[2 + LAYER_WEIGHTS];
    uint64_t clock;
};

struct hl_engine {
    struct hl_mem *mem;
    const struct hl_layout *layout;
    struct hl_engine_shape shape;
    float *buffers[N_BUFFERS]; /* NULL: this run has none */
    void *copy;                /* of the master, as compute reads it; NULL: it reads the master */
    struct windows grads, weights;
    bool *has_grad;       /* [n_blocks]: contributions since the last clear, or in the window */
    bool *has_kept;       /* [n_blocks]: what windows gave since the last clear */
    int64_t *slice_start; /* [n_blocks + 1]: where a block's slice lies in a sliced buffer */
};

/* ---- what is sliced ---- */

static bool slices(const struct hl_engine_shape *shape, enum hl_sliced level) {
    return shape->n_ranks > 1 && shape->sliced >= level;
}

static bool has_copy(const struct hl_engine_shape *shape) {
    return shape->bf16_copy || shape->apart;
}
/* Bytes of a weight as compute reads it. */
static size_t weight_bytes(const struct hl_engine_shape *shape) {
    return shape->bf16_copy ? sizeof(struct hl_bf16) : sizeof(float);
}

static bool is_sliced(const struct hl_engine_shape *shape, enum hl_buffer buffer) {
    if (buffer == HL_BUFFER_GRAD)
        return slices(shape, HL_SLICED_GRADIENTS) && !shape->whole_gradient;
    if (buffer == HL_BUFFER_MASTER)
        return slices(shape, has_copy(shape) ? HL_SLICED_STATE : HL_SLICED_WEIGHTS);
    return slices(shape, HL_SLICED_STATE);
}

static bool has_grad_windows(const struct hl_engine_shape *shape) {
    return is_sliced(shape, HL_BUFFER_GRAD) || (shape->grad_windows && shape->n_ranks > 1);
}

static struct hl_range slice_of(const struct hl_layout *layout, const struct hl_engine_shape *shape,
                                int block) {
    struct hl_range range = layout->blocks[block];
    struct hl_range slice = hl_slice(range.n, HL_SLICE_UNIT, shape->rank, shape->n_ranks);
    return (struct hl_range){range.offset + slice.offset, slice.n};
}

static size_t all_slices(const struct hl_layout *layout, const struct hl_engine_shape *shape) {
    size_t n = 0;
    for (int b = 0; b < layout->n_blocks; b++) n += (size_t)slice_of(layout, shape, b).n;
    return n;
}

/* Elements of a buffer on this rank, windows apart. */
static size_t elements(const struct hl_layout *layout, const struct hl_engine_shape *shape,
                       enum hl_buffer buffer) {
    return is_sliced(shape, buffer) ? all_slices(layout, shape) : (size_t)layout->n_parameters;
}
static size_t copy_elements(const struct hl_layout *layout, const struct hl_engine_shape *shape) {
    if (!has_copy(shape)) return 0;
    return slices(shape, HL_SLICED_WEIGHTS) ? all_slices(layout, shape)
                                            : (size_t)layout->n_parameters;
}

/* Elements of window i: the first block's, the last block's, then layers'. */
static size_t window_elements(const struct hl_layout *layout, int i) {
    int64_t n = 0;
    if (i < 2) return (size_t)layout->blocks[i == 0 ? 0 : layout->n_blocks - 1].n;
    for (int b = 1; b < layout->n_blocks - 1; b++)
        if (layout->blocks[b].n > n) n = layout->blocks[b].n;
    return (size_t)n;
}
static size_t all_windows(const struct hl_layout *layout, int n_layer_windows) {
    size_t n = 0;
    for (int i = 0; i < 2 + n_layer_windows; i++) n += window_elements(layout, i);
    return n;
}

struct hl_engine_bytes hl_engine_measure(const struct hl_layout *layout,
                                         const struct hl_engine_shape *shape) {
    size_t slot = elements(layout, shape, HL_BUFFER_SLOT0) * sizeof(float);
    size_t grad = elements(layout, shape, HL_BUFFER_GRAD) * sizeof(float);
    size_t weight = weight_bytes(shape);
    if (has_grad_windows(shape)) grad += all_windows(layout, LAYER_GRADS) * sizeof(float);
    struct hl_engine_bytes bytes = {
        .parameters = elements(layout, shape, HL_BUFFER_MASTER) * sizeof(float) +
                      copy_elements(layout, shape) * weight,
        .gradients = shape->train ? grad : 0,
        .optimizer = shape->train ? slot * (size_t)shape->n_slots : 0,
    };
    if (slices(shape, HL_SLICED_WEIGHTS))
        bytes.parameters += all_windows(layout, LAYER_WEIGHTS) * weight;
    return bytes;
}

/* ---- life ---- */

static bool make_records(struct hl_engine *engine) {
    size_t n = (size_t)engine->layout->n_blocks;
    engine->has_grad = hl_alloc(engine->mem, n, sizeof *engine->has_grad);
    engine->has_kept = hl_alloc(engine->mem, n, sizeof *engine->has_kept);
    engine->slice_start = hl_alloc(engine->mem, n + 1, sizeof *engine->slice_start);
    if (!engine->has_grad || !engine->has_kept || !engine->slice_start) return false;
    for (size_t b = 0; b < n && engine->shape.n_ranks > 1; b++)
        engine->slice_start[b + 1] =
            engine->slice_start[b] + slice_of(engine->layout, &engine->shape, (int)b).n;
    return true;
}

static bool make_windows(struct hl_engine *engine, struct windows *w, int n_layers, size_t size) {
    for (w->n = 0; w->n < 2 + n_layers; w->n++) {
        struct window *one = &w->all[w->n];
        *one = (struct window){.block = -1};
        one->data = hl_alloc(engine->mem, window_elements(engine->layout, w->n), size);
        if (!one->data) return false;
    }
    return true;
}

static bool make_buffers(struct hl_engine *engine, const char **what, size_t *bytes) {
    const struct hl_engine_shape *shape = &engine->shape;
    static const char *const names[] = {"weights", "gradients", "optimizer state",
                                        "optimizer state"};
    int n_buffers = shape->train ? HL_BUFFER_SLOT0 + shape->n_slots : 1;
    for (int b = 0; b < n_buffers; b++) {
        size_t n = elements(engine->layout, shape, (enum hl_buffer)b);
        *what = names[b];
        *bytes = n * sizeof(float);
        if (!(engine->buffers[b] = hl_alloc(engine->mem, n, sizeof(float)))) return false;
    }
    size_t n = copy_elements(engine->layout, shape);
    size_t weight = weight_bytes(shape);
    *what = "the copy of the weights";
    *bytes = n * weight;
    if (n && !(engine->copy = hl_alloc(engine->mem, n, weight))) return false;
    *what = "blocks that are gathered";
    *bytes = all_windows(engine->layout, LAYER_WEIGHTS) * sizeof(float);
    if (has_grad_windows(shape) && shape->train &&
        !make_windows(engine, &engine->grads, LAYER_GRADS, sizeof(float)))
        return false;
    return !slices(shape, HL_SLICED_WEIGHTS) ||
           make_windows(engine, &engine->weights, LAYER_WEIGHTS, weight);
}

enum hl_status hl_engine_new(struct hl_mem *mem, const struct hl_layout *layout,
                             const struct hl_engine_shape *shape, struct hl_engine **out,
                             struct hl_diag *diag) {
    struct hl_engine *engine = hl_alloc(mem, 1, sizeof *engine);
    if (!engine) return hl_fail_memory(diag, sizeof *engine, "the engine");
    *engine = (struct hl_engine){.mem = mem, .layout = layout, .shape = *shape};
    const char *what = "block records";
    size_t bytes = (size_t)layout->n_blocks * sizeof(int64_t);
    if (!make_records(engine) || !make_buffers(engine, &what, &bytes)) {
        hl_engine_free(engine);
        return hl_fail_memory(diag, bytes, what);
    }
    *out = engine;
    return HL_OK;
}

static void free_windows(struct hl_engine *engine, struct windows *w) {
    for (int i = 0; i < (int)(sizeof w->all / sizeof *w->all); i++)
        hl_free(engine->mem, w->all[i].data);
}

void hl_engine_free(struct hl_engine *engine) {
    if (!engine) return;
    for (int b = 0; b < N_BUFFERS; b++) hl_free(engine->mem, engine->buffers[b]);
    free_windows(engine, &engine->grads);
    free_windows(engine, &engine->weights);
    hl_free(engine->mem, engine->copy);
    hl_free(engine->mem, engine->has_grad);
    hl_free(engine->mem, engine->has_kept);
    hl_free(engine->mem, engine->slice_start);
    hl_free(engine->mem, engine);
}

/* ---- windows ---- */

static struct window *window_of(struct windows *w, int block) {
    for (int i = 0; i < w->n; i++)
        if (w->all[i].block == block) return &w->all[i];
    return NULL;
}

/* The window a block may have: its own, a free one, or the one used longest ago. NULL: all held.
 * `takes` - whether one that is open may be taken over. */
static struct window *window_for(struct hl_engine *engine, struct windows *w, int block,
                                 bool takes) {
    int last = engine->layout->n_blocks - 1;
    struct window *best = window_of(w, block);
    if (best) return best;
    int first_index = block == 0 ? 0 : block == last ? 1 : 2;
    int end_index = block == 0 ? 1 : block == last ? 2 : w->n;
    for (int i = first_index; i < end_index; i++) {
        struct window *one = &w->all[i];
        if (one->block >= 0 && (!takes || one->held)) continue;
        if (!best || one->block < 0 || (best->block >= 0 && one->used < best->used)) best = one;
    }
    return best;
}

bool hl_engine_grad_room(struct hl_engine *engine, int block) {
    return !engine->grads.n || window_for(engine, &engine->grads, block, false);
}

void hl_engine_grad_close(struct hl_engine *engine, int block) {
    struct window *w = engine->grads.n ? window_of(&engine->grads, block) : NULL;
    if (!w) return;
    struct hl_range keep = hl_engine_held(engine, HL_BUFFER_GRAD, block);
    const float *from = (const float *)w->data + keep.offset - engine->layout->blocks[block].offset;
    w->block = -1;
    float *to = hl_engine_data(engine, HL_BUFFER_GRAD, keep);
    if (engine->has_kept[block])
        for (int64_t i = 0; i < keep.n; i++) to[i] += from[i];
    else memcpy(to, from, (size_t)keep.n * sizeof *to);
    engine->has_kept[block] = true;
    engine->has_grad[block] = false;
}

void *hl_engine_weights_open(struct hl_engine *engine, int block, bool *fresh_out) {
    struct window *w = window_for(engine, &engine->weights, block, true);
    if (!w) return NULL;
    w->used = ++engine->weights.clock;
    *fresh_out = w->block != block;
    if (!*fresh_out) return w->data;
    w->block = block;
    w->held = false;
    struct hl_range slice = slice_of(engine->layout, &engine->shape, block);
    size_t skip = (size_t)(slice.offset - engine->layout->blocks[block].offset),
           n = (size_t)slice.n;
    size_t size = weight_bytes(&engine->shape);
    const char *from = engine->copy ? engine->copy : (void *)engine->buffers[HL_BUFFER_MASTER];
    memcpy((char *)w->data + skip * size, from + (size_t)engine->slice_start[block] * size,
           n * size);
    return w->data;
}

void hl_engine_weights_hold(struct hl_engine *engine, int block, bool hold) {
    struct window *w = window_of(&engine->weights, block);
    if (w) w->held = hold;
}

void hl_engine_weights_stale(struct hl_engine *engine) {
    for (int i = 0; i < engine->weights.n; i++) engine->weights.all[i].block = -1;
}

/* ---- ranges ---- */

struct hl_range hl_engine_held(const struct hl_engine *engine, enum hl_buffer buffer, int block) {
    if (is_sliced(&engine->shape, buffer)) return slice_of(engine->layout, &engine->shape, block);
    return engine->layout->blocks[block];
}

struct hl_range hl_engine_held_weights(const struct hl_engine *engine, int block) {
    if (slices(&engine->shape, HL_SLICED_WEIGHTS))
        return slice_of(engine->layout, &engine->shape, block);
    return engine->layout->blocks[block];
}

bool hl_engine_has_all_weights(const struct hl_engine *engine) {
    return !slices(&engine->shape, HL_SLICED_WEIGHTS);
}

/* The block that holds an element. */
static int block_at(const struct hl_layout *layout, int64_t offset) {
    int first = 0, last = layout->n_blocks - 1;
    while (first < last) {
        int middle = (first + last + 1) / 2;
        if (layout->blocks[middle].offset <= offset) first = middle;
        else last = middle - 1;
    }
    return first;
}

/* Where a range of this rank's slices lies in a sliced buffer. */
static int64_t in_slices(const struct hl_engine *engine, struct hl_range range) {
    int block = block_at(engine->layout, range.offset);
    struct hl_range held = slice_of(engine->layout, &engine->shape, block);
    assert(range.n == 0 ||
           (range.offset >= held.offset && range.offset + range.n <= held.offset + held.n));
    return engine->slice_start[block] + (range.offset - held.offset);
}

float *hl_engine_data(struct hl_engine *engine, enum hl_buffer buffer, struct hl_range range) {
    assert(range.offset >= 0 && range.offset + range.n <= engine->layout->n_parameters);
    float *data = engine->buffers[buffer];
    if (!data) return NULL;
    if (buffer == HL_BUFFER_GRAD && engine->grads.n) {
        int block = block_at(engine->layout, range.offset);
        const struct window *w = window_of(&engine->grads, block);
        if (w) return (float *)w->data + (range.offset - engine->layout->blocks[block].offset);
    }
    return data + (is_sliced(&engine->shape, buffer) ? in_slices(engine, range) : range.offset);
}

float *hl_engine_grad_open(struct hl_engine *engine, int block) {
    if (engine->grads.n && !window_of(&engine->grads, block)) {
        struct window *w = window_for(engine, &engine->grads, block, false);
        assert(w); /* hl_engine_grad_room was asked */
        w->block = block;
    }
    return hl_engine_data(engine, HL_BUFFER_GRAD, engine->layout->blocks[block]);
}

/* Of the weights that compute reads, beyond windows. */
static void *weights_at(struct hl_engine *engine, struct hl_range range) {
    void *data = engine->copy ? engine->copy : (void *)engine->buffers[HL_BUFFER_MASTER];
    int64_t at =
        slices(&engine->shape, HL_SLICED_WEIGHTS) ? in_slices(engine, range) : range.offset;
    return (char *)data + (size_t)at * weight_bytes(&engine->shape);
}

struct hl_bf16 *hl_engine_copy(struct hl_engine *engine, struct hl_range range) {
    return engine->shape.bf16_copy ? weights_at(engine, range) : NULL;
}

void *hl_engine_weights(struct hl_engine *engine, struct hl_range range) {
    return weights_at(engine, range);
}

const void *hl_engine_acquire(struct hl_engine *engine, struct hl_range range) {
    if (slices(&engine->shape, HL_SLICED_WEIGHTS)) {
        int block = block_at(engine->layout, range.offset);
        const struct window *w = window_of(&engine->weights, block);
        int64_t skip = range.offset - engine->layout->blocks[block].offset;
        if (!w) return NULL;
        return (char *)w->data + (size_t)skip * weight_bytes(&engine->shape);
    }
    return weights_at(engine, range);
}

void hl_engine_publish(struct hl_engine *engine, const struct hl_kernels *kernels,
                       struct hl_range range) {
    if (engine->copy)
        hl_engine_put_weights(engine, kernels, range,
                              hl_engine_data(engine, HL_BUFFER_MASTER, range));
}

void hl_engine_put_weights(struct hl_engine *engine, const struct hl_kernels *kernels,
                           struct hl_range range, const float *data) {
    void *to = weights_at(engine, range);
    if (engine->shape.bf16_copy) kernels->to_bf16(range.n, data, to);
    else if (to != data) memcpy(to, data, (size_t)range.n * sizeof *data);
}

void hl_engine_grad_clear(struct hl_engine *engine) {
    for (int b = 0; b < engine->layout->n_blocks; b++)
        engine->has_grad[b] = engine->has_kept[b] = false;
    for (int i = 0; i < engine->grads.n; i++) engine->grads.all[i].block = -1;
}

bool hl_engine_grad_adds(struct hl_engine *engine, int block) {
    bool adds = engine->has_grad[block];
    engine->has_grad[block] = true;
    return adds;
}
