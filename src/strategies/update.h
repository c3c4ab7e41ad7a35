/* The end of every synchronous step, shared by strategies: norm of the reduced gradient, clipping,
 * update. The order of sums is part of the numerics (docs/numerics.md): blocks ascending. */
#ifndef HALLEY_STRATEGIES_UPDATE_H
#define HALLEY_STRATEGIES_UPDATE_H

#include "halley/strategy.h"

/* Sum of squares of one block's gradient sums, in f64; best asked when it is final, while it is in
 * cache. */
double hl_grad_block_squares(const struct hl_strategy_env *env, int block);
/* Their sum over all blocks, ascending. *bad_block_out: the block in which a non-finite value
 * appears first in the order of the backward pass (head first), -1 when none. */
double hl_grad_sum_squares(const double *block_squares, int n_blocks, int *bad_block_out);

/* The one factor on every gradient element: clip / n_tokens, rounded to f32 once.
 * clip = min(1, max_grad_norm / norm); max_grad_norm 0: no clipping. */
float hl_grad_factor(double norm, double max_grad_norm, int64_t n_tokens);

/* Apply the optimizer to a range of the engine. step: 1-based. scratch: hl_optimizer_scratch
 * floats. */
enum hl_status hl_update_range(const struct hl_strategy_env *env, struct hl_range range,
                               int64_t step, double learning_rate, float grad_factor,
                               float *scratch, struct hl_diag *diag) HL_MUST_CHECK;

#endif
