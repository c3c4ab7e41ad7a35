/* Attention, the update and the head on their own. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "model/run_internal.h"

/* ---- attention, causal, forward and backward ---- */

struct bench_attention {
    struct hl_mem *mem;
    const struct hl_kernels *k;
    struct hl_attention shape;
    int64_t *offsets, T;
    void *qkv, *dqkv, *out, *dout, *scratch;
    float *lse;
};

enum hl_status bench_attention_new(struct hl_mem *mem, enum hl_dtype dtype, int64_t B, int64_t T,
                                   int64_t H, int64_t D, struct bench_attention **out,
                                   struct hl_diag *diag) {
    struct bench_attention *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "attention");
    s->mem = mem;
    s->T = T;
    enum hl_status status = hl_kernels_get(dtype, &s->k, diag);
    if (status) {
        hl_free(mem, s);
        return status;
    }
    size_t N = (size_t)(B * T), wide = 3 * N * (size_t)(H * D), narrow = N * (size_t)(H * D),
           t = hl_dtype_bytes(dtype);
    s->offsets = hl_alloc(mem, (size_t)B + 1, sizeof *s->offsets);
    s->qkv = hl_alloc(mem, wide, t), s->dqkv = hl_alloc(mem, wide, t);
    s->out = hl_alloc(mem, narrow, t), s->dout = hl_alloc(mem, narrow, t);
    s->lse = hl_alloc(mem, N * (size_t)H, sizeof *s->lse);
    bool ok = s->offsets && s->qkv && s->dqkv && s->out && s->dout && s->lse;
    for (int64_t b = 0; b <= B && ok; b++) s->offsets[b] = b * T;
    s->shape = (struct hl_attention){B, s->offsets, H, H, D, 1 / sqrtf((float)D)};
    s->scratch = ok ? hl_alloc(mem, s->k->attention_scratch(&s->shape), 1) : NULL;
    if (!s->scratch) {
        bench_attention_free(s);
        return hl_fail_memory(diag, 2 * (wide + narrow) * t, "attention");
    }
    bench_fill(s->qkv, dtype, (int64_t)wide, 2);
    bench_fill(s->dout, dtype, (int64_t)narrow, 2);
    *out = s;
    return HL_OK;
}

void bench_attention_free(struct bench_attention *s) {
    if (!s) return;
    hl_free(s->mem, s->scratch);
    hl_free(s->mem, s->lse);
    hl_free(s->mem, s->dout), hl_free(s->mem, s->out);
    hl_free(s->mem, s->dqkv), hl_free(s->mem, s->qkv);
    hl_free(s->mem, s->offsets);
    hl_free(s->mem, s);
}

double bench_attention_run(struct bench_attention *s) {
    double start = bench_now();
    s->k->attention_fwd(&s->shape, s->qkv, s->out, s->lse, s->scratch);
    s->k->attention_bwd(&s->shape, s->qkv, s->out, s->lse, s->dout, s->dqkv, s->scratch);
    return bench_now() - start;
}

/* Two products forward and five backward over half of the T x T pairs. */
double bench_attention_flops(const struct bench_attention *s) {
    double pairs = (double)s->shape.n_sequences * (double)s->shape.n_heads * (double)s->T *
                   (double)(s->T + 1) / 2;
    return 14 * pairs * (double)s->shape.head_dim;
}

/* ---- the update ---- */

struct bench_adamw {
    struct hl_mem *mem;
    const struct hl_kernels *k;
    int64_t n;
    size_t copy_bytes; /* half of what an update moves: a copy reads and writes them */
    float *grad, *master, *m, *v;
    struct hl_bf16 *narrow; /* NULL: f32 */
    char *from, *to;
};

enum hl_status bench_adamw_new(struct hl_mem *mem, enum hl_dtype dtype, int64_t n,
                               struct bench_adamw **out, struct hl_diag *diag) {
    struct bench_adamw *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "adamw");
    s->mem = mem;
    s->n = n;
    s->copy_bytes =
        (size_t)n * (dtype == HL_BF16 ? 15 : 14); /* 16 read, 12 or 14 written per parameter */
    enum hl_status status = hl_kernels_get(dtype, &s->k, diag);
    float **arrays[] = {&s->grad, &s->master, &s->m, &s->v};
    bool ok = status == HL_OK;
    for (int i = 0; i < 4 && ok; i++)
        ok = (*arrays[i] = hl_alloc(mem, (size_t)n, sizeof(float))) != NULL;
    if (ok && dtype == HL_BF16)
        ok = (s->narrow = hl_alloc(mem, (size_t)n, sizeof *s->narrow)) != NULL;
    ok = ok && (s->from = hl_alloc(mem, s->copy_bytes, 1)) &&
         (s->to = hl_alloc(mem, s->copy_bytes, 1));
    if (!ok) {
        bench_adamw_free(s);
        return status
                   ? status
                   : hl_fail_memory(diag, 18 * (unsigned long long)n + 2 * s->copy_bytes, "adamw");
    }
    bench_fill(s->grad, HL_F32, n, 1);
    bench_fill(s->master, HL_F32, n, 1);
    memset(s->from, 1, s->copy_bytes);
    *out = s;
    return HL_OK;
}

void bench_adamw_free(struct bench_adamw *s) {
    if (!s) return;
    hl_free(s->mem, s->to), hl_free(s->mem, s->from);
    hl_free(s->mem, s->narrow);
    hl_free(s->mem, s->v), hl_free(s->mem, s->m), hl_free(s->mem, s->master),
        hl_free(s->mem, s->grad);
    hl_free(s->mem, s);
}

