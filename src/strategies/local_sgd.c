/* local_sgd: every rank trains on its own for sync_every steps; then all go on from the mean of
 * their weights.
 * Paper: Stich, Local SGD Converges Fast and Communicates Little (arXiv:1805.09767). deviates: any
 * inner optimizer; the mean is taken of what ranks changed, so that bf16 on the wire rounds changes
 * and not weights. */
#include "strategies/local_steps.h"

static enum hl_status plan_of(const struct hl_strategy_env *env, struct hl_local_plan *out,
                              struct hl_diag *diag) {
    (void)diag;
    *out = (struct hl_local_plan){
        .n_fragments = 1, .every = env->sync_every, .wire = env->reduce_dtype};
    return HL_OK;
}

HL_LOCAL_LIFE(plan_of)

const struct hl_strategy hl_strategy_local_sgd = {
    .name = "local_sgd",
    .summary = "ranks train apart; now and then their weights are averaged",
    .paper = "arXiv:1805.09767",
    .check = check,
    .cost = cost,
    .init = init,
    HL_LOCAL_SLOTS};
