/* wp: weight prediction. As dpu, but compute reads a guess of the weights to come: the optimizer is
 * applied once more with the same gradient, and what it writes is thrown away. A baseline of acco.
 * Paper: Nabli et al., ACCO (arXiv:2406.02613), its baseline. */
#include <stddef.h>

#include "strategies/overlapped.h"

struct wp_options {
    int64_t warmup_steps;
};

static const struct hl_option rows[] = {
    {.name = "warmup_steps",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct wp_options, warmup_steps),
     .initial = "40",
     .least = 0,
     .most = 1e15,
     .unit = "steps",
     .section = "strategy",
     .help = "synchronous steps at the start"},
};

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_overlap_check(env, "wp", diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_overlap_cost(env, HL_OVERLAP_WP);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    const struct wp_options *own = env->options;
    const struct hl_overlap_options o = {.rule = HL_OVERLAP_WP,
                                         .micro_batches = env->accumulation,
                                         .exact = true,
                                         .warmup_steps = own->warmup_steps};
    return hl_overlap_init(env, &o, state_out, diag);
}

const struct hl_strategy hl_strategy_wp = {.name = "wp",
                                           .summary =
                                               "dpu, computing at a guess of the next weights",
                                           .caps = HL_CAP_ROUNDS,
                                           .rows = rows,
                                           .n_rows = 1,
                                           .options_bytes = sizeof(struct wp_options),
                                           .check = check,
                                           .cost = cost,
                                           .init = init,
                                           .fini = hl_overlap_fini,
                                           .start = hl_overlap_start,
                                           .view = hl_overlap_view,
                                           .step_begin = hl_overlap_step_begin,
                                           .block_exit = hl_overlap_between_blocks,
                                           .micro_end = hl_overlap_micro_end,
                                           .step_end = hl_overlap_step_end,
                                           .poll = hl_overlap_poll,
                                           .saved = hl_overlap_saved};
