/* An optimizer says how one range is updated from one gradient. No communication, no schedule, no
 * clipping rule: the factor on the gradient and the rate come from outside. Plug-ins:
 * src/optimizers/<name>.c + a line in optimizers.def. */
#ifndef HALLEY_OPTIMIZER_H
#define HALLEY_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/kernels.h"
#include "halley/layout.h"
#include "halley/option.h"
#include "halley/status.h"

enum { HL_OPTIMIZER_MAX_SLOTS = 2 };

/* The shared hyperparameters, spelled as in Hugging Face's Trainer. */
struct hl_optimizer_options {
    double weight_decay;
    double adam_beta1, adam_beta2, adam_epsilon;
    double momentum;
    bool nesterov;
    double lion_beta1, lion_beta2;
    double muon_momentum;
    int64_t muon_steps; /* Newton-Schulz iterations */
};
extern const struct hl_option hl_optimizer_rows[];
extern const size_t hl_optimizer_n_rows;

/* One update of a piece that lies inside one tensor. Arrays start at the piece. */
struct hl_update {
    const struct hl_kernels *kernels; /* any dtype */
    const struct hl_optimizer_options *options;
    const struct hl_tensor *tensor;
    int64_t first, n; /* the piece: elements [first, first + n) of the tensor */
    int64_t step;     /* 1-based count of updates, for bias correction */
    double learning_rate;
    float grad_scale;  /* 1/n_tokens times the clip factor, rounded to f32 once */
    const float *grad; /* [n] sums over supervised tokens */
    float *master;     /* [n] in and out */
    float *slots[HL_OPTIMIZER_MAX_SLOTS]; /* [n] each */
    struct hl_bf16 *copy;                 /* [n] bf16 copy to refresh; NULL: none */
    struct hl_products *products;         /* for optimizers that multiply matrices */
    float *scratch; /* scratch_floats(tensor) of the plug-in; NULL when that is 0 */
};

struct hl_optimizer {
    const char *name, *summary, *paper;
    int n_slots;
    const char *slot_names[HL_OPTIMIZER_MAX_SLOTS]; /* in checkpoints: "exp_avg", "exp_avg_sq" */
    bool whole_matrices;                            /* must see each matrix in one piece (Muon) */
    /* errors HL_E_USER with the option's name. Pure. */
    enum hl_status (*check)(const struct hl_optimizer_options *options, struct hl_diag *diag);
    int64_t (*scratch_floats)(const struct hl_tensor *tensor); /* NULL: none */
    enum hl_status (*update)(const struct hl_update *update, struct hl_diag *diag);
};

/* errors HL_E_USER with the nearest name. */
enum hl_status hl_optimizer_find(const char *name, const struct hl_optimizer **out,
                                 struct hl_diag *diag) HL_MUST_CHECK;
const struct hl_optimizer *const *hl_optimizers(void); /* NULL-terminated, in registry order */

/* ---- learning-rate curves: pure functions of committed progress ---- */
enum hl_curve { HL_CURVE_CONSTANT, HL_CURVE_LINEAR, HL_CURVE_COSINE, HL_CURVE_WSD };
struct hl_schedule_rate {
    enum hl_curve curve;
    double learning_rate; /* the maximum */
    double min_lr_ratio;  /* the floor as a share of the maximum */
    double warmup;        /* progress units (steps or tokens) */
    double total;         /* progress at the end */
    double decay;         /* WSD: length of the final decay, at most total - warmup; 0: none */
};
/* Rate for the update that starts at `progress` committed units. Warm-up is linear from (1/warmup)
 * of the maximum, so the first update is never at rate 0: rate = max * (progress + unit) / warmup,
 * unit = size of one step in progress units. */
double hl_learning_rate(const struct hl_schedule_rate *curve, double progress, double unit);

#endif
