/* zero3: as zero2, and a block's weights are gathered just before it runs, the next block's
 * meanwhile; the window is given up when another block needs it.
 * Paper: Rajbhandari et al., ZeRO (arXiv:1910.02054), stage 3. */
#include "strategies/data_parallel.h"

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_dp_check(env, "zero3", HL_SLICED_WEIGHTS, diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_dp_cost(env, HL_SLICED_WEIGHTS);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    return hl_dp_init(env, HL_SLICED_WEIGHTS, state_out, diag);
}

const struct hl_strategy hl_strategy_zero3 = {
    .name = "zero3",
    .summary = "optimizer state, gradients and weights in slices",
    .paper = "arXiv:1910.02054",
    .check = check,
    .cost = cost,
    .init = init,
    .fini = hl_dp_fini,
    .block_enter = hl_dp_block_enter,
    .block_exit = hl_dp_block_exit,
    .grad_ready = hl_dp_grad_ready,
    .step_end = hl_dp_step_end,
    .poll = hl_dp_poll};
