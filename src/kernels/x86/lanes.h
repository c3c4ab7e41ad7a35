/* One vector of f32 lanes, over AVX-512 (16) or AVX2 with FMA (8), so that one body serves both.
 * Includers are compiled with the flags of their instruction set; everything is static inline. A
 * "part" touches only the first n lanes (1 <= n <= LANES) and reads as 0 beyond. bf16 is rounded to
 * nearest, ties to even, as hl_bf16_from_f32. */
#ifndef HALLEY_KERNELS_LANES_H
#define HALLEY_KERNELS_LANES_H

#include <immintrin.h>
#include <stdint.h>

#include "halley/kernels.h"

#ifdef __AVX512F__

enum { LANES = 16 };
typedef __m512 vf;

static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_all(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline __mmask16 vf_first(int64_t n) { return (__mmask16)((1U << n) - 1U); }
static inline vf vf_load_part(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(vf_first(n), p);
}
static inline void vf_store_part(float *p, vf x, int64_t n) {
    _mm512_mask_storeu_ps(p, vf_first(n), x);
}
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
/* NaN in b stays; NaN in a gives b. */
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
/* Lanes n and beyond become x. */
static inline vf vf_fill_after(vf a, int64_t n, float x) {
    return _mm512_mask_mov_ps(_mm512_set1_ps(x), vf_first(n), a);
}
static inline float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
static inline float vf_top(vf a) { return _mm512_reduce_max_ps(a); }
static inline vf vf_round(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for integral n in -127..128; results below the normal range are 0. */
static inline vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }

static inline void vf_store_low(float *p, vf x) { _mm256_storeu_ps(p, _mm512_castps512_ps256(x)); }
static inline void vf_store_high(float *p, vf x) {
    _mm256_storeu_ps(p, _mm512_extractf32x8_ps(x, 1));
}

static inline vf bf16_widen(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
static inline vf vf_load_bf16(const struct hl_bf16 *p) {
    return bf16_widen(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline vf vf_load_part_bf16(const struct hl_bf16 *p, int64_t n) {
    return bf16_widen(_mm256_maskz_loadu_epi16(vf_first(n), p));
}
#ifdef __AVX512BF16__
static inline __m256i bf16_narrow(vf x) { return (__m256i)_mm512_cvtneps_pbh(x); }
#else
static inline __m256i bf16_narrow(vf x) {
    __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    __m512i bias =
        _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_si512(high, _mm512_set1_epi32(1)));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
}
#endif
static inline void vf_store_bf16(struct hl_bf16 *p, vf x) {
    _mm256_storeu_si256((__m256i *)(void *)p, bf16_narrow(x));
}
static inline void vf_store_part_bf16(struct hl_bf16 *p, vf x, int64_t n) {
    _mm256_mask_storeu_epi16(p, vf_first(n), bf16_narrow(x));
}

#else

enum { LANES = 8 };
typedef __m256 vf;

static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_all(float x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline __m256i vf_first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_part(const float *p, int64_t n) {
    return _mm256_maskload_ps(p, vf_first(n));
}
static inline void vf_store_part(float *p, vf x, int64_t n) {
    _mm256_maskstore_ps(p, vf_first(n), x);
}
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_fill_after(vf a, int64_t n, float x) {
    return _mm256_blendv_ps(_mm256_set1_ps(x), a, _mm256_castsi256_ps(vf_first(n)));
}
static inline float vf_sum(vf a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline float vf_top(vf a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
static inline vf vf_round(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_scale2(vf a, vf n) {
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(_mm256_min_ps(n, _mm256_set1_ps(127))),
                                 _mm256_set1_epi32(127));
    e = _mm256_max_epi32(e, _mm256_setzero_si256());
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
}

static inline void vf_store_low(float *p, vf x) { _mm_storeu_ps(p, _mm256_castps256_ps128(x)); }
static inline void vf_store_high(float *p, vf x) { _mm_storeu_ps(p, _mm256_extractf128_ps(x, 1)); }

static inline vf bf16_widen(__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
static inline vf vf_load_bf16(const struct hl_bf16 *p) {
    return bf16_widen(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vf vf_load_part_bf16(const struct hl_bf16 *p, int64_t n) {
    struct hl_bf16 x[8] = {0};
    for (int64_t i = 0; i < n; i++) x[i] = p[i];
    return vf_load_bf16(x);
}
static inline __m128i bf16_narrow(vf x) {
    __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    __m256i bias =
        _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(high, _mm256_set1_epi32(1)));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}
static inline void vf_store_bf16(struct hl_bf16 *p, vf x) {
    _mm_storeu_si128((__m128i *)(void *)p, bf16_narrow(x));
}
static inline void vf_store_part_bf16(struct hl_bf16 *p, vf x, int64_t n) {
    struct hl_bf16 y[8];
    vf_store_bf16(y, x);
    for (int64_t i = 0; i < n; i++) p[i] = y[i];
}

#endif

/* Transpose LANES rows of LANES columns in place. */
#ifdef __AVX512F__
static inline void vf_transpose(vf x[LANES]) {
    vf y[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        vf a = _mm512_unpacklo_ps(x[i], x[i + 1]), b = _mm512_unpackhi_ps(x[i], x[i + 1]);
        vf c = _mm512_unpacklo_ps(x[i + 2], x[i + 3]), d = _mm512_unpackhi_ps(x[i + 2], x[i + 3]);
        y[i] = _mm512_shuffle_ps(a, c, 0x44);
        y[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        y[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        y[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 16
    for (int j = 0; j < 4; j++) {
        vf a = _mm512_shuffle_f32x4(y[j], y[4 + j], 0x88),
           b = _mm512_shuffle_f32x4(y[j], y[4 + j], 0xdd);
        vf c = _mm512_shuffle_f32x4(y[8 + j], y[12 + j], 0x88),
           d = _mm512_shuffle_f32x4(y[8 + j], y[12 + j], 0xdd);
        x[j] = _mm512_shuffle_f32x4(a, c, 0x88);
        x[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
        x[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
        x[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}
#else
static inline void vf_transpose(vf x[LANES]) {
    vf y[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < 8; i += 4) {
        vf a = _mm256_unpacklo_ps(x[i], x[i + 1]), b = _mm256_unpackhi_ps(x[i], x[i + 1]);
        vf c = _mm256_unpacklo_ps(x[i + 2], x[i + 3]), d = _mm256_unpackhi_ps(x[i + 2], x[i + 3]);
        y[i] = _mm256_shuffle_ps(a, c, 0x44);
        y[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        y[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        y[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 16
    for (int j = 0; j < 4; j++) {
        x[j] = _mm256_permute2f128_ps(y[j], y[4 + j], 0x20);
        x[4 + j] = _mm256_permute2f128_ps(y[j], y[4 + j], 0x31);
    }
}
#endif

/* exp to about 1 ulp for -87.3 <= x <= 88; smaller x gives 0 or a denormal, larger a number above
 * 1e38 or infinity; NaN stays. Cody-Waite reduction with ln 2 in two parts, then 1 + r + r^2 q(r)
 * with q interpolated at Chebyshev nodes: relative error below 2^-26 on |r| <= ln(2)/2 before
 * rounding. */
static inline vf vf_exp(vf x) {
    x = vf_min(vf_all(89.0F), vf_max(vf_all(-104.0F), x));
    vf n = vf_round(vf_mul(x, vf_all(0x1.715476p0F)));
    vf r = vf_fma(n, vf_all(-0x1.62ep-1F), x);
    r = vf_fma(n, vf_all(-0x1.0bfbe8p-15F), r);
    vf p = vf_fma(vf_all(0x1.6d113cp-10F), r, vf_all(0x1.120ba2p-7F));
    p = vf_fma(p, r, vf_all(0x1.55551ap-5F));
    p = vf_fma(p, r, vf_all(0x1.5554dcp-3F));
    p = vf_fma(p, r, vf_all(0.5F));
    p = vf_fma(p, r, vf_all(1));
    p = vf_fma(p, r, vf_all(1));
    return vf_scale2(p, n);
}

#endif
