/* single: one rank, no exchange. At the end of a step the optimizer updates every block from the
 * local gradient. The smallest strategy there is, and the one the others are compared with. */
#include "strategies/own_step.h"

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    if (env->n_ranks == 1) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "strategy: 'single' is for one rank, but there are %d; choose another "
                   "--strategy ('halley help strategies')",
                   env->n_ranks);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return (struct hl_strategy_need){
        .state_bytes_per_parameter = 4.0 * (1 + env->optimizer->n_slots), .period_steps = 1};
}

static void fini(void *state) {
    struct hl_own_step *own = state;
    struct hl_mem *mem = own->env.mem;
    hl_own_step_fini(own);
    hl_free(mem, own);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    struct hl_own_step *own = hl_alloc(env->mem, 1, sizeof *own);
    if (!own) return hl_fail_memory(diag, sizeof *own, "the strategy");
    enum hl_status status = hl_own_step_init(env, own, diag);
    if (status == HL_OK) *state_out = own;
    else hl_free(env->mem, own);
    return status;
}

static enum hl_status grad_ready(void *state, int block, bool last_micro, struct hl_diag *diag) {
    (void)diag;
    hl_own_step_grad_ready(state, block, last_micro);
    return HL_OK;
}

static enum hl_status step_end(void *state, const struct hl_step *step, struct hl_step_result *out,
                               struct hl_diag *diag) {
    return hl_own_step_end(state, step, out, diag);
}

const struct hl_strategy hl_strategy_single = {.name = "single",
                                               .summary =
                                                   "one rank: update from the local gradient",
                                               .check = check,
                                               .cost = cost,
                                               .init = init,
                                               .fini = fini,
                                               .grad_ready = grad_ready,
                                               .step_end = step_end};
