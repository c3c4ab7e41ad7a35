/* diloco: every rank trains on its own for sync_every steps; then the mean of what they changed is
 * the gradient of an outer step, from which all go on.
 * Paper: Douillard et al., DiLoCo (arXiv:2311.08105). */
#include "strategies/local_steps.h"

struct options {
    struct hl_outer_options outer;
};

static const struct hl_option rows[] = {HL_OUTER_ROWS(struct options, outer, "0.7")};

static enum hl_status plan_of(const struct hl_strategy_env *env, struct hl_local_plan *out,
                              struct hl_diag *diag) {
    const struct options *o = env->options;
    *out = (struct hl_local_plan){
        .n_fragments = 1, .every = env->sync_every, .wire = env->reduce_dtype};
    return hl_local_outer(env, "diloco", &o->outer, out, diag);
}

HL_LOCAL_LIFE(plan_of)

const struct hl_strategy hl_strategy_diloco = {
    .name = "diloco",
    .summary = "ranks train apart; an outer step on their mean change now and then",
    .paper = "arXiv:2311.08105",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .options_bytes = sizeof(struct options),
    .check = check,
    .cost = cost,
    .init = init,
    HL_LOCAL_SLOTS};
