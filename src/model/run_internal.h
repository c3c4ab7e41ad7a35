/* Shared by the files of the model's run: buffers, and the pieces a block is made of. See run.h. */
#ifndef HALLEY_MODEL_RUN_INTERNAL_H
#define HALLEY_MODEL_RUN_INTERNAL_H

#include "model/run.h"

/* Where a layer's tensors start within its block, in elements; -1: the layer has none. */
struct layer_offsets {
    int64_t norm1_w, norm1_b, qkv_w, qkv_b, q_norm, k_norm, out_w, out_b;
    int64_t norm2_w, norm2_b, up_w, up_b, down_w, down_b;
};
struct head_offsets {
    int64_t norm_w, norm_b, lm_head;
}; /* lm_head -1: tied */

/* What a layer keeps from forward to backward. */
struct layer_slot {
    float *mean1_N, *rstd1_N, *mean2_N, *rstd2_N; /* means: LayerNorm only */
    void *qkv_NE;                                 /* after bias, q/k norm and rotation */
    void *raw_qkv_NE;                             /* before q/k norm; NULL without it */
    float *rstd_qk_N;                             /* [N, H + K]; NULL without it */
    void *attention_ND;                           /* [N, H D] */
    float *lse_NH;
    float *middle_NC; /* residual stream between attention and feed-forward */
    void *up_NU;      /* before the activation: U = F, or 2F for gate and up */
};

struct hl_model_run {
    struct hl_mem *mem;
    const struct hl_model *model;
    const struct hl_kernels *k;
    struct hl_products *products;
    size_t t; /* bytes of T */
    int64_t C, L, H, K, D, E, F, V, U;
    int64_t max_tokens;
    bool train;
    struct layer_offsets layer;
    struct head_offsets head;
    int64_t wpe; /* in block 0, -1: none */

    const struct hl_batch *batch;
    struct hl_attention attention;
    double loss_sum;

    char *memory;             /* everything below lies in it */
    bool *recompute;          /* [L + 2] */
    float **input_NC;         /* [L + 1]: residual stream entering each layer, and the head */
    struct layer_slot *slots; /* [L]; layers that keep nothing share one */
    struct layer_slot shared;
    float *rope_cos, *rope_sin; /* [max_positions, D/2] */
    float *dx_NC;               /* gradient of the residual stream */
    void *norm_NC, *small_NC;   /* T, [N, max(C, H D)] the latter */
    void *wide_a, *wide_b;      /* T, [N, max(E, U, F)] */
    float *logits_RV, *loss_R;
    float *head_mean_N, *head_rstd_N;
    int64_t chunk_rows; /* R, for the batch at hand; before the first, the most there can be */
    float *row_scratch; /* of norm and bias backward */
    void *attention_scratch;
    size_t attention_scratch_bytes;
    float *decode_scratch; /* [max_positions + 1, H] */
};

/* Element `offset` of an array of T; NULL when the offset says "none". */
static inline const void *hl_at(const struct hl_model_run *run, const void *base, int64_t offset) {
    return offset < 0 ? NULL : (const char *)base + (size_t)offset * run->t;
}

/* y [N, O] = x [N, I] W^T with W [O, I] */
enum hl_status hl_linear(struct hl_model_run *run, int64_t N, int64_t I, int64_t O, const void *x,
                         const void *W, void *y, struct hl_diag *diag) HL_MUST_CHECK;
/* dx [N, I] = dy [N, O] W, rows of dy ldy apart */
enum hl_status hl_linear_dx(struct hl_model_run *run, int64_t N, int64_t I, int64_t O,
                            const void *dy, int64_t ldy, const void *W, void *dx,
                            struct hl_diag *diag) HL_MUST_CHECK;
/* dW [O, I] (+)= dy^T x */
enum hl_status hl_linear_dw(struct hl_model_run *run, int64_t N, int64_t I, int64_t O,
                            const void *dy, int64_t ldy, const void *x, float *dW, bool add,
                            struct hl_diag *diag) HL_MUST_CHECK;

/* again: the layer's output is not wanted, only its slot */
enum hl_status hl_layer_forward(struct hl_model_run *run, int64_t layer, const void *params,
                                struct hl_kv_cache *cache, bool again,
                                struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_layer_backward(struct hl_model_run *run, int64_t layer,
                                 const struct hl_block_data *own,
                                 struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_head_forward(struct hl_model_run *run, const struct hl_block_data *own,
                               const struct hl_block_data *embedding,
                               struct hl_diag *diag) HL_MUST_CHECK;
void hl_head_backward(struct hl_model_run *run, const struct hl_block_data *own);

#endif
