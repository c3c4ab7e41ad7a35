/* AdamW: Adam with decoupled weight decay (Loshchilov & Hutter, arXiv:1711.05101, algorithm 2).
 * Decay applies to tensors of the decay class only: matrices and embeddings, not biases and norms.
 * m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w = w (1 - lr wd) - lr (m/(1-b1^t)) /
 * (sqrt(v/(1-b2^t)) + eps) */
#include <math.h>

#include "optimizers/optimizers.h"

void hl_adamw_update(const struct hl_update *u) {
    const struct hl_optimizer_options *o = u->options;
    struct hl_adamw p = {
        .lr = u->learning_rate,
        .beta1 = o->adam_beta1,
        .beta2 = o->adam_beta2,
        .epsilon = o->adam_epsilon,
        .weight_decay = u->tensor->decay ? o->weight_decay : 0,
        .correction1 = 1.0 / (1.0 - pow(o->adam_beta1, (double)u->step)),
        .correction2 = 1.0 / (1.0 - pow(o->adam_beta2, (double)u->step)),
        .grad_scale = u->grad_scale,
    };
    u->kernels->adamw(u->n, &p, u->grad, u->master, u->slots[0], u->slots[1], u->copy);
}

static enum hl_status update(const struct hl_update *u, struct hl_diag *diag) {
    (void)diag;
    hl_adamw_update(u);
    return HL_OK;
}

const struct hl_optimizer hl_optimizer_adamw = {.name = "adamw",
                                                .summary =
                                                    "Adam with decoupled weight decay; the default",
                                                .paper = "arXiv:1711.05101",
                                                .n_slots = 2,
                                                .slot_names = {"exp_avg", "exp_avg_sq"},
                                                .update = update};
