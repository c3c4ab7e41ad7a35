/* Vectors of W = 16 floats, AVX-512 (F, BW, DQ, VL).  vec_avx2.h offers the same names with W = 8,
 * and the bodies in this folder are written once over them. n is the number of lanes in use, 1..W:
 * what lies behind them is neither read nor written; lanes that were not read are 0. */
#ifndef HALLEY_KERNELS_VEC_AVX512_H
#define HALLEY_KERNELS_VEC_AVX512_H

#include <immintrin.h>

#include "halley/kernels.h"

enum { W = 16 };
typedef __m512 vf;

static inline __mmask16 vf_mask(int64_t n) { return (__mmask16)((1u << n) - 1); }

static inline vf vf_load(const void *p, int64_t n) {
    return n == W ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(vf_mask(n), p);
}
static inline void vf_store(void *p, vf x, int64_t n) {
    if (n == W) _mm512_storeu_ps(p, x);
    else _mm512_mask_storeu_ps(p, vf_mask(n), x);
}

static inline vf vf_load_bf16(const void *p, int64_t n) {
    const __m256i x = n == W ? _mm256_loadu_si256(p) : _mm256_maskz_loadu_epi16(vf_mask(n), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* As hl_bf16_from_f32: to nearest, ties to even, NaN quiet. */
static inline void vf_store_bf16(void *p, vf x, int64_t n) {
    const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << 16));
    __m512i y = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    y = _mm512_mask_add_epi32(y, odd, y, one);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    y = _mm512_mask_or_epi32(y, nan, bits, _mm512_set1_epi32(0x400000));
    const __m256i packed = _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16));
    if (n == W) _mm256_storeu_si256(p, packed);
    else _mm256_mask_storeu_epi16(p, vf_mask(n), packed);
}

static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
/* 1/a to 14 bits, enough where the result is stored as bf16. */
static inline vf vf_inverse_bf16(vf a) { return _mm512_rcp14_ps(a); }
static inline vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }   /* a b + c */
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
/* When either is NaN, b is returned. */
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
static inline float vf_largest(vf a) { return _mm512_reduce_max_ps(a); }

/* Lanes n..W-1 replaced by `other`. */
static inline vf vf_keep(vf x, int64_t n, float other) {
    return n == W ? x : _mm512_mask_blend_ps(vf_mask(n), _mm512_set1_ps(other), x);
}

/* 1, -1, or x itself when x is 0 or NaN. */
static inline vf vf_sign(vf x) {
    const vf zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1);
    x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, zero, _CMP_GT_OQ), one);
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, zero, _CMP_LT_OQ), _mm512_set1_ps(-1));
}

static inline vf vf_round(vf x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x 2^k for whole k, rounded once. */
static inline vf vf_scale2(vf x, vf k) { return _mm512_scalef_ps(x, k); }

/* Eight f64 lanes of each half: sums of squares. */
typedef struct {
    __m512d low, high;
} vd;
static inline vd vd_zero(void) { return (vd){_mm512_setzero_pd(), _mm512_setzero_pd()}; }
static inline vd vd_add_square(vd sum, vf x) {
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    sum.low = _mm512_add_pd(sum.low, _mm512_mul_pd(low, low));
    sum.high = _mm512_add_pd(sum.high, _mm512_mul_pd(high, high));
    return sum;
}
static inline void vd_store(double *p, vd x) {
    _mm512_storeu_pd(p, x.low);
    _mm512_storeu_pd(p + 8, x.high);
}

#endif
