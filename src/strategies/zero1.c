/* zero1: gradients are reduce-scattered, each rank updates its slice of every block and keeps the
 * optimizer state for that slice alone; then the slices of the weights are gathered.
 * Paper: Rajbhandari et al., ZeRO (arXiv:1910.02054), stage 1. */
#include "strategies/data_parallel.h"

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_dp_check(env, "zero1", HL_SLICED_STATE, diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_dp_cost(env, HL_SLICED_STATE);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    return hl_dp_init(env, HL_SLICED_STATE, state_out, diag);
}

const struct hl_strategy hl_strategy_zero1 = {.name = "zero1",
                                              .summary =
                                                  "optimizer state in slices, one for each rank",
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
