/* What ddp and zero1-3 share: one reduction of every block's gradient, the global norm, the update,
 * and - where parameters are updated in slices - their gathering. In all of them a rank's slice of
 * a block is the same, sums go over ranks left to right, and partial norms are added blocks
 * ascending, ranks ascending; hence equal bits. docs/numerics.md is the specification. */
#ifndef HALLEY_STRATEGIES_DATA_PARALLEL_H
#define HALLEY_STRATEGIES_DATA_PARALLEL_H

#include "halley/collective.h"
#include "halley/strategy.h"

enum hl_dp_stage { HL_DP_REDUCE, HL_DP_SHARE, HL_DP_UPDATE, HL_DP_GATHER };

struct hl_dp {
    struct hl_strategy_env env;
    enum hl_sliced sliced;         /* NOTHING: all ranks update all; else each updates its slices */
    bool grad_windows;             /* gradients live in windows until they are reduced */
    float *scratch;                /* the optimizer's */
    struct hl_collective *reduces; /* [n_blocks] */
    struct hl_collective
        *gathers;   /* [n_blocks], of updated slices, or of blocks as they are needed */
    bool *reducing; /* [n_blocks]: the window is not closed yet */
    double *shared; /* [n_ranks][n_blocks + 1]: squares of a rank's slices, its supervised tokens */
    struct hl_collective share;
    struct hl_step_result result;
    enum hl_dp_stage stage;
};

/* errors HL_E_USER: an optimizer that needs whole matrices, where they would be cut */
enum hl_status hl_dp_check(const struct hl_strategy_env *env, const char *name,
                           enum hl_sliced sliced, struct hl_diag *diag) HL_MUST_CHECK;
/* sliced: as the strategy would have it. Gradients of several micro-batches are added up whole, so
 * that they are reduced once, in the same order as with one. */
struct hl_strategy_need hl_dp_cost(const struct hl_strategy_env *env, enum hl_sliced sliced);
enum hl_status hl_dp_init(const struct hl_strategy_env *env, enum hl_sliced sliced,
                          void **state_out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_dp_fini(void *state);

/* Slots. */
enum hl_status hl_dp_block_enter(void *state, int block, bool backward, struct hl_diag *diag);
enum hl_status hl_dp_block_exit(void *state, int block, bool backward, struct hl_diag *diag);
enum hl_status hl_dp_grad_ready(void *state, int block, bool last_micro, struct hl_diag *diag);
enum hl_status hl_dp_step_end(void *state, const struct hl_step *step, struct hl_step_result *out,
                              struct hl_diag *diag);
enum hl_status hl_dp_poll(void *state, struct hl_diag *diag);

/* This rank's slice of a block, as a range of the flat vector. */
struct hl_range hl_dp_slice(const struct hl_strategy_env *env, int block, int rank);

#endif
