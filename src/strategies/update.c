/* Norm, clipping, update. See update.h. */
#include "strategies/update.h"

#include <math.h>
#include <string.h>

#include "optimizers/optimizers.h"

double hl_grad_block_squares(const struct hl_strategy_env *env, int block) {
    struct hl_range range = env->layout->blocks[block];
    return env->kernels->sum_squares(range.n, hl_engine_data(env->engine, HL_BUFFER_GRAD, range));
}

double hl_grad_sum_squares(const double *block_squares, int n_blocks, int *bad_block_out) {
    double sum = 0;
    *bad_block_out = -1;
    for (int b = 0; b < n_blocks; b++) {
        if (!isfinite(block_squares[b]))
            *bad_block_out = b; /* ends at the highest: backward starts there */
        sum += block_squares[b];
    }
    return sum;
}

float hl_grad_factor(double norm, double max_grad_norm, int64_t n_tokens) {
    double clip = max_grad_norm > 0 && norm > max_grad_norm ? max_grad_norm / norm : 1.0;
    return (float)(clip / (double)n_tokens);
}

enum hl_status hl_update_check_cuts(const struct hl_strategy_env *env, const char *name,
                                    struct hl_diag *diag) {
    if (!env->optimizer->whole_matrices) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "strategy: '%s' cuts matrices between ranks, and optimizer '%s' needs them "
                   "whole; use --strategy ddp, or another --optim",
                   name, env->optimizer->name);
}

struct hl_collective_args hl_grad_share(const struct hl_strategy_env *env) {
    int64_t each = env->layout->n_blocks + 1;
    return (struct hl_collective_args){.kind = HL_ALL_GATHER,
                                       .n = each * env->n_ranks,
                                       .element_bytes = sizeof(double),
                                       .unit = each};
}

struct hl_step_result hl_grad_result(const double *shared, int n_blocks, int n_ranks) {
    struct hl_step_result out = {.bad_block = -1};
    double sum = 0, tokens = 0;
    for (int b = 0; b < n_blocks; b++)
        for (int r = 0; r < n_ranks; r++) {
            double part = shared[(size_t)r * (size_t)(n_blocks + 1) + (size_t)b];
            if (!isfinite(part)) out.bad_block = b; /* ends at the first of the backward pass */
            sum += part;
        }
    for (int r = 0; r < n_ranks; r++)
        tokens += shared[(size_t)r * (size_t)(n_blocks + 1) + (size_t)n_blocks];
    out.n_supervised = (int64_t)tokens;
    out.grad_norm = tokens > 0 ? sqrt(sum) / tokens : 0;
    out.applied = isfinite(out.grad_norm);
    return out;
}

/* Arrays of the engine at a range; whoever calls sets the gradient, the copy and the scratch. */
static struct hl_update update_of(const struct hl_strategy_env *env, struct hl_range range,
                                  int64_t step, double learning_rate, float grad_factor) {
    struct hl_update u = {
        .kernels = env->kernels,
        .options = env->optimizer_options,
        .step = step,
        .learning_rate = learning_rate,
        .grad_scale = grad_factor,
        .master = hl_engine_data(env->engine, HL_BUFFER_MASTER, range),
        .products = env->products,
    };
    for (int s = 0; s < env->optimizer->n_slots; s++)
        u.slots[s] = hl_engine_data(env->engine, (enum hl_buffer)(HL_BUFFER_SLOT0 + s), range);
    return u;
}

enum hl_status hl_update_range(const struct hl_strategy_env *env, struct hl_range range,
                               int64_t step, double learning_rate, float grad_factor,
                               float *scratch, struct hl_diag *diag) {
    struct hl_update u = update_of(env, range, step, learning_rate, grad_factor);
    u.grad = hl_engine_data(env->engine, HL_BUFFER_GRAD, range);
    u.copy = hl_engine_copy(env->engine, range);
    u.scratch = scratch;
    return hl_optimizer_apply(env->optimizer, &u, env->layout, range, diag);
}

enum hl_status hl_update_master(const struct hl_strategy_env *env, struct hl_range range,
                                const float *grad, int64_t step, double learning_rate,
                                float grad_factor, struct hl_diag *diag) {
    struct hl_update u = update_of(env, range, step, learning_rate, grad_factor);
    u.grad = grad;
    return hl_optimizer_apply(env->optimizer, &u, env->layout, range, diag);
}

enum { TRIAL_PIECE = 1 << 15 }; /* elements: master and slots of a piece stay in the cache */

size_t hl_update_trial_scratch(const struct hl_optimizer *optimizer) {
    return (size_t)TRIAL_PIECE * (size_t)(1 + optimizer->n_slots);
}

/* On copies of master and slots. */
static enum hl_status try_piece(const struct hl_strategy_env *env, struct hl_range piece,
                                struct hl_update u, float *scratch, void *out,
                                struct hl_diag *diag) {
    size_t bytes = (size_t)piece.n * sizeof *scratch;
    u.master = memcpy(scratch, u.master, bytes);
    for (int s = 0; s < env->optimizer->n_slots; s++)
        u.slots[s] = memcpy(scratch + (size_t)(s + 1) * TRIAL_PIECE, u.slots[s], bytes);
    enum hl_status status = hl_optimizer_apply(env->optimizer, &u, env->layout, piece, diag);
    if (status != HL_OK) return status;
    if (env->kernels->dtype == HL_BF16) env->kernels->to_bf16(piece.n, u.master, out);
    else memcpy(out, u.master, bytes);
    return HL_OK;
}

enum hl_status hl_update_trial(const struct hl_strategy_env *env, struct hl_range range,
                               const float *grad, int64_t step, double learning_rate,
                               float grad_factor, float *scratch, void *out, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    for (int64_t at = 0; at < range.n && status == HL_OK; at += TRIAL_PIECE) {
        int64_t left = range.n - at;
        struct hl_range piece = {range.offset + at, left < TRIAL_PIECE ? left : TRIAL_PIECE};
        struct hl_update u = update_of(env, piece, step, learning_rate, grad_factor);
        u.grad = grad + at;
        status = try_piece(env, piece, u, scratch,
                           (char *)out + (size_t)at * hl_dtype_bytes(env->kernels->dtype), diag);
    }
    return status;
}
