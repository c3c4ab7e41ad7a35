/* One transformer layer, forward and backward, for both families: pre-norm attention and pre-norm
 * feed-forward, each added to the residual stream.
 *
 * Kept from forward to backward: q, k, v, the attention's output, the stream between the halves and
 * the feed-forward's input to its activation. Norm outputs and activation outputs are cheap to make
 * again from what is in cache anyway, and are not kept: 40 instead of 64 bytes per channel and
 * token for GPT-2 in f32. Legend: run_internal.h. */
#include <assert.h>
#include <string.h>

#include "model/run_internal.h"

static bool is_gpt2(const struct hl_model_run *run) {
    return run->model->config.family == HL_FAMILY_GPT2;
}

/* sum = x + a + a_bias, y = norm(sum); a NULL: y = norm(x). */
static void norm(struct hl_model_run *run, int64_t N, const float *x, const void *a,
                 const void *a_bias, float *sum, const void *w, const void *b, void *y, float *mean,
                 float *rstd) {
    float eps = (float)run->model->config.norm_epsilon;
    if (is_gpt2(run)) run->k->layernorm_fwd(N, run->C, x, a, a_bias, sum, w, b, eps, y, mean, rstd);
    else run->k->rmsnorm_fwd(N, run->C, x, a, a_bias, sum, w, eps, y, rstd);
}

static void norm_again(struct hl_model_run *run, int64_t N, const float *x, const void *w,
                       const void *b, const float *mean, const float *rstd, void *y) {
    if (is_gpt2(run)) run->k->layernorm_again(N, run->C, x, w, b, mean, rstd, y);
    else run->k->rmsnorm_again(N, run->C, x, w, rstd, y);
}

static void norm_backward(struct hl_model_run *run, int64_t N, const void *dy, const float *x,
                          const void *w, const float *mean, const float *rstd, float *dw, float *db,
                          bool add) {
    if (is_gpt2(run))
        run->k->layernorm_bwd(N, run->C, dy, x, w, mean, rstd, run->dx_NC, dw, db, add,
                              run->row_scratch);
    else run->k->rmsnorm_bwd(N, run->C, dy, x, w, rstd, run->dx_NC, dw, add, run->row_scratch);
}

/* ---- forward ---- */

/* New keys and values go behind the cached ones; one new row then looks at all of them. */
static void attend_cached(struct hl_model_run *run, int64_t layer, struct layer_slot *s,
                          struct hl_kv_cache *cache) {
    int64_t N = run->batch->n_tokens, KD2 = 2 * run->K * run->D, HD = run->H * run->D;
    size_t row = (size_t)KD2 * run->t, stride = (size_t)run->E * run->t;
    char *rows = cache->data + (size_t)(layer * cache->capacity) * row;
    assert(cache->n + N <= cache->capacity && (cache->n == 0 || N == 1));
    for (int64_t i = 0; i < N; i++)
        memcpy(rows + (size_t)(cache->n + i) * row,
               (const char *)s->qkv_NE + (size_t)i * stride + (size_t)HD * run->t, row);
    if (cache->n == 0)
        run->k->attention_fwd(&run->attention, s->qkv_NE, s->attention_ND, s->lse_NH,
                              run->attention_scratch);
    else
        run->k->attention_decode(cache->n + 1, run->H, run->K, run->D, run->attention.scale,
                                 s->qkv_NE, rows, s->attention_ND, run->decode_scratch);
}

