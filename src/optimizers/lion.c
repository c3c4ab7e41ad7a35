/* Lion: the sign of an interpolated momentum (Chen et al., arXiv:2302.06675, algorithm 2).
 * w = w (1 - lr wd) - lr sign(b1 m + (1-b1) g);  m = b2 m + (1-b2) g. Its rates are 3-10 times
 * smaller than AdamW's. */
#include "optimizers/optimizers.h"

static enum hl_status update(const struct hl_update *u, struct hl_diag *diag) {
    (void)diag;
    struct hl_lion p = {
        .lr = u->learning_rate,
        .beta1 = u->options->lion_beta1,
        .beta2 = u->options->lion_beta2,
        .weight_decay = u->tensor->decay ? u->options->weight_decay : 0,
        .grad_scale = u->grad_scale,
    };
    u->kernels->lion(u->n, &p, u->grad, u->master, u->slots[0], u->copy);
    return HL_OK;
}

const struct hl_optimizer hl_optimizer_lion = {.name = "lion",
                                               .summary =
                                                   "sign of a momentum; half of AdamW's state",
                                               .paper = "arXiv:2302.06675",
                                               .n_slots = 1,
                                               .slot_names = {"exp_avg"},
                                               .update = update};
