/* single: one rank, no exchange. At the end of a step the optimizer updates every block from the
 * local gradient. The smallest strategy there is, and the one the others are compared with. */
#include <math.h>

#include "optimizers/optimizers.h"
#include "strategies/update.h"

struct single {
    struct hl_strategy_env env;
    float *scratch;
    double *squares; /* [n_blocks], of the gradient since it is final */
};

static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    if (env->n_ranks == 1) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "strategy: 'single' is for one rank, but there are %d; choose another "
                   "--strategy ('halley help strategies')",
                   env->n_ranks);
}

static struct hl_strategy_need cost(const struct hl_strategy_env *env) {
    return (struct hl_strategy_need){.param_versions = 1,
                                     .grad_buffers = 1,
                                     .state_bytes_per_parameter =
                                         4.0 * (1 + env->optimizer->n_slots),
                                     .period_steps = 1};
}

static void fini(void *state) {
    struct single *s = state;
    struct hl_mem *mem = s->env.mem;
    hl_free(mem, s->scratch);
    hl_free(mem, s->squares);
    hl_free(mem, s);
}

static enum hl_status init(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag) {
    struct single *s = hl_alloc(env->mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "the strategy");
    s->env = *env;
    size_t floats = (size_t)hl_optimizer_scratch(env->optimizer, env->layout);
    s->squares = hl_alloc(env->mem, (size_t)env->layout->n_blocks, sizeof *s->squares);
    if (floats) s->scratch = hl_alloc(env->mem, floats, sizeof *s->scratch);
    if (!s->squares || (floats && !s->scratch)) {
        fini(s);
        return hl_fail_memory(diag, floats * sizeof(float), "the optimizer's scratch");
    }
    *state_out = s;
    return HL_OK;
}

static enum hl_status grad_ready(void *state, int block, bool last_micro, struct hl_diag *diag) {
    (void)diag;
    struct single *s = state;
    if (last_micro) s->squares[block] = hl_grad_block_squares(&s->env, block);
    return HL_OK;
}

static enum hl_status step_end(void *state, const struct hl_step *step, struct hl_step_result *out,
                               struct hl_diag *diag) {
    struct single *s = state;
    const struct hl_layout *layout = s->env.layout;
    int bad_block;
    double norm = sqrt(hl_grad_sum_squares(s->squares, layout->n_blocks, &bad_block)) /
                  (double)step->n_supervised;
    *out = (struct hl_step_result){.applied = isfinite(norm),
                                   .grad_norm = norm,
                                   .bad_block = bad_block,
                                   .n_supervised = step->n_supervised};
    float factor = hl_grad_factor(norm, step->max_grad_norm, step->n_supervised);
    for (int b = 0; b < layout->n_blocks && out->applied; b++) {
        enum hl_status status = hl_update_range(&s->env, layout->blocks[b], step->index + 1,
                                                step->learning_rate, factor, s->scratch, diag);
        if (status != HL_OK) return status;
    }
    hl_engine_grad_clear(s->env.engine);
    return HL_OK;
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