static enum hl_status attention_half(struct hl_model_run *run, int64_t layer, const void *params,
                                     struct hl_kv_cache *cache, struct hl_diag *diag) {
    const struct layer_offsets *o = &run->layer;
    const struct hl_kernels *k = run->k;
    struct layer_slot *s = &run->slots[layer];
    int64_t N = run->batch->n_tokens;

    norm(run, N, run->input_NC[layer], NULL, NULL, NULL, hl_at(run, params, o->norm1_w),
         hl_at(run, params, o->norm1_b), run->norm_NC, s->mean1_N, s->rstd1_N);
    void *projected = s->raw_qkv_NE ? s->raw_qkv_NE : s->qkv_NE;
    enum hl_status status = hl_linear(run, N, run->C, run->E, run->norm_NC,
                                      hl_at(run, params, o->qkv_w), projected, diag);
    if (status != HL_OK) return status;
    if (o->qkv_b >= 0) k->bias_add(N, run->E, projected, hl_at(run, params, o->qkv_b));
    if (s->raw_qkv_NE)
        k->headnorm_fwd(N, run->H, run->K, run->D, s->raw_qkv_NE, hl_at(run, params, o->q_norm),
                        hl_at(run, params, o->k_norm), (float)run->model->config.norm_epsilon,
                        s->qkv_NE, s->rstd_qk_N);
    if (run->rope_cos)
        k->rope(N, run->H, run->K, run->D, s->qkv_NE, run->batch->position_N, run->rope_cos,
                run->rope_sin, false);
    if (cache) attend_cached(run, layer, s, cache);
    else
        k->attention_fwd(&run->attention, s->qkv_NE, s->attention_ND, s->lse_NH,
                         run->attention_scratch);
    return hl_linear(run, N, run->H * run->D, run->C, s->attention_ND, hl_at(run, params, o->out_w),
                     run->small_NC, diag);
}

enum hl_status hl_layer_forward(struct hl_model_run *run, int64_t layer, const void *params,
                                struct hl_kv_cache *cache, bool again, struct hl_diag *diag) {
    const struct layer_offsets *o = &run->layer;
    const struct hl_kernels *k = run->k;
    struct layer_slot *s = &run->slots[layer];
    int64_t N = run->batch->n_tokens;

    enum hl_status status = attention_half(run, layer, params, cache, diag);
    if (status != HL_OK) return status;
    norm(run, N, run->input_NC[layer], run->small_NC, hl_at(run, params, o->out_b), s->middle_NC,
         hl_at(run, params, o->norm2_w), hl_at(run, params, o->norm2_b), run->norm_NC, s->mean2_N,
         s->rstd2_N);
    status = hl_linear(run, N, run->C, run->U, run->norm_NC, hl_at(run, params, o->up_w), s->up_NU,
                       diag);
    if (status != HL_OK || again) return status;

    if (is_gpt2(run)) k->gelu_fwd(N, run->F, s->up_NU, hl_at(run, params, o->up_b), run->wide_a);
    else k->swiglu_fwd(N, run->F, s->up_NU, run->wide_a);
    status = hl_linear(run, N, run->F, run->C, run->wide_a, hl_at(run, params, o->down_w),
                       run->small_NC, diag);
    if (status != HL_OK) return status;
    k->residual_add(N, run->C, s->middle_NC, run->small_NC, hl_at(run, params, o->down_b),
                    run->input_NC[layer + 1]);
    return HL_OK;
}

/* ---- backward ---- */

/* The gradient of the residual stream as T, for products. */
static const void *gradient_as_T(struct hl_model_run *run) {
    if (run->k->dtype == HL_F32) return run->dx_NC;
    run->k->to_bf16(run->batch->n_tokens * run->C, run->dx_NC, run->small_NC);
    return run->small_NC;
}

static void bias_gradient(struct hl_model_run *run, int64_t width, const void *dy,
                          const struct hl_block_data *own, int64_t offset) {
    if (offset < 0) return;
    run->k->bias_bwd(run->batch->n_tokens, width, dy, own->grads + offset, own->add,
                     run->row_scratch);
}

