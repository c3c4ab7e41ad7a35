/* zero1: gradients are reduce-scattered, each rank updates its slice of every block and keeps the
 * optimizer state for that slice alone; then the slices of the weights are gathered.
 * Paper: Rajbhandari et al., ZeRO (arXiv:1910.02054), stage 1. */
#include "strategies/data_parallel.h"

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_dp_check(env, "zero1", true, diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    double others = env->n_ranks - 1, n = env->n_ranks;
    bool bf16 = env->kernels && env->kernels->dtype == HL_BF16;
    return (struct hl_strategy_need){
        .param_versions = 1,
        .grad_buffers = 1,
        .sliced = HL_SLICED_STATE,
        .state_bytes_per_parameter = 4.0 * env->optimizer->n_slots / n + (bf16 ? 4.0 / n : 4.0),
        .sent_bytes_per_parameter = (4.0 + (bf16 ? 2.0 : 4.0)) * others / n,
        .period_steps = 1};
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    struct hl_dp *s;
    enum hl_status status = hl_dp_init(env, true, &s, diag);
    if (status == HL_OK) *state_out = s;
    return status;
}

const struct hl_strategy hl_strategy_zero1 = {.name = "zero1",
                                              .summary =
                                                  "optimizer state in slices, one for each rank",
                                              .paper = "arXiv:1910.02054",
                                              .check = check,
                                              .cost = cost,
                                              .init = init,
                                              .fini = hl_dp_fini,
                                              .block_exit = hl_dp_block_exit,
                                              .grad_ready = hl_dp_grad_ready,
                                              .step_end = hl_dp_step_end,
                                              .poll = hl_dp_poll};
