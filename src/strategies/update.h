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

/* The exchange of what follows: squares of a rank's slices and its tokens, from every rank. */
struct hl_collective_args hl_grad_share(const struct hl_strategy_env *env);
/* Norm and tokens of all ranks from their squares of slices: shared [n_ranks][n_blocks + 1], the
 * last of a row its supervised tokens. Sums run over blocks ascending, ranks ascending. */
struct hl_step_result hl_grad_result(const double *shared, int n_blocks, int n_ranks);

/* Apply the optimizer to a range of the engine. step: 1-based. scratch: hl_optimizer_scratch
 * floats. */
enum hl_status hl_update_range(const struct hl_strategy_env *env, struct hl_range range,
                               int64_t step, double learning_rate, float grad_factor,
                               float *scratch, struct hl_diag *diag) HL_MUST_CHECK;

/* The same from a gradient that lies elsewhere; what compute reads is not touched. */
enum hl_status hl_update_master(const struct hl_strategy_env *env, struct hl_range range,
                                const float *grad, int64_t step, double learning_rate,
                                float grad_factor, struct hl_diag *diag) HL_MUST_CHECK;

/* What the weights of a range would be after that update: into out, of the compute type [range.n].
 * Master and slots stay as they are. For optimizers that treat elements alike. scratch:
 * hl_update_trial_scratch floats */
enum hl_status hl_update_trial(const struct hl_strategy_env *env, struct hl_range range,
                               const float *grad, int64_t step, double learning_rate,
                               float grad_factor, float *scratch, void *out,
                               struct hl_diag *diag) HL_MUST_CHECK;
size_t hl_update_trial_scratch(const struct hl_optimizer *optimizer);

/* errors HL_E_USER: an optimizer that needs whole matrices, which the strategy of that name cuts */
enum hl_status hl_update_check_cuts(const struct hl_strategy_env *env, const char *name,
                                    struct hl_diag *diag) HL_MUST_CHECK;

#endif
