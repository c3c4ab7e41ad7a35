/* exp over whole vectors, on top of vec_avx2.h or vec_avx512.h.
 * x = k ln2 + r with |r| <= ln2/2, ln2 in two pieces (Cody & Waite 1980); e^r by its Taylor
 * polynomial, whose remainder at degree 7 is below 2^-26 of the result. NaN stays NaN, exp(-inf) =
 * 0, exp(inf) = inf. Results below FLT_MIN are flushed to zero where the thread's mode says so.
 * Error: see docs/numerics.md; a test measures it. */
#ifndef HALLEY_KERNELS_VEC_MATH_H
#define HALLEY_KERNELS_VEC_MATH_H

static inline vf vf_exp(vf x) {
    const float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    x = vf_min(vf_set(89.0f), vf_max(vf_set(-104.0f), x)); /* in this order NaN comes through */
    const vf k = vf_round(vf_mul(x, vf_set(log2e)));
    vf r = vf_fnma(k, vf_set(ln2_high), x);
    r = vf_fnma(k, vf_set(ln2_low), r);
    vf p = vf_set(1.0f / 5040);
    p = vf_fma(p, r, vf_set(1.0f / 720));
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1));
    p = vf_fma(p, r, vf_set(1));
    return vf_scale2(p, k);
}

/* 1 / (1 + exp(-x)) */
static inline vf vf_sigmoid(vf x) {
    const vf one = vf_set(1);
    return vf_div(one, vf_add(one, vf_exp(vf_sub(vf_set(0), x))));
}

#endif
