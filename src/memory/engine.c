/* Weights, gradients and optimizer state in this process's memory. See engine.h. */
#include "memory/engine.h"

#include <assert.h>

enum { N_BUFFERS = HL_BUFFER_SLOT1 + 1 };

struct hl_engine {
    struct hl_mem *mem;
    const struct hl_layout *layout;
    struct hl_engine_shape shape;
    float *buffers[N_BUFFERS]; /* NULL: this run has none */
    struct hl_bf16 *copy;
    bool *has_grad;       /* [n_blocks]: contributions since the last clear */
    int64_t *slice_start; /* [n_blocks + 1]: where a block's slice lies in a sliced buffer */
};

static bool is_sliced(const struct hl_engine_shape *shape, enum hl_buffer buffer) {
    if (shape->n_ranks <= 1 || shape->sliced < HL_SLICED_STATE) return false;
    if (buffer == HL_BUFFER_MASTER) return shape->bf16_copy;
    return buffer != HL_BUFFER_GRAD;
}

static struct hl_range slice_of(const struct hl_layout *layout, const struct hl_engine_shape *shape,
                                int block) {
    struct hl_range range = layout->blocks[block];
    struct hl_range slice = hl_slice(range.n, HL_SLICE_UNIT, shape->rank, shape->n_ranks);
    return (struct hl_range){range.offset + slice.offset, slice.n};
}

/* Elements of a buffer on this rank. */
static size_t elements(const struct hl_layout *layout, const struct hl_engine_shape *shape,
                       enum hl_buffer buffer) {
    size_t n = 0;
    if (!is_sliced(shape, buffer)) return (size_t)layout->n_parameters;
    for (int b = 0; b < layout->n_blocks; b++) n += (size_t)slice_of(layout, shape, b).n;
    return n;
}

struct hl_engine_bytes hl_engine_measure(const struct hl_layout *layout,
                                         const struct hl_engine_shape *shape) {
    size_t n = (size_t)layout->n_parameters;
    size_t slot = elements(layout, shape, HL_BUFFER_SLOT0) * sizeof(float);
    return (struct hl_engine_bytes){
        .parameters = elements(layout, shape, HL_BUFFER_MASTER) * sizeof(float) +
                      (shape->bf16_copy ? n * sizeof(struct hl_bf16) : 0),
        .gradients = shape->train ? n * sizeof(float) : 0,
        .optimizer = shape->train ? slot * (size_t)shape->n_slots : 0,
    };
}

static bool make_records(struct hl_engine *engine) {
    size_t n = (size_t)engine->layout->n_blocks;
    engine->has_grad = hl_alloc(engine->mem, n, sizeof *engine->has_grad);
    engine->slice_start = hl_alloc(engine->mem, n + 1, sizeof *engine->slice_start);
    if (!engine->has_grad || !engine->slice_start) return false;
    for (size_t b = 0; b < n && engine->shape.n_ranks > 1; b++)
        engine->slice_start[b + 1] =
            engine->slice_start[b] + slice_of(engine->layout, &engine->shape, (int)b).n;
    return true;
}

enum hl_status hl_engine_new(struct hl_mem *mem, const struct hl_layout *layout,
                             const struct hl_engine_shape *shape, struct hl_engine **out,
                             struct hl_diag *diag) {
    struct hl_engine *engine = hl_alloc(mem, 1, sizeof *engine);
    if (!engine) return hl_fail_memory(diag, sizeof *engine, "the engine");
    *engine = (struct hl_engine){.mem = mem, .layout = layout, .shape = *shape};
    const char *what = "block records";
    size_t bytes = (size_t)layout->n_blocks * sizeof(int64_t);
    if (!make_records(engine)) goto out_failed;
    int n_buffers = shape->train ? HL_BUFFER_SLOT0 + shape->n_slots : 1;
    for (int b = 0; b < n_buffers; b++) {
        static const char *const names[] = {"weights", "gradients", "optimizer state",
                                            "optimizer state"};
        what = names[b];
        bytes = elements(layout, shape, (enum hl_buffer)b) * sizeof(float);
        if (!(engine->buffers[b] = hl_alloc(mem, bytes / sizeof(float), sizeof(float))))
            goto out_failed;
    }
    what = "the bf16 copy of the weights";
    bytes = (size_t)layout->n_parameters * sizeof *engine->copy;
    if (shape->bf16_copy &&
        !(engine->copy = hl_alloc(mem, (size_t)layout->n_parameters, sizeof *engine->copy)))
        goto out_failed;
    *out = engine;
    return HL_OK;
out_failed:
    hl_engine_free(engine);
    return hl_fail_memory(diag, bytes, what);
}

void hl_engine_free(struct hl_engine *engine) {
    if (!engine) return;
    for (int b = 0; b < N_BUFFERS; b++) hl_free(engine->mem, engine->buffers[b]);
    hl_free(engine->mem, engine->copy);
    hl_free(engine->mem, engine->has_grad);
    hl_free(engine->mem, engine->slice_start);
    hl_free(engine->mem, engine);
}

struct hl_range hl_engine_held(const struct hl_engine *engine, enum hl_buffer buffer, int block) {
    if (is_sliced(&engine->shape, buffer)) return slice_of(engine->layout, &engine->shape, block);
    return engine->layout->blocks[block];
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

float *hl_engine_data(struct hl_engine *engine, enum hl_buffer buffer, struct hl_range range) {
    assert(range.offset >= 0 && range.offset + range.n <= engine->layout->n_parameters);
    if (!engine->buffers[buffer]) return NULL;
    if (!is_sliced(&engine->shape, buffer)) return engine->buffers[buffer] + range.offset;
    int block = block_at(engine->layout, range.offset);
    struct hl_range held = slice_of(engine->layout, &engine->shape, block);
    assert(range.n == 0 ||
           (range.offset >= held.offset && range.offset + range.n <= held.offset + held.n));
    return engine->buffers[buffer] + engine->slice_start[block] + (range.offset - held.offset);
}

struct hl_bf16 *hl_engine_copy(struct hl_engine *engine, struct hl_range range) {
    return engine->copy ? engine->copy + range.offset : NULL;
}

const void *hl_engine_acquire(struct hl_engine *engine, struct hl_range range) {
    if (engine->copy) return engine->copy + range.offset;
    return engine->buffers[HL_BUFFER_MASTER] + range.offset;
}

void hl_engine_publish(struct hl_engine *engine, const struct hl_kernels *kernels,
                       struct hl_range range) {
    if (engine->copy)
        kernels->to_bf16(range.n, hl_engine_data(engine, HL_BUFFER_MASTER, range),
                         engine->copy + range.offset);
}

void hl_engine_grad_clear(struct hl_engine *engine) {
    for (int b = 0; b < engine->layout->n_blocks; b++) engine->has_grad[b] = false;
}

bool hl_engine_grad_adds(struct hl_engine *engine, int block) {
    bool adds = engine->has_grad[block];
    engine->has_grad[block] = true;
    return adds;
}
