/* Buffers of a run, and the walk over its blocks. Layers are in layer.c, the head is in head.c. */
#include "model/run.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/run_internal.h"

enum { ALIGN = 64 };
/* A chunk of logits takes about this much: a small part of a run, and enough rows for the products.
 */
static const int64_t CHUNK_BYTES = 80 << 20;
/* No array of a run has more, so that counting its bytes cannot overflow. */
static const int64_t MOST_ELEMENTS = (int64_t)1 << 56;

/* ---- laying out memory: one walk counts (base NULL), the same walk places ---- */

struct carve {
    char *base;
    size_t used;
    bool overflow;
};

static void *carve(struct carve *c, int64_t n, size_t size) {
    size_t bytes;
    if (n < 0 || !hl_size_mul((size_t)n, size, &bytes) || !hl_size_add(bytes, ALIGN - 1, &bytes))
        c->overflow = true, bytes = 0;
    bytes = bytes / ALIGN * ALIGN;
    void *at = c->base ? c->base + c->used : NULL;
    if (!hl_size_add(c->used, bytes, &c->used)) c->overflow = true;
    return at;
}

static struct layer_slot carve_slot(const struct hl_model_run *run, struct carve *c) {
    int64_t N = run->max_tokens;
    bool means = run->model->config.family == HL_FAMILY_GPT2, qk_norm = run->model->config.qk_norm;
    return (struct layer_slot){
        .mean1_N = means ? carve(c, N, 4) : NULL,
        .mean2_N = means ? carve(c, N, 4) : NULL,
        .rstd1_N = carve(c, N, 4),
        .rstd2_N = carve(c, N, 4),
        .qkv_NE = carve(c, N * run->E, run->t),
        .raw_qkv_NE = qk_norm ? carve(c, N * run->E, run->t) : NULL,
        .rstd_qk_N = qk_norm ? carve(c, N * (run->H + run->K), 4) : NULL,
        .attention_ND = carve(c, N * run->H * run->D, run->t),
        .lse_NH = carve(c, N * run->H, 4),
        .middle_NC = carve(c, N * run->C, 4),
        .up_NU = carve(c, N * run->U, run->t),
    };
}

/* A layer that keeps nothing: recomputed, or not trained. */
static bool keeps_nothing(const struct hl_model_run *run, const struct hl_model_run_shape *shape,
                          int64_t layer) {
    return !run->train || (shape->recompute && shape->recompute[layer + 1]);
}

