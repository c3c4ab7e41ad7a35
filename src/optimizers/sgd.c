/* Stochastic gradient descent with momentum and, on request, Nesterov's look-ahead (Sutskever et
 * al., ICML 2013), in PyTorch's form: g = g + wd w;  b = mu b + g (first step: b = g); w = w - lr
 * (nesterov ? g + mu b : b). Decay enters the gradient here, unlike in AdamW. */
#include "optimizers/optimizers.h"

static enum hl_status check(const struct hl_optimizer_options *options, struct hl_diag *diag) {
    if (options->nesterov && options->momentum == 0)
        return hl_fail(diag, HL_E_USER, "nesterov needs momentum above 0, such as --momentum 0.9");
    return HL_OK;
}

static enum hl_status update(const struct hl_update *u, struct hl_diag *diag) {
    (void)diag;
    struct hl_sgd p = {
        .lr = (float)u->learning_rate,
        .momentum = (float)u->options->momentum,
        .weight_decay = u->tensor->decay ? (float)u->options->weight_decay : 0.0f,
        .grad_scale = u->grad_scale,
        .nesterov = u->options->nesterov,
        .first = u->step == 1,
    };
    u->kernels->sgd(u->n, &p, u->grad, u->master, u->slots[0], u->copy);
    return HL_OK;
}

const struct hl_optimizer hl_optimizer_sgd = {.name = "sgd",
                                              .summary =
                                                  "gradient descent with momentum, or Nesterov's",
                                              .paper = "Sutskever et al., ICML 2013",
                                              .n_slots = 1,
                                              .slot_names = {"momentum_buffer"},
                                              .check = check,
                                              .update = update};
