/* What is the same for all elements of an update, and sums over fixed chunks: shared by every
 * instruction set, so that their results have the same bits. Factors are computed in f64 and
 * rounded once to f32. */
#ifndef HALLEY_KERNELS_FACTORS_H
#define HALLEY_KERNELS_FACTORS_H

#include <math.h>

#include "halley/kernels.h"

/* rest = 1 - beta, decay = lr * weight_decay, step = lr * correction1. All are small, and enter as
 * `x + small * y`: then their rounding (2^-24 of themselves) does not matter, whereas that of
 * 0.999f or of 1 - lr * weight_decay would add up over thousands of steps. */
struct hl_adamw_factors {
    float grad_scale, rest1, rest2, decay, step, root_correction2, epsilon;
};
struct hl_lion_factors {
    float grad_scale, rest1, rest2, decay, lr;
};

static inline struct hl_adamw_factors hl_adamw_factors(const struct hl_adamw *p) {
    return (struct hl_adamw_factors){
        .grad_scale = p->grad_scale,
        .rest1 = (float)(1 - p->beta1),
        .rest2 = (float)(1 - p->beta2),
        .decay = (float)(p->lr * p->weight_decay),
        .step = (float)(p->lr * p->correction1),
        .root_correction2 = (float)sqrt(p->correction2),
        .epsilon = (float)p->epsilon,
    };
}

static inline struct hl_lion_factors hl_lion_factors(const struct hl_lion *p) {
    return (struct hl_lion_factors){
        .grad_scale = p->grad_scale,
        .rest1 = (float)(1 - p->beta1),
        .rest2 = (float)(1 - p->beta2),
        .decay = (float)(p->lr * p->weight_decay),
        .lr = (float)p->lr,
    };
}

enum { HL_SUM_CHUNK = 65536, HL_SUM_LANES = 16 };

/* Sum of chunk_sum over chunks of HL_SUM_CHUNK elements, added in ascending order whatever the
 * number of threads. */
double hl_sum_over_chunks(int64_t n, const float *x,
                          double (*chunk_sum)(int64_t n, const float *x));

#endif
