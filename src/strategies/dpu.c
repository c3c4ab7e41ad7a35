/* dpu: delayed parameter update. The gradient of a step is exchanged while the next one is
 * computed: theta(t+1) = Opt(theta(t), g(theta(t-1))). A baseline of acco. Paper: Ren et al.,
 * ZeRO-Offload (arXiv:2101.06840), section 4.3. */
#include <stddef.h>

#include "strategies/overlapped.h"
#include "strategies/update.h"

static const struct hl_option rows[] = {HL_LAG_ROW("=dpu_warmup_steps")};

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_update_check_cuts(env, "dpu", diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_overlap_cost(env, HL_OVERLAP_DPU);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    return hl_overlap_init_lag(env, HL_OVERLAP_DPU, state_out, diag);
}

const struct hl_strategy hl_strategy_dpu = {
    .name = "dpu",
    .summary = "exchange beside the next step's compute; updates lag one step",
    .rows = rows,
    .n_rows = 1,
    .options_bytes = sizeof(struct hl_lag_options),
    .check = check,
    .cost = cost,
    .init = init,
    HL_OVERLAP_SLOTS};
