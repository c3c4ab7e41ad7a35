/* zero2: as zero1, and a block's gradient exists in full only until it is reduced. With several
 * micro-batches a rank adds them up in full first, so that there is one reduction in one order.
 * Paper: Rajbhandari et al., ZeRO (arXiv:1910.02054), stage 2. */
#include "strategies/data_parallel.h"

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_dp_check(env, "zero2", HL_SLICED_GRADIENTS, diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_dp_cost(env, HL_SLICED_GRADIENTS);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    return hl_dp_init(env, HL_SLICED_GRADIENTS, state_out, diag);
}

const struct hl_strategy hl_strategy_zero2 = {.name = "zero2",
                                              .summary = "optimizer state and gradients in slices",
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