static void carve_activations(struct hl_model_run *run, struct carve *c,
                              const struct hl_model_run_shape *shape) {
    int64_t L = run->L, stream = run->max_tokens * run->C;
    run->input_NC = carve(c, L + 1, sizeof *run->input_NC);
    run->slots = carve(c, L, sizeof *run->slots);
    run->recompute = carve(c, L + 2, sizeof *run->recompute);
    for (int64_t l = 0; l <= L; l++) {
        /* without training two buffers of the residual stream take turns */
        float *input = run->train || l < 2 ? carve(c, stream, 4) : NULL;
        if (c->base) run->input_NC[l] = input ? input : run->input_NC[l - 2];
        if (l == L) break;
        bool nothing = keeps_nothing(run, shape, l);
        struct layer_slot slot = nothing ? run->shared : carve_slot(run, c);
        if (c->base) run->slots[l] = slot, run->recompute[l + 1] = nothing && run->train;
    }
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* What layers need while they run; the slot of those that keep nothing is dead when the head runs.
 */
static void carve_layer_buffers(struct hl_model_run *run, struct carve *c,
                                const struct hl_model_run_shape *shape) {
    int64_t N = run->max_tokens, wide = most(most(run->E, run->U), most(run->F, run->C));
    bool shared = false;
    for (int64_t l = 0; l < run->L && !shared; l++) shared = keeps_nothing(run, shape, l);
    if (shared) run->shared = carve_slot(run, c);
    run->wide_a = carve(c, N * wide, run->t);
    run->wide_b = run->train ? carve(c, N * wide, run->t) : NULL;
    run->row_scratch = run->train ? carve(c, hl_norm_scratch(N, wide), 4) : NULL;
    run->decode_scratch = carve(c, (shape->max_positions + 1) * run->H, 4);
    int64_t longest[2] = {0, N < shape->max_positions ? N : shape->max_positions};
    struct hl_attention one = {1, longest, run->H, run->K, run->D, 1.0f};
    run->attention_scratch_bytes = run->k->attention_scratch(&one);
    run->attention_scratch = carve(c, (int64_t)run->attention_scratch_bytes, 1);
}

/* Rows of logits at a time for a batch of N tokens: never all of them, unless it is one. A function
 * of the batch alone, because sums over chunks are rounded: what a run has room for must not change
 * its bits. Grows with N. */
static int64_t chunk_rows(const struct hl_model_run *run, int64_t N) {
    int64_t rows = most(CHUNK_BYTES / (4 * run->V), 1), half = (N + 1) / 2;
    if (rows > half) rows = half;
    return rows > HL_ROW_CHUNK ? rows / HL_ROW_CHUNK * HL_ROW_CHUNK : rows;
}

/* What the head needs in its forward. */
static void carve_head_buffers(struct hl_model_run *run, struct carve *c) {
    run->chunk_rows = chunk_rows(run, run->max_tokens);
    run->logits_RV = carve(c, run->chunk_rows * run->V, 4);
    run->loss_R = carve(c, run->chunk_rows, 4);
}

static void carve_buffers(struct hl_model_run *run, struct carve *c,
                          const struct hl_model_run_shape *shape) {
    int64_t N = run->max_tokens;
    run->dx_NC = run->train ? carve(c, N * run->C, 4) : NULL;
    run->norm_NC = carve(c, N * run->C, run->t);
    run->small_NC = carve(c, N * most(run->C, run->H * run->D), run->t);
    run->head_mean_N = carve(c, N, 4);
    run->head_rstd_N = carve(c, N, 4);
    bool rope = run->model->config.family == HL_FAMILY_LLAMA;
    run->rope_cos = rope ? carve(c, shape->max_positions * (run->D / 2), 4) : NULL;
    run->rope_sin = rope ? carve(c, shape->max_positions * (run->D / 2), 4) : NULL;

    /* layers and the head never run at once: their buffers share one place */
    size_t begin = c->used;
    carve_layer_buffers(run, c, shape);
    size_t layers_end = c->used;
    c->used = begin;
    carve_head_buffers(run, c);
    if (c->used < layers_end) c->used = layers_end;
}

/* ---- where tensors lie ---- */

static int64_t find(const struct hl_model *model, int block, const char *suffix) {
    size_t n = strlen(suffix);
    for (int i = 0; i < model->layout.n_tensors; i++) {
        const struct hl_tensor *t = &model->layout.tensors[i];
        size_t length = strlen(t->name);
        if (t->block == block && length >= n && !strcmp(t->name + length - n, suffix))
            return t->offset - model->layout.blocks[block].offset;
    }
    return -1;
}

static void find_offsets(struct hl_model_run *run) {
    const struct hl_model *m = run->model;
    int last = m->layout.n_blocks - 1;
    bool gpt2 = m->config.family == HL_FAMILY_GPT2;
    run->wpe = find(m, 0, "wpe.weight");
    run->layer = (struct layer_offsets){
        .norm1_w = find(m, 1, gpt2 ? "ln_1.weight" : "input_layernorm.weight"),
        .norm1_b = find(m, 1, "ln_1.bias"),
        .qkv_w = find(m, 1, gpt2 ? "attn.c_attn.weight" : "q_proj.weight"),
        .qkv_b = find(m, 1, gpt2 ? "attn.c_attn.bias" : "q_proj.bias"),
        .q_norm = find(m, 1, "q_norm.weight"),
        .k_norm = find(m, 1, "k_norm.weight"),
        .out_w = find(m, 1, gpt2 ? "attn.c_proj.weight" : "o_proj.weight"),
        .out_b = find(m, 1, "attn.c_proj.bias"),
        .norm2_w = find(m, 1, gpt2 ? "ln_2.weight" : "post_attention_layernorm.weight"),
        .norm2_b = find(m, 1, "ln_2.bias"),
        .up_w = find(m, 1, gpt2 ? "mlp.c_fc.weight" : "gate_proj.weight"),
        .up_b = find(m, 1, "mlp.c_fc.bias"),
        .down_w = find(m, 1, gpt2 ? "mlp.c_proj.weight" : "down_proj.weight"),
        .down_b = find(m, 1, "mlp.c_proj.bias"),
    };
    run->head = (struct head_offsets){find(m, last, gpt2 ? "ln_f.weight" : "model.norm.weight"),
                                      find(m, last, "ln_f.bias"), find(m, last, "lm_head.weight")};
}

/* ---- rotary embedding ---- */

/* Frequency of a pair, with Llama 3.1's scaling by wavelength (arXiv:2407.21783 and its
 * configuration files). */
static double rope_frequency(const struct hl_model_config *config, int64_t pair) {
    double f = pow(config->rope_theta, -2.0 * (double)pair / (double)config->head_dim);
    const struct hl_rope_scaling *s = &config->rope_scaling;
    if (s->kind == HL_ROPE_LINEAR) return f / s->factor;
    if (s->kind != HL_ROPE_LLAMA3) return f;
    double turns = (double)s->original_max_position_embeddings * f / 6.283185307179586476925;
    if (turns < s->low_freq_factor) return f / s->factor;
    if (turns > s->high_freq_factor) return f;
    double smooth = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * f / s->factor + smooth * f;
}

static void fill_rope(struct hl_model_run *run, int64_t max_positions) {
    int64_t half = run->D / 2;
    for (int64_t i = 0; i < half; i++) {
        double f = rope_frequency(&run->model->config, i);
        for (int64_t p = 0; p < max_positions; p++) {
            run->rope_cos[p * half + i] = (float)cos((double)p * f);
            run->rope_sin[p * half + i] = (float)sin((double)p * f);
        }
    }
}

/* ---- life ---- */

static void set_sizes(struct hl_model_run *run, const struct hl_model *model,
                      const struct hl_kernels *kernels, const struct hl_model_run_shape *shape) {
    const struct hl_model_config *c = &model->config;
    *run = (struct hl_model_run){
        .model = model,
        .k = kernels,
        .t = hl_dtype_bytes(kernels->dtype),
        .C = c->hidden_size,
        .L = c->num_hidden_layers,
        .H = c->num_attention_heads,
        .K = c->num_key_value_heads,
        .D = c->head_dim,
        .F = c->intermediate_size,
        .V = model->padded_vocab,
        .max_tokens = shape->max_tokens,
        .train = shape->train,
    };
    run->E = (run->H + 2 * run->K) * run->D;
    run->U = c->family == HL_FAMILY_GPT2 ? run->F : 2 * run->F;
}

enum hl_status hl_model_run_measure(const struct hl_model *model, const struct hl_kernels *kernels,
                                    const struct hl_model_run_shape *shape,
                                    struct hl_model_run_bytes *out) {
    struct hl_model_run run;
    set_sizes(&run, model, kernels, shape);
    int64_t widest = most(most(run.E, run.U), most(most(run.F, run.C), run.H * run.D));
    if (shape->max_tokens > MOST_ELEMENTS / widest || shape->max_positions > MOST_ELEMENTS / widest)
        return HL_E_MEMORY;
    struct carve activations = {0}, buffers = {0};
    carve_buffers(&run, &buffers, shape);
    carve_activations(&run, &activations, shape);
    if (activations.overflow || buffers.overflow) return HL_E_MEMORY;
    *out = (struct hl_model_run_bytes){activations.used, buffers.used};
    return HL_OK;
}

enum hl_status hl_model_run_new(struct hl_mem *mem, const struct hl_model *model,
                                const struct hl_kernels *kernels, struct hl_products *products,
                                const struct hl_model_run_shape *shape, struct hl_model_run **out,
                                struct hl_diag *diag) {
    struct hl_model_run_bytes bytes;
    if (hl_model_run_measure(model, kernels, shape, &bytes) != HL_OK)
        return hl_fail(diag, HL_E_MEMORY,
                       "activations of this model and batch exceed the address space");
    struct hl_model_run *run = hl_alloc(mem, 1, sizeof *run);
    if (!run) return hl_fail_memory(diag, sizeof *run, "the model's run");
    set_sizes(run, model, kernels, shape);
    run->mem = mem;
    run->products = products;
    run->memory = hl_alloc(mem, bytes.activations + bytes.buffers, 1);
    if (!run->memory) {
        hl_free(mem, run);
        return hl_fail_memory(
            diag, bytes.activations + bytes.buffers,
            "activations; a smaller batch, a shorter block_size or recompute needs less");
    }
    struct carve c = {run->memory, 0, false};
    carve_buffers(run, &c, shape);
    carve_activations(run, &c, shape);
    find_offsets(run);
    if (run->rope_cos) fill_rope(run, shape->max_positions);
    *out = run;
    return HL_OK;
}

void hl_model_run_free(struct hl_model_run *run) {
    if (!run) return;
    hl_free(run->mem, run->memory);
    hl_free(run->mem, run);
}

/* ---- products ---- */

enum hl_status hl_linear(struct hl_model_run *run, int64_t N, int64_t I, int64_t O, const void *x,
                         const void *W, void *y, struct hl_diag *diag) {
    struct hl_product p = {.M = N,
                           .N = O,
                           .K = I,
                           .tb = true,
                           .in = run->k->dtype,
                           .out = run->k->dtype,
                           .A = x,
                           .B = W,
                           .C = y,
                           .lda = I,
                           .ldb = I,
                           .ldc = O};
    return hl_product_run(run->products, &p, diag);
}

enum hl_status hl_linear_dx(struct hl_model_run *run, int64_t N, int64_t I, int64_t O,
                            const void *dy, int64_t ldy, const void *W, void *dx,
                            struct hl_diag *diag) {
    struct hl_product p = {.M = N,
                           .N = I,
                           .K = O,
                           .in = run->k->dtype,
                           .out = run->k->dtype,
                           .A = dy,
                           .B = W,
                           .C = dx,
                           .lda = ldy,
                           .ldb = I,
                           .ldc = I};
    return hl_product_run(run->products, &p, diag);
}

enum hl_status hl_linear_dw(struct hl_model_run *run, int64_t N, int64_t I, int64_t O,
                            const void *dy, int64_t ldy, const void *x, float *dW, bool add,
                            struct hl_diag *diag) {
    struct hl_product p = {.M = O,
                           .N = I,
                           .K = N,
                           .ta = true,
                           .add = add,
                           .in = run->k->dtype,
                           .out = HL_F32,
                           .A = dy,
                           .B = x,
                           .C = dW,
                           .lda = ldy,
                           .ldb = I,
                           .ldc = I};
    return hl_product_run(run->products, &p, diag);
}

/* ---- the walk ---- */

static enum hl_status check_batch(const struct hl_model_run *run, const struct hl_batch *batch,
                                  struct hl_diag *diag) {
    const struct hl_model_config *c = &run->model->config;
    for (int64_t i = 0; i < batch->n_tokens; i++) {
        int32_t token = batch->token_N[i], target = batch->target_N[i];
        if (token < 0 || token >= c->vocab_size || target >= c->vocab_size)
            return hl_fail(diag, HL_E_USER,
                           "token %d is outside the model's vocabulary of %lld; do data and model "
                           "use the same tokenizer?",
                           token < 0 || token >= c->vocab_size ? token : target,
                           (long long)c->vocab_size);
        if (batch->position_N[i] < 0 || batch->position_N[i] >= c->max_position_embeddings)
            return hl_fail(diag, HL_E_USER,
                           "position %d, but the model has max_position_embeddings %lld; use a "
                           "smaller block_size",
                           batch->position_N[i], (long long)c->max_position_embeddings);
    }
    return HL_OK;
}

enum hl_status hl_model_begin(struct hl_model_run *run, const struct hl_batch *batch,
                              struct hl_diag *diag) {
    assert(batch->n_tokens <= run->max_tokens);
    enum hl_status status = check_batch(run, batch, diag);
    if (status != HL_OK) return status;
    run->batch = batch;
    run->chunk_rows = chunk_rows(run, batch->n_tokens);
    run->attention = (struct hl_attention){batch->n_sequences,
                                           batch->offsets,
                                           run->H,
                                           run->K,
                                           run->D,
                                           (float)(1.0 / sqrt((double)run->D))};
    if (run->k->attention_scratch(&run->attention) > run->attention_scratch_bytes)
        return hl_fail(diag, HL_E_USER,
                       "the team of compute threads grew since this model's memory was taken; set "
                       "it back, or make the run again");
    return HL_OK;
}

enum hl_status hl_model_forward(struct hl_model_run *run, int block,
                                const struct hl_block_data *own,
                                const struct hl_block_data *embedding, struct hl_kv_cache *cache,
                                struct hl_diag *diag) {
    if (block == run->L + 1) return hl_head_forward(run, own, embedding, diag);
    if (block > 0) return hl_layer_forward(run, block - 1, own->params, cache, false, diag);
    run->k->embed_fwd(run->batch->n_tokens, run->C, run->batch->token_N, run->batch->position_N,
                      own->params, hl_at(run, own->params, run->wpe), run->input_NC[0]);
    return HL_OK;
}

enum hl_status hl_model_recompute(struct hl_model_run *run, int block,
                                  const struct hl_block_data *own, struct hl_diag *diag) {
    assert(run->recompute[block]);
    return hl_layer_forward(run, block - 1, own->params, NULL, true, diag);
}

static void embedding_backward(struct hl_model_run *run, const struct hl_block_data *own) {
    bool tied = run->head.lm_head < 0; /* then the head has written this gradient already */
    int64_t positions = run->model->config.max_position_embeddings;
    float *wpe = run->wpe < 0 ? NULL : own->grads + run->wpe;
    if (!own->add && !tied) memset(own->grads, 0, (size_t)(run->V * run->C) * sizeof(float));
    if (!own->add && wpe) memset(wpe, 0, (size_t)(positions * run->C) * sizeof(float));
    run->k->embed_bwd(run->batch->n_tokens, run->C, run->dx_NC, run->batch->token_N,
                      run->batch->position_N, own->grads, wpe);
}

enum hl_status hl_model_backward(struct hl_model_run *run, int block,
                                 const struct hl_block_data *own, struct hl_diag *diag) {
    if (block > 0 && block <= run->L) return hl_layer_backward(run, block - 1, own, diag);
    if (block) hl_head_backward(run, own);
    else embedding_backward(run, own);
    return HL_OK;
}

double hl_model_loss_sum(const struct hl_model_run *run) { return run->loss_sum; }

bool hl_model_is_finite(const struct hl_model_run *run, int block) {
    const float *x = run->input_NC[block <= run->L ? block : run->L];
    for (int64_t i = 0; i < run->batch->n_tokens * run->C; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* ---- cache ---- */

enum hl_status hl_kv_cache_init(struct hl_mem *mem, const struct hl_model *model,
                                enum hl_dtype dtype, int64_t capacity, struct hl_kv_cache *out,
                                struct hl_diag *diag) {
    const struct hl_model_config *c = &model->config;
    size_t row = (size_t)(2 * c->num_key_value_heads * c->head_dim) * hl_dtype_bytes(dtype), bytes;
    if (!hl_size_mul(row, (size_t)c->num_hidden_layers, &bytes) ||
        !hl_size_mul(bytes, (size_t)capacity, &bytes))
        return hl_fail(diag, HL_E_MEMORY, "a cache of %lld positions is too large",
                       (long long)capacity);
    char *data = hl_alloc(mem, bytes, 1);
    if (!data)
        return hl_fail_memory(diag, bytes, "the key/value cache; fewer max_new_tokens need less");
    *out = (struct hl_kv_cache){mem, data, capacity, 0};
    return HL_OK;
}

void hl_kv_cache_free(struct hl_kv_cache *cache) {
    hl_free(cache->mem, cache->data);
    cache->data = NULL;
}
