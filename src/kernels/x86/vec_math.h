/* exp over whole vectors, on top of vec_avx2.h or vec_avx512.h.
 * x = k ln2 + r with |r| <= ln2/2, ln2 in two pieces (Cody & Waite 1980); e^r by its Taylor
 * polynomial. Degree 7: remainder below 2^-26 of the result, largest error 0.88 units in the last
 * place (test_exp). Degree 4: 4.2e-5 of the result, for what is stored as bf16 (2^-9). NaN stays
 * NaN, exp(-inf) = 0, exp(inf) = inf. Results below FLT_MIN are flushed to zero where the thread's
 * mode says so. */
#ifndef HALLEY_KERNELS_VEC_MATH_H
#define HALLEY_KERNELS_VEC_MATH_H

struct exp_parts {
    vf r, k;
};

static inline struct exp_parts exp_reduce(vf x) {
    const float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    x = vf_min(vf_set(89.0f), vf_max(vf_set(-104.0f), x)); /* in this order NaN comes through */
    const vf k = vf_round(vf_mul(x, vf_set(log2e)));
    return (struct exp_parts){vf_fnma(k, vf_set(ln2_low), vf_fnma(k, vf_set(ln2_high), x)), k};
}

static inline vf vf_exp(vf x) {
    const struct exp_parts e = exp_reduce(x);
    vf p = vf_set(1.0f / 5040);
    p = vf_fma(p, e.r, vf_set(1.0f / 720));
    p = vf_fma(p, e.r, vf_set(1.0f / 120));
    p = vf_fma(p, e.r, vf_set(1.0f / 24));
    p = vf_fma(p, e.r, vf_set(1.0f / 6));
    p = vf_fma(p, e.r, vf_set(0.5f));
    p = vf_fma(p, e.r, vf_set(1));
    p = vf_fma(p, e.r, vf_set(1));
    return vf_scale2(p, e.k);
}

static inline vf vf_exp_bf16(vf x) {
    const struct exp_parts e = exp_reduce(x);
    vf p = vf_fma(vf_set(1.0f / 24), e.r, vf_set(1.0f / 6));
    p = vf_fma(p, e.r, vf_set(0.5f));
    p = vf_fma(p, e.r, vf_set(1));
    p = vf_fma(p, e.r, vf_set(1));
    return vf_scale2(p, e.k);
}

/* 1 / (1 + exp(-x)) */
static inline vf vf_sigmoid(vf x) {
    return vf_div(vf_set(1), vf_add(vf_set(1), vf_exp(vf_sub(vf_set(0), x))));
}
static inline vf vf_sigmoid_bf16(vf x) {
    return vf_inverse_bf16(vf_add(vf_set(1), vf_exp_bf16(vf_sub(vf_set(0), x))));
}

#endif
