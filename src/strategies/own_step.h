/* A step from this rank's gradient alone: norm over the whole of it, clipping, update. All that
 * `single` does, and what ranks do between exchanges in methods that exchange rarely. */
#ifndef HALLEY_STRATEGIES_OWN_STEP_H
#define HALLEY_STRATEGIES_OWN_STEP_H

#include "halley/strategy.h"

struct hl_own_step {
    struct hl_strategy_env env;
    float *scratch;  /* the optimizer's */
    double *squares; /* [n_blocks], of the gradient since it is final */
};

/* errors HL_E_MEMORY: nothing is kept. Free with hl_own_step_fini. */
enum hl_status hl_own_step_init(const struct hl_strategy_env *env, struct hl_own_step *out,
                                struct hl_diag *diag) HL_MUST_CHECK;
void hl_own_step_fini(struct hl_own_step *own);
void hl_own_step_grad_ready(struct hl_own_step *own, int block, bool last_micro);
/* As the slot step_end. Without a supervised token on this rank there is no gradient: weights stay
 * as they are. */
enum hl_status hl_own_step_end(struct hl_own_step *own, const struct hl_step *step,
                               struct hl_step_result *out, struct hl_diag *diag) HL_MUST_CHECK;

#endif