static enum hl_status feed_forward_backward(struct hl_model_run *run, const struct layer_slot *s,
                                            const struct hl_block_data *own, struct hl_diag *diag) {
    const struct layer_offsets *o = &run->layer;
    const struct hl_kernels *k = run->k;
    const void *p = own->params;
    float *g = own->grads;
    int64_t N = run->batch->n_tokens, C = run->C, F = run->F, U = run->U;

    const void *dy = gradient_as_T(run);
    bias_gradient(run, C, dy, own, o->down_b);
    enum hl_status status =
        hl_linear_dx(run, N, F, C, dy, C, hl_at(run, p, o->down_w), run->wide_b, diag);
    if (status != HL_OK) return status;
    void *activated = run->wide_a, *d_up = run->wide_b;
    if (is_gpt2(run)) k->gelu_bwd(N, F, s->up_NU, hl_at(run, p, o->up_b), d_up, activated);
    else {
        activated = run->wide_b, d_up = run->wide_a;
        k->swiglu_bwd(N, F, s->up_NU, run->wide_b, d_up, activated);
    }
    status = hl_linear_dw(run, N, F, C, dy, C, activated, g + o->down_w, own->add, diag);
    if (status != HL_OK) return status;
    bias_gradient(run, U, d_up, own, o->up_b);
    norm_again(run, N, s->middle_NC, hl_at(run, p, o->norm2_w), hl_at(run, p, o->norm2_b),
               s->mean2_N, s->rstd2_N, run->norm_NC);
    status = hl_linear_dw(run, N, C, U, d_up, U, run->norm_NC, g + o->up_w, own->add, diag);
    if (status != HL_OK) return status;
    status = hl_linear_dx(run, N, C, U, d_up, U, hl_at(run, p, o->up_w), run->small_NC, diag);
    if (status != HL_OK) return status;
    norm_backward(run, N, run->small_NC, s->middle_NC, hl_at(run, p, o->norm2_w), s->mean2_N,
                  s->rstd2_N, g + o->norm2_w, g + o->norm2_b, own->add);
    return HL_OK;
}

static enum hl_status attention_backward(struct hl_model_run *run, const struct layer_slot *s,
                                         const float *input_NC, const struct hl_block_data *own,
                                         struct hl_diag *diag) {
    const struct layer_offsets *o = &run->layer;
    const struct hl_kernels *k = run->k;
    const void *p = own->params;
    float *g = own->grads;
    int64_t N = run->batch->n_tokens, C = run->C, E = run->E, HD = run->H * run->D;

    const void *dy = gradient_as_T(run);
    bias_gradient(run, C, dy, own, o->out_b);
    enum hl_status status =
        hl_linear_dw(run, N, HD, C, dy, C, s->attention_ND, g + o->out_w, own->add, diag);
    if (status != HL_OK) return status;
    status = hl_linear_dx(run, N, HD, C, dy, C, hl_at(run, p, o->out_w), run->wide_a, diag);
    if (status != HL_OK) return status;
    void *dqkv = run->wide_b;
    k->attention_bwd(&run->attention, s->qkv_NE, s->attention_ND, s->lse_NH, run->wide_a, dqkv,
                     run->attention_scratch);
    if (run->rope_cos)
        k->rope(N, run->H, run->K, run->D, dqkv, run->batch->position_N, run->rope_cos,
                run->rope_sin, true);
    if (s->raw_qkv_NE)
        k->headnorm_bwd(N, run->H, run->K, run->D, s->raw_qkv_NE, hl_at(run, p, o->q_norm),
                        hl_at(run, p, o->k_norm), s->rstd_qk_N, dqkv, g + o->q_norm, g + o->k_norm,
                        own->add, run->row_scratch);
    bias_gradient(run, E, dqkv, own, o->qkv_b);
    norm_again(run, N, input_NC, hl_at(run, p, o->norm1_w), hl_at(run, p, o->norm1_b), s->mean1_N,
               s->rstd1_N, run->norm_NC);
    status = hl_linear_dw(run, N, C, E, dqkv, E, run->norm_NC, g + o->qkv_w, own->add, diag);
    if (status != HL_OK) return status;
    status = hl_linear_dx(run, N, C, E, dqkv, E, hl_at(run, p, o->qkv_w), run->small_NC, diag);
    if (status != HL_OK) return status;
    norm_backward(run, N, run->small_NC, input_NC, hl_at(run, p, o->norm1_w), s->mean1_N,
                  s->rstd1_N, g + o->norm1_w, g + o->norm1_b, own->add);
    return HL_OK;
}

enum hl_status hl_layer_backward(struct hl_model_run *run, int64_t layer,
                                 const struct hl_block_data *own, struct hl_diag *diag) {
    const struct layer_slot *s = &run->slots[layer];
    enum hl_status status = feed_forward_backward(run, s, own, diag);
    if (status != HL_OK) return status;
    return attention_backward(run, s, run->input_NC[layer], own, diag);
}
