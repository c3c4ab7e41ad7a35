/* Which optimizers exist, their shared options, and the walk that applies one to a range. */
#include "optimizers/optimizers.h"

#include <string.h>

#define HL_OPTIMIZER(name) extern const struct hl_optimizer hl_optimizer_##name;
#include "optimizers.def"
#undef HL_OPTIMIZER

static const struct hl_optimizer *const optimizers[] = {
#define HL_OPTIMIZER(name) &hl_optimizer_##name,
#include "optimizers.def"
#undef HL_OPTIMIZER
    NULL};

#define ROW(field, text, low, high, extra, words)                                                  \
    {                                                                                              \
        .name = #field, .kind = HL_OPT_F64,                                                        \
        .offset = offsetof(struct hl_optimizer_options, field), .initial = text, .least = low,     \
        .most = high, .aliases = extra, .section = "optimizer", .help = words                      \
    }

const struct hl_option hl_optimizer_rows[] = {
    ROW(weight_decay, "0.1", 0, 10, "wd",
        "decoupled weight decay, on matrices (embeddings too) and not on vectors"),
    ROW(adam_beta1, "0.9", 0, 0.999999, "beta1", "AdamW: decay of the mean of gradients"),
    ROW(adam_beta2, "0.95", 0, 0.9999999, "beta2", "AdamW: decay of the mean of squares"),
    ROW(adam_epsilon, "1e-8", 1e-30, 1, "adam_eps epsilon",
        "AdamW: added to the root of the mean of squares"),
    ROW(momentum, "0.9", 0, 0.999999, NULL, "SGD: momentum; 0 = none"),
    {.name = "nesterov",
     .kind = HL_OPT_BOOL,
     .offset = offsetof(struct hl_optimizer_options, nesterov),
     .initial = "false",
     .section = "optimizer",
     .help = "SGD: look ahead along the momentum"},
    ROW(lion_beta1, "0.9", 0, 0.999999, NULL, "Lion: weight of the momentum in the direction"),
    ROW(lion_beta2, "0.99", 0, 0.999999, NULL, "Lion: decay of the momentum"),
    ROW(muon_momentum, "0.95", 0, 0.999999, NULL, "Muon: momentum before orthogonalisation"),
    {.name = "muon_steps",
     .kind = HL_OPT_I64,
     .offset = offsetof(struct hl_optimizer_options, muon_steps),
     .initial = "5",
     .least = 1,
     .most = 20,
     .section = "optimizer",
     .help = "Muon: Newton-Schulz iterations"},
};
const size_t hl_optimizer_n_rows = sizeof hl_optimizer_rows / sizeof *hl_optimizer_rows;

const struct hl_optimizer *const *hl_optimizers(void) { return optimizers; }

enum hl_status hl_optimizer_find(const char *name, const struct hl_optimizer **out,
                                 struct hl_diag *diag) {
    const char *names[sizeof optimizers / sizeof *optimizers];
    size_t n = 0;
    for (; optimizers[n]; n++) {
        names[n] = optimizers[n]->name;
        if (!strcmp(names[n], name)) return *out = optimizers[n], HL_OK;
    }
    const char *near = hl_nearest_word(name, names, n);
    return hl_fail(diag, HL_E_USER,
                   "optim: unknown optimizer '%s'; %s%s; 'halley help optimizers' lists them", name,
                   near ? "did you mean " : "", near ? near : "no name is near");
}

int64_t hl_optimizer_scratch(const struct hl_optimizer *optimizer, const struct hl_layout *layout) {
    int64_t most = 0;
    if (!optimizer->scratch_floats) return 0;
    for (int i = 0; i < layout->n_tensors; i++) {
        int64_t n = optimizer->scratch_floats(&layout->tensors[i]);
        if (n > most) most = n;
    }
    return most;
}

enum hl_status hl_optimizer_apply(const struct hl_optimizer *optimizer,
                                  const struct hl_update *common, const struct hl_layout *layout,
                                  struct hl_range range, struct hl_diag *diag) {
    int64_t end = range.offset + range.n;
    for (int i = 0; i < layout->n_tensors; i++) {
        const struct hl_tensor *tensor = &layout->tensors[i];
        int64_t first = tensor->offset > range.offset ? tensor->offset : range.offset;
        int64_t last = tensor->offset + tensor->n < end ? tensor->offset + tensor->n : end;
        if (first >= last) continue;
        struct hl_update u = *common;
        int64_t skip = first - range.offset;
        u.tensor = tensor;
        u.first = first - tensor->offset;
        u.n = last - first;
        u.grad += skip;
        u.master += skip;
        for (int s = 0; s < optimizer->n_slots; s++) u.slots[s] += skip;
        if (u.copy) u.copy += skip;
        enum hl_status status = optimizer->update(&u, diag);
        if (status != HL_OK) return status;
    }
    return HL_OK;
}
