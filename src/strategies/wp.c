/* wp: weight prediction. As dpu, but compute reads a guess of the weights to come: the optimizer is
 * applied once more with the same gradient, and what it writes is thrown away. A baseline of acco.
 * Paper: Nabli et al., ACCO (arXiv:2406.02613), its baseline. */
#include <stddef.h>

#include "strategies/overlapped.h"
#include "strategies/update.h"

static const struct hl_option rows[] = {HL_LAG_ROW(NULL)};

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_update_check_cuts(env, "wp", diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_overlap_cost(env, HL_OVERLAP_WP);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    return hl_overlap_init_lag(env, HL_OVERLAP_WP, state_out, diag);
}

const struct hl_strategy hl_strategy_wp = {.name = "wp",
                                           .summary =
                                               "dpu, computing at a guess of the next weights",
                                           .rows = rows,
                                           .n_rows = 1,
                                           .options_bytes = sizeof(struct hl_lag_options),
                                           .check = check,
                                           .cost = cost,
                                           .init = init,
                                           .start = hl_overlap_start,
                                           .view = hl_overlap_view,
                                           HL_OVERLAP_SLOTS};
