/* dpu: delayed parameter update. The gradient of a step is exchanged while the next one is
 * computed: theta(t+1) = Opt(theta(t), g(theta(t-1))). A baseline of acco. Paper: Ren et al.,
 * ZeRO-Offload (arXiv:2101.06840), section 4.3. */
#include <stddef.h>

#include "strategies/overlapped.h"

struct dpu_options {
    int64_t warmup_steps;
};

static const struct hl_option rows[] = {
    {.name = "warmup_steps",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct dpu_options, warmup_steps),
     .initial = "40",
     .least = 0,
     .most = 1e15,
     .unit = "steps",
     .aliases = "=dpu_warmup_steps",
     .section = "strategy",
     .help = "synchronous steps at the start"},
};

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    return hl_overlap_check(env, "dpu", diag);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return hl_overlap_cost(env, HL_OVERLAP_DPU);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    const struct dpu_options *own = env->options;
    const struct hl_overlap_options o = {.rule = HL_OVERLAP_DPU,
                                         .micro_batches = env->accumulation,
                                         .exact = true,
                                         .warmup_steps = own->warmup_steps};
    return hl_overlap_init(env, &o, state_out, diag);
}

const struct hl_strategy hl_strategy_dpu = {
    .name = "dpu",
    .summary = "exchange beside the next step's compute; updates lag one step",
    .caps = HL_CAP_ROUNDS,
    .rows = rows,
    .n_rows = 1,
    .options_bytes = sizeof(struct dpu_options),
    .check = check,
    .cost = cost,
    .init = init,
    .fini = hl_overlap_fini,
    .step_begin = hl_overlap_step_begin,
    .block_exit = hl_overlap_between_blocks,
    .micro_end = hl_overlap_micro_end,
    .step_end = hl_overlap_step_end,
    .poll = hl_overlap_poll,
    .saved = hl_overlap_saved};
