/* ddp: every rank holds everything. Each block's gradient is all-reduced as soon as it is final,
 * while the backward pass goes on; at the end all ranks make the same update.
 * Paper: Li et al., PyTorch Distributed (arXiv:2006.15704). deviates: a bucket is a block. */
#include "strategies/data_parallel.h"

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_dp_check(env, "ddp", HL_SLICED_NOTHING, diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_dp_cost(env, HL_SLICED_NOTHING);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    return hl_dp_init(env, HL_SLICED_NOTHING, state_out, diag);
}

const struct hl_strategy hl_strategy_ddp = {.name = "ddp",
                                            .summary = "all-reduce gradients, update everywhere",
                                            .paper = "arXiv:2006.15704",
                                            .check = check,
                                            .cost = cost,
                                            .init = init,
                                            .fini = hl_dp_fini,
                                            .block_enter = hl_dp_block_enter,
                                            .block_exit = hl_dp_block_exit,
                                            .grad_ready = hl_dp_grad_ready,
                                            .step_end = hl_dp_step_end,
                                            .poll = hl_dp_poll};
