/* acco: accumulate while you communicate. A step has two rounds. In the first, micro-batches run at
 * the weights theta while the gradient of the round before (made at an estimate of theta) is
 * exchanged and tried: theta~ = Opt(theta, g~ / n~). In the second, micro-batches run at theta~
 * while both gradients together are exchanged and committed: theta = Opt(theta, (g~ + g) / (n~ +
 * n)). A round lasts as long as its exchange, so slow links enlarge the batch and nobody waits.
 * Paper: Nabli et al., ACCO (arXiv:2406.02613). deviates: see docs/strategies/acco.md. */
#include <stddef.h>

#include "strategies/overlapped.h"
#include "strategies/update.h"

struct acco_options {
    int64_t micro_batches_per_round;
    double trial_lr_scale;
};

static const struct hl_option rows[] = {
    {.name = "micro_batches_per_round",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct acco_options, micro_batches_per_round),
     .initial = "0",
     .least = 0,
     .most = 1e6,
     .unit = "micro-batches",
     .section = "strategy",
     .help =
         "of each of the two rounds of a step, on every rank, so that a run repeats bit by bit; "
         "0 = at least half of gradient_accumulation_steps, and on until the exchange is done"},
    {.name = "trial_lr_scale",
     .kind = HL_OPT_F64,
     .offset = offsetof(struct acco_options, trial_lr_scale),
     .initial = "1",
     .least = 0,
     .most = 10,
     .section = "strategy",
     .help = "on the learning rate of the estimate; 0 = no estimate, half of the gradients are a "
             "step old"},
};

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_update_check_cuts(env, "acco", diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_overlap_cost(env, HL_OVERLAP_ACCO);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    const struct acco_options *own = env->options;
    const struct hl_overlap_options o = {.rule = HL_OVERLAP_ACCO,
                                         .exact = own->micro_batches_per_round > 0,
                                         .micro_batches = own->micro_batches_per_round
                                                              ? own->micro_batches_per_round
                                                              : (env->accumulation + 1) / 2,
                                         .trial_rate_scale = own->trial_lr_scale};
    return hl_overlap_init(env, &o, state_out, diag);
}

const struct hl_strategy hl_strategy_acco = {
    .name = "acco",
    .summary = "exchange beside compute, each update from an estimated and an exact half",
    .paper = "arXiv:2406.02613",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .options_bytes = sizeof(struct acco_options),
    .reproducible = "micro_batches_per_round=1",
    .check = check,
    .cost = cost,
    .init = init,
    .metrics = hl_overlap_metrics,
    HL_OVERLAP_SLOTS};