double bench_adamw_run(struct bench_adamw *s) {
    const struct hl_adamw p = {.lr = 1e-4,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .epsilon = 1e-8,
                               .weight_decay = 0.1,
                               .correction1 = 1.1,
                               .correction2 = 1.2,
                               .grad_scale = 0.5F};
    double start = bench_now();
    s->k->adamw(s->n, &p, s->grad, s->master, s->m, s->v, s->narrow);
    return bench_now() - start;
}

double bench_adamw_copy(struct bench_adamw *s) { return bench_copy(s->to, s->from, s->copy_bytes); }

double bench_adamw_bytes(const struct bench_adamw *s) { return 2.0 * (double)s->copy_bytes; }

/* ---- the head ---- */

struct bench_head {
    struct hl_mem *mem;
    const struct hl_kernels *k;
    struct hl_products *products;
    struct hl_model *model;
    struct hl_model_run *run;
    void *params;
    float *grads;
    int32_t *tokens, *targets, *positions;
    int64_t offsets[2];
    struct hl_batch batch;
};

static enum hl_status make_head(struct bench_head *s, enum hl_dtype dtype, int64_t N,
                                struct hl_diag *diag) {
    struct hl_model_config config;
    enum hl_status status = hl_model_preset("gpt2-124m", &config, diag);
    config.num_hidden_layers = 1;
    if (!status) status = hl_kernels_get(dtype, &s->k, diag);
    if (!status) status = hl_model_new(s->mem, &config, &s->model, diag);
    if (!status) status = hl_products_new(s->mem, &s->products, diag);
    if (status) return status;
    struct hl_model_run_shape shape = {.max_tokens = N, .max_positions = N, .train = true};
    status = hl_model_run_new(s->mem, s->model, s->k, s->products, &shape, &s->run, diag);
    if (status) return status;
    size_t n = (size_t)s->model->layout.n_parameters;
    float *master = hl_alloc(s->mem, n, sizeof *master);
    s->grads = hl_alloc(s->mem, n, sizeof *s->grads);
    s->params = dtype == HL_F32 ? master : hl_alloc(s->mem, n, sizeof(struct hl_bf16));
    s->tokens = hl_alloc(s->mem, (size_t)N, sizeof *s->tokens);
    s->targets = hl_alloc(s->mem, (size_t)N, sizeof *s->targets);
    s->positions = hl_alloc(s->mem, (size_t)N, sizeof *s->positions);
    bool ok = master && s->grads && s->params && s->tokens && s->targets && s->positions;
    if (ok) {
        hl_model_init(s->model, 1, master);
        if (dtype == HL_BF16) s->k->to_bf16((int64_t)n, master, s->params);
    }
    if (dtype == HL_BF16 || !ok) hl_free(s->mem, master);
    if (!ok && dtype == HL_F32) s->params = NULL;
    if (!ok) return hl_fail_memory(diag, 8 * n, "head");
    for (int64_t i = 0; i < N; i++) {
        s->tokens[i] = (int32_t)(i * 7919 % 50257);
        s->targets[i] = (int32_t)((i + 1) * 7919 % 50257);
        s->positions[i] = (int32_t)i;
    }
    s->offsets[1] = N;
    s->batch = (struct hl_batch){N, N, s->tokens, s->targets, s->positions, 1, s->offsets};
    return hl_model_begin(s->run, &s->batch, diag);
}

static struct hl_block_data block_of(struct bench_head *s, int block) {
    int64_t offset = s->model->layout.blocks[block].offset;
    return (struct hl_block_data){(char *)s->params + (size_t)offset * hl_dtype_bytes(s->k->dtype),
                                  s->grads + offset, false};
}

enum hl_status bench_head_new(struct hl_mem *mem, enum hl_dtype dtype, int64_t N,
                              struct bench_head **out, struct hl_diag *diag) {
    struct bench_head *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "head");
    s->mem = mem;
    enum hl_status status = make_head(s, dtype, N, diag);
    for (int block = 0; block < 2 && !status; block++) { /* something for the head to read */
        struct hl_block_data own = block_of(s, block), embedding = block_of(s, 0);
        status = hl_model_forward(s->run, block, &own, &embedding, NULL, diag);
    }
    if (status) bench_head_free(s);
    else *out = s;
    return status;
}

void bench_head_free(struct bench_head *s) {
    if (!s) return;
    hl_free(s->mem, s->positions), hl_free(s->mem, s->targets), hl_free(s->mem, s->tokens);
    hl_free(s->mem, s->params), hl_free(s->mem, s->grads);
    hl_model_run_free(s->run);
    hl_products_free(s->products);
    hl_model_free(s->model);
    hl_free(s->mem, s);
}

size_t bench_head_logits_bytes(const struct bench_head *s) {
    return (size_t)(s->run->chunk_rows * s->run->V) * sizeof(float);
}

enum hl_status bench_head_run(struct bench_head *s, double *seconds_out, struct hl_diag *diag) {
    int block = s->model->layout.n_blocks - 1;
    struct hl_block_data own = block_of(s, block), embedding = block_of(s, 0);
    double start = bench_now();
    enum hl_status status = hl_model_forward(s->run, block, &own, &embedding, NULL, diag);
    if (!status) status = hl_model_backward(s->run, block, &own, diag);
    if (!status) *seconds_out = bench_now() - start;
    return status;
}
