/* Vectors of W = 8 floats, AVX2 with FMA. The same names and promises as vec_avx512.h. */
#ifndef HALLEY_KERNELS_VEC_AVX2_H
#define HALLEY_KERNELS_VEC_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "halley/kernels.h"

enum { W = 8 };
typedef __m256 vf;

static inline __m256i vf_mask(int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

static inline vf vf_load(const void *p, int64_t n) {
    return n == W ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vf_mask(n));
}
static inline void vf_store(void *p, vf x, int64_t n) {
    if (n == W) _mm256_storeu_ps(p, x);
    else _mm256_maskstore_ps(p, vf_mask(n), x);
}

static inline vf vf_load_bf16(const void *p, int64_t n) {
    __m128i x = _mm_setzero_si128();
    if (n == W) x = _mm_loadu_si128(p);
    else memcpy(&x, p, (size_t)n * 2);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* As hl_bf16_from_f32: to nearest, ties to even, NaN quiet. */
static inline void vf_store_bf16(void *p, vf x, int64_t n) {
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i carry = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, carry), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i y = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m256i twice = _mm256_permute4x64_epi64(_mm256_packus_epi32(y, y), 0x08);
    const __m128i packed = _mm256_castsi256_si128(twice);
    if (n == W) _mm_storeu_si128(p, packed);
    else memcpy(p, &packed, (size_t)n * 2);
}

static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
/* rcpps has 12 bits, too few where 1 - 1/a follows; a division of 8 lanes costs little more. */
static inline vf vf_inverse_bf16(vf a) { return _mm256_div_ps(_mm256_set1_ps(1), a); }
static inline vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }

static inline float vf_sum(vf a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline float vf_largest(vf a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

static inline vf vf_keep(vf x, int64_t n, float other) {
    return n == W ? x : _mm256_blendv_ps(_mm256_set1_ps(other), x, _mm256_castsi256_ps(vf_mask(n)));
}

static inline vf vf_sign(vf x) {
    const vf zero = _mm256_setzero_ps();
    const vf up = _mm256_cmp_ps(x, zero, _CMP_GT_OQ), down = _mm256_cmp_ps(x, zero, _CMP_LT_OQ);
    return _mm256_blendv_ps(_mm256_blendv_ps(x, vf_set(1), up), vf_set(-1), down);
}

static inline vf vf_round(vf x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* x 2^k for whole k in -252..254: by two factors, because 2^k itself may not be a normal number. */
static inline vf vf_scale2(vf x, vf k) {
    const __m256i whole = _mm256_cvtps_epi32(k), half = _mm256_srai_epi32(whole, 1);
    const __m256i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
    const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(first));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(second));
}

typedef struct {
    __m256d low, high;
} vd;
static inline vd vd_zero(void) { return (vd){_mm256_setzero_pd(), _mm256_setzero_pd()}; }
static inline vd vd_add_square(vd sum, vf x) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    sum.low = _mm256_add_pd(sum.low, _mm256_mul_pd(low, low));
    sum.high = _mm256_add_pd(sum.high, _mm256_mul_pd(high, high));
    return sum;
}
static inline void vd_store(double *p, vd x) {
    _mm256_storeu_pd(p, x.low);
    _mm256_storeu_pd(p + 4, x.high);
}

#endif
