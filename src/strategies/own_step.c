/* A step of one rank. See own_step.h. */
#include "strategies/own_step.h"

#include <math.h>

#include "optimizers/optimizers.h"
#include "strategies/update.h"

void hl_own_step_fini(struct hl_own_step *own) {
    hl_free(own->env.mem, own->scratch);
    hl_free(own->env.mem, own->squares);
}

enum hl_status hl_own_step_init(const struct hl_strategy_env *env, struct hl_own_step *out,
                                struct hl_diag *diag) {
    size_t floats = (size_t)hl_optimizer_scratch(env->optimizer, env->layout);
    *out = (struct hl_own_step){.env = *env};
    out->squares = hl_alloc(env->mem, (size_t)env->layout->n_blocks, sizeof *out->squares);
    if (floats) out->scratch = hl_alloc(env->mem, floats, sizeof *out->scratch);
    if (out->squares && (!floats || out->scratch)) return HL_OK;
    hl_own_step_fini(out);
    *out = (struct hl_own_step){0};
    return hl_fail_memory(diag, floats * sizeof(float), "the optimizer's scratch");
}

void hl_own_step_grad_ready(struct hl_own_step *own, int block, bool last_micro) {
    if (last_micro) own->squares[block] = hl_grad_block_squares(&own->env, block);
}

enum hl_status hl_own_step_end(struct hl_own_step *own, const struct hl_step *step,
                               struct hl_step_result *out, struct hl_diag *diag) {
    const struct hl_layout *layout = own->env.layout;
    struct hl_step_result result = {.applied = true, .bad_block = -1};
    if (step->n_supervised > 0) {
        result.n_supervised = step->n_supervised;
        result.grad_norm =
            sqrt(hl_grad_sum_squares(own->squares, layout->n_blocks, &result.bad_block)) /
            (double)step->n_supervised;
        result.applied = isfinite(result.grad_norm);
        float factor = hl_grad_factor(result.grad_norm, step->max_grad_norm, step->n_supervised);
        for (int b = 0; b < layout->n_blocks && result.applied; b++) {
            enum hl_status status =
                hl_update_range(&own->env, layout->blocks[b], step->index + 1, step->learning_rate,
                                factor, own->scratch, diag);
            if (status != HL_OK) return status;
        }
    }
    *out = result;
    hl_engine_grad_clear(own->env.engine);
    return HL_OK;
}
