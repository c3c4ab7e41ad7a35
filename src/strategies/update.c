/* Norm, clipping, update. See update.h. */
#include "strategies/update.h"

#include <math.h>

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

enum hl_status hl_update_range(const struct hl_strategy_env *env, struct hl_range range,
                               int64_t step, double learning_rate, float grad_factor,
                               float *scratch, struct hl_diag *diag) {
    struct hl_update common = {
        .kernels = env->kernels,
        .options = env->optimizer_options,
        .step = step,
        .learning_rate = learning_rate,
        .grad_scale = grad_factor,
        .grad = hl_engine_data(env->engine, HL_BUFFER_GRAD, range),
        .master = hl_engine_data(env->engine, HL_BUFFER_MASTER, range),
        .copy = hl_engine_copy(env->engine, range),
        .products = env->products,
        .scratch = scratch,
    };
    for (int s = 0; s < env->optimizer->n_slots; s++)
        common.slots[s] = hl_engine_data(env->engine, (enum hl_buffer)(HL_BUFFER_SLOT0 + s), range);
    return hl_optimizer_apply(env->optimizer, &common, env->layout, range, diag);
}
