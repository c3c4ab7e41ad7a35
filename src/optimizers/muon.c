/* Muon: momentum, orthogonalised, for matrices between hidden activations; AdamW for everything
 * else (Jordan et al. 2024, "Muon: an optimizer for hidden layers"; scaling of arXiv:2502.16982,
 * eq. 4).
 *
 *     b = mu b + g;  u = g + mu b (Nesterov);  O = NS(u);  w = w (1 - lr wd) - lr 0.2
 * sqrt(max(rows, cols)) O
 *
 * NS is the quintic Newton-Schulz iteration X <- aX + (bA + cA^2) X, A = X X^T, on the shorter
 * side, from X = u / |u|, which drives singular values to about 1. The factor 0.2 sqrt(max) gives
 * the step the size of AdamW's, so both share one learning rate. It needs whole matrices: a
 * strategy that cuts them must gather them first (`whole_matrices`). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "optimizers/optimizers.h"

/* Coefficients of Jordan et al.: steepest at zero among quintics that keep [0, 1.2] bounded. */
static const float A1 = 3.4445f, A3 = -4.7750f, A5 = 2.0315f;

static int64_t least(const struct hl_tensor *t) { return t->rows < t->cols ? t->rows : t->cols; }

/* X and its successor, the two square matrices. */
static int64_t scratch_floats(const struct hl_tensor *tensor) {
    if (!tensor->hidden_matrix) return 0;
    return 2 * tensor->rows * tensor->cols + 2 * least(tensor) * least(tensor);
}

static enum hl_status product(const struct hl_update *u, int64_t M, int64_t N, int64_t K,
                              const float *A, bool ta, const float *B, bool tb, float *C, bool add,
                              struct hl_diag *diag) {
    struct hl_product p = {.M = M,
                           .N = N,
                           .K = K,
                           .ta = ta,
                           .tb = tb,
                           .add = add,
                           .in = HL_F32,
                           .out = HL_F32,
                           .A = A,
                           .B = B,
                           .C = C,
                           .lda = ta ? M : K,
                           .ldb = tb ? K : N,
                           .ldc = N};
    return hl_product_run(u->products, &p, diag);
}

/* One iteration: next = a X + (b A + c A^2) X, on the left for wide matrices, on the right for tall
 * ones. */
static enum hl_status iterate(const struct hl_update *u, float *X, float *next, float *S, float *S2,
                              struct hl_diag *diag) {
    int64_t R = u->tensor->rows, C = u->tensor->cols, m = least(u->tensor);
    bool wide = R <= C;
    enum hl_status status = wide ? product(u, m, m, C, X, false, X, true, S, false, diag)
                                 : product(u, m, m, R, X, true, X, false, S, false, diag);
    if (status == HL_OK) status = product(u, m, m, m, S, false, S, false, S2, false, diag);
    if (status != HL_OK) return status;
    for (int64_t i = 0; i < m * m; i++) S2[i] = A3 * S[i] + A5 * S2[i];
    for (int64_t i = 0; i < R * C; i++) next[i] = A1 * X[i];
    return wide ? product(u, R, C, m, S2, false, X, false, next, true, diag)
                : product(u, R, C, m, X, false, S2, false, next, true, diag);
}

/* u = scale * grad and momentum become the direction, normalised to Frobenius norm 1. */
static void direction(const struct hl_update *u, float *X) {
    int64_t n = u->tensor->rows * u->tensor->cols;
    float mu = (float)u->options->muon_momentum, *b = u->slots[0];
    for (int64_t i = 0; i < n; i++) {
        float g = u->grad[i] * u->grad_scale;
        b[i] = mu * b[i] + g;
        X[i] = g + mu * b[i];
    }
    double norm = sqrt(u->kernels->sum_squares(n, X));
    u->kernels->scale(n, (float)(1.0 / (norm + 1e-12)), X);
}

static enum hl_status update(const struct hl_update *u, struct hl_diag *diag) {
    if (!u->tensor->hidden_matrix) return hl_adamw_update(u), HL_OK;
    int64_t R = u->tensor->rows, C = u->tensor->cols, m = least(u->tensor), n = R * C;
    assert(u->first == 0 && u->n >= n);
    float *X = u->scratch, *next = X + n, *S = next + n, *S2 = S + m * m;
    direction(u, X);
    for (int64_t i = 0; i < u->options->muon_steps; i++) {
        enum hl_status status = iterate(u, X, next, S, S2, diag);
        if (status != HL_OK) return status;
        float *other = X;
        X = next, next = other;
    }
    float lr = (float)u->learning_rate, keep = 1.0f - lr * (float)u->options->weight_decay;
    float step = lr * 0.2f * sqrtf((float)(R > C ? R : C));
    for (int64_t i = 0; i < n; i++) u->master[i] = u->master[i] * keep - step * X[i];
    if (u->copy) u->kernels->to_bf16(n, u->master, u->copy);
    return HL_OK;
}

const struct hl_optimizer hl_optimizer_muon = {
    .name = "muon",
    .summary = "orthogonalised momentum for hidden matrices, AdamW for the rest",
    .paper = "arXiv:2502.16982",
    .n_slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .whole_matrices = true,
    .scratch_floats = scratch_floats,
    .update = update};
