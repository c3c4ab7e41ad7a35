/* Bits of f32, scales and nibbles: what codecs of blocks have in common. All of it is integer
 * arithmetic, or f32 arithmetic that meets no denormals, so flush-to-zero changes nothing. */
#ifndef HALLEY_CODECS_BITS_H
#define HALLEY_CODECS_BITS_H

#include "halley/kernels.h"

/* Into functions of every instruction set, and without optimisation too. */
#define HL_INLINE inline __attribute__((always_inline))

enum { HL_BITS_INFINITY = 0x7f800000 };

static HL_INLINE uint32_t hl_bits(float x) {
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    return v.u;
}

static HL_INLINE float hl_float(uint32_t bits) {
    union {
        uint32_t u;
        float f;
    } v = {.u = bits};
    return v.f;
}

/* |x| as an integer: the same order, infinity above all numbers, NaN above infinity. */
static HL_INLINE int32_t hl_magnitude(float x) { return (int32_t)(hl_bits(x) & 0x7fffffffu); }

static HL_INLINE int32_t hl_largest_magnitude(int64_t n, const float *x) {
    int32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t magnitude = hl_magnitude(x[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* ---- a bf16 scale, for whole codes -steps .. steps ---- */

/* The scale of a block, as bits of bf16: its largest magnitude / steps, to nearest; 0, and so all
 * codes 0, below 2^-118, where codes would depend on flush-to-zero. Seven bits of mantissa make
 * code times scale exact, and rounding to nearest keeps every quotient below steps + 1/2 and every
 * product finite, for steps 7 and 127. */
static HL_INLINE uint16_t hl_scale_bits(int32_t largest, float steps) {
    enum { LEAST = (127 - 118) << 23 };
    if (largest < LEAST || largest >= HL_BITS_INFINITY) return 0;
    return hl_bf16_from_f32(hl_float((uint32_t)largest) / steps).bits;
}

static HL_INLINE void hl_scale_store(uint8_t *scale, uint16_t bits) {
    scale[0] = (uint8_t)bits;
    scale[1] = (uint8_t)(bits >> 8);
}

static HL_INLINE float hl_scale_load(const uint8_t *scale) {
    return hl_float((uint32_t)scale[1] << 24 | (uint32_t)scale[0] << 16);
}

/* The whole number nearest to x, ties to even, for |x| < 2^22: its low bits, two's complement. */
static HL_INLINE uint32_t hl_round_bits(float x) { return hl_bits(x + 12582912.0f); }

/* ---- two codes of four bits to a byte, the earlier one in the low half ---- */

/* q_n codes 0..15; where n is odd the last high half is 0. */
static HL_INLINE void hl_nibbles_pack(int64_t n, const uint8_t *q_n, uint8_t *out) {
    for (int64_t i = 0; i < n / 2; i++) out[i] = (uint8_t)(q_n[2 * i] | q_n[2 * i + 1] << 4);
    if (n % 2) out[n / 2] = q_n[n - 1];
}

static HL_INLINE void hl_nibbles_unpack(int64_t n, const uint8_t *in, uint8_t *q_n) {
    for (int64_t i = 0; i < n / 2; i++) {
        q_n[2 * i] = in[i] & 15;
        q_n[2 * i + 1] = (uint8_t)(in[i] >> 4);
    }
    if (n % 2) q_n[n - 1] = in[n / 2] & 15;
}

#endif
