/* The head: final norm, product with the vocabulary and cross entropy.
 *
 * Logits of a chunk of rows are made, turned into their own gradient in place, used for both
 * products of the backward pass, and forgotten: memory is O(chunk), and the loss costs no product
 * twice. That is why the head's forward already writes gradients; its backward is only the norm's.
 * Idea: fused linear cross entropy as in arXiv:2410.10989 (Liger). Legend: run_internal.h. */
#include <string.h>

#include "model/run_internal.h"

static void norm_rows(struct hl_model_run *run, const void *params, int64_t first, int64_t n) {
    const float *x = run->input_NC[run->L] + first * run->C;
    float eps = (float)run->model->config.norm_epsilon;
    const void *w = hl_at(run, params, run->head.norm_w);
    char *y = (char *)run->norm_NC + (size_t)(first * run->C) * run->t;
    if (run->model->config.family == HL_FAMILY_GPT2)
        run->k->layernorm_fwd(n, run->C, x, NULL, NULL, NULL, w,
                              hl_at(run, params, run->head.norm_b), eps, y,
                              run->head_mean_N + first, run->head_rstd_N + first);
    else run->k->rmsnorm_fwd(n, run->C, x, NULL, NULL, NULL, w, eps, y, run->head_rstd_N + first);
}

static const void *matrix(const struct hl_model_run *run, const struct hl_block_data *own,
                          const struct hl_block_data *embedding) {
    return run->head.lm_head < 0 ? embedding->params : hl_at(run, own->params, run->head.lm_head);
}

static enum hl_status logits(struct hl_model_run *run, int64_t first, int64_t n, const void *W,
                             struct hl_diag *diag) {
    struct hl_product p = {.M = n,
                           .N = run->V,
                           .K = run->C,
                           .tb = true,
                           .in = run->k->dtype,
                           .out = HL_F32,
                           .A = hl_at(run, run->norm_NC, first * run->C),
                           .B = W,
                           .C = run->logits_RV,
                           .lda = run->C,
                           .ldb = run->C,
                           .ldc = run->V};
    return hl_product_run(run->products, &p, diag);
}

/* Gradient of the chunk's rows (into small_NC) and of the matrix, from the logits' gradient. */
static enum hl_status chunk_backward(struct hl_model_run *run, int64_t first, int64_t n,
                                     const void *W, float *dW, bool add, struct hl_diag *diag) {
    int64_t ld = run->V * (int64_t)(sizeof(float) / run->t); /* T elements between rows of f32 */
    char *dy = (char *)run->small_NC + (size_t)(first * run->C) * run->t;
    enum hl_status status = hl_linear_dx(run, n, run->C, run->V, run->logits_RV, ld, W, dy, diag);
    if (status != HL_OK) return status;
    return hl_linear_dw(run, n, run->C, run->V, run->logits_RV, ld,
                        hl_at(run, run->norm_NC, first * run->C), dW, add, diag);
}

enum hl_status hl_head_forward(struct hl_model_run *run, const struct hl_block_data *own,
                               const struct hl_block_data *embedding, struct hl_diag *diag) {
    int64_t N = run->batch->n_tokens, vocab = run->model->config.vocab_size;
    const void *W = matrix(run, own, embedding);
    bool train = own->grads != NULL;
    float *dW = !train                  ? NULL
                : run->head.lm_head < 0 ? embedding->grads
                                        : own->grads + run->head.lm_head;
    run->loss_sum = 0;
    norm_rows(run, own->params, 0, N);
    for (int64_t first = 0; first < N; first += run->chunk_rows) {
        int64_t n = N - first < run->chunk_rows ? N - first : run->chunk_rows;
        enum hl_status status = logits(run, first, n, W, diag);
        if (status != HL_OK) return status;
        run->k->cross_entropy(n, vocab, run->V, run->logits_RV, run->batch->target_N + first,
                              run->loss_R, train);
        for (int64_t i = 0; i < n; i++) run->loss_sum += (double)run->loss_R[i];
        if (!train) continue;
        status = chunk_backward(run, first, n, W, dW, own->add || first > 0, diag);
        if (status != HL_OK) return status;
    }
    return HL_OK;
}

void hl_head_backward(struct hl_model_run *run, const struct hl_block_data *own) {
    int64_t N = run->batch->n_tokens, C = run->C;
    const float *x = run->input_NC[run->L];
    const void *w = hl_at(run, own->params, run->head.norm_w);
    float *dw = own->grads + run->head.norm_w;
    memset(run->dx_NC, 0, (size_t)(N * C) * sizeof(float));
    if (run->model->config.family == HL_FAMILY_GPT2)
        run->k->layernorm_bwd(N, C, run->small_NC, x, w, run->head_mean_N, run->head_rstd_N,
                              run->dx_NC, dw, own->grads + run->head.norm_b, own->add,
                              run->row_scratch);
    else
        run->k->rmsnorm_bwd(N, C, run->small_NC, x, w, run->head_rstd_N, run->dx_NC, dw, own->add,
                            run->row_scratch);
}

enum hl_status hl_model_logits(struct hl_model_run *run, int64_t row,
                               const struct hl_block_data *head,
                               const struct hl_block_data *embedding, const float **out,
                               struct hl_diag *diag) {
    norm_rows(run, head->params, row, 1);
    enum hl_status status = logits(run, row, 1, matrix(run, head, embedding), diag);
    if (status == HL_OK) *out = run->logits_RV;
    return status;
}
