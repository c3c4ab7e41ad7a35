/* Weights, gradients and optimizer state in this process's memory. See engine.h. */
#include "memory/engine.h"

#include <assert.h>

struct hl_engine {
    struct hl_mem *mem;
    const struct hl_layout *layout;
    float *buffers[4]; /* enum hl_buffer; NULL: this run has none */
    struct hl_bf16 *copy;
    bool *has_grad; /* [n_blocks]: contributions since the last clear */
};

struct hl_engine_bytes hl_engine_measure(const struct hl_layout *layout,
                                         const struct hl_engine_shape *shape) {
    size_t n = (size_t)layout->n_parameters;
    return (struct hl_engine_bytes){
        .parameters = n * (sizeof(float) + (shape->bf16_copy ? sizeof(struct hl_bf16) : 0)),
        .gradients = shape->train ? n * sizeof(float) : 0,
        .optimizer = shape->train ? n * sizeof(float) * (size_t)shape->n_slots : 0,
    };
}

enum hl_status hl_engine_new(struct hl_mem *mem, const struct hl_layout *layout,
                             const struct hl_engine_shape *shape, struct hl_engine **out,
                             struct hl_diag *diag) {
    size_t n = (size_t)layout->n_parameters;
    struct hl_engine *engine = hl_alloc(mem, 1, sizeof *engine);
    if (!engine) return hl_fail_memory(diag, sizeof *engine, "the engine");
    engine->mem = mem;
    engine->layout = layout;
    const char *what = "block records";
    size_t bytes = (size_t)layout->n_blocks;
    if (!(engine->has_grad = hl_alloc(mem, bytes, sizeof(bool)))) goto out_failed;
    int n_buffers = shape->train ? HL_BUFFER_SLOT0 + shape->n_slots : 1;
    bytes = n * sizeof(float);
    for (int b = 0; b < n_buffers; b++) {
        static const char *const names[] = {"weights", "gradients", "optimizer state",
                                            "optimizer state"};
        what = names[b];
        if (!(engine->buffers[b] = hl_alloc(mem, n, sizeof(float)))) goto out_failed;
    }
    what = "the bf16 copy of the weights";
    if (shape->bf16_copy && !(engine->copy = hl_alloc(mem, n, sizeof *engine->copy)))
        goto out_failed;
    *out = engine;
    return HL_OK;
out_failed:
    hl_engine_free(engine);
    return hl_fail_memory(diag, bytes, what);
}

void hl_engine_free(struct hl_engine *engine) {
    if (!engine) return;
    for (int b = 0; b < 4; b++) hl_free(engine->mem, engine->buffers[b]);
    hl_free(engine->mem, engine->copy);
    hl_free(engine->mem, engine->has_grad);
    hl_free(engine->mem, engine);
}

float *hl_engine_data(struct hl_engine *engine, enum hl_buffer buffer, struct hl_range range) {
    assert(range.offset >= 0 && range.offset + range.n <= engine->layout->n_parameters);
    return engine->buffers[buffer] ? engine->buffers[buffer] + range.offset : NULL;
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
        kernels->to_bf16(range.n, engine->buffers[HL_BUFFER_MASTER] + range.offset,
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
