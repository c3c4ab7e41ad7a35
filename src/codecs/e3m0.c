/* e3m0: a sign and one of seven powers of two, or 0, below the largest of 128 elements. Streaming
 * DiLoCo (arXiv:2501.18512) sends these four bits; the paper gives no format, this one is ours.
 *
 * A block's scale is one byte e: the exponent of its largest magnitude, rounded to a power of two,
 * as in f32 (bias 127). Code: sign << 3 | c, with c = 0 for 0 and c = 1..7 for 2^(e - 127 - (7 -
 * c)). Below 2^-119 a block is all 0, so that no value is a denormal. */
#include "codecs/bits.h"

enum { BLOCK = 128, SCALE_BYTES = 1, CODE_BITS = 4 };
enum { MOST = 7, LEAST_SCALE = 7, MOST_SCALE = 254, NOT_A_NUMBER = 0x7fc00000 };

/* The exponent of a magnitude, rounded to the nearest power of two, up from 1.5. */
static HL_INLINE int32_t exponent(int32_t magnitude) {
    return (int32_t)(((uint32_t)magnitude + 0x400000u) >> 23);
}

static HL_INLINE int32_t scale_of(int32_t largest) {
    enum { LEAST = (127 - 119) << 23 };
    if (largest < LEAST) return 0;
    const int32_t e = exponent(largest);
    return e < MOST_SCALE ? e : MOST_SCALE;
}

/* least: magnitudes below it are 0, those above at least the smallest power. */
static HL_INLINE uint8_t code_of(float x, int32_t e, int32_t least) {
    const int32_t magnitude = hl_magnitude(x);
    int32_t c = exponent(magnitude) - e + MOST;
    c = c < 1 ? 1 : c;
    c = c > MOST ? MOST : c;
    const uint32_t sign = hl_bits(x) >> 28 & 8;
    return (uint8_t)(magnitude < least ? 0 : (uint32_t)c | sign);
}

static HL_INLINE int32_t encode_block(int64_t n, const float *x, uint8_t *scale, uint8_t *codes) {
    const int32_t largest = hl_largest_magnitude(n, x), e = scale_of(largest);
    const int32_t least = e ? (e - MOST) << 23 : INT32_MAX;
    uint8_t q[BLOCK];
    for (int64_t i = 0; i < n; i++) q[i] = code_of(x[i], e, least);
    hl_nibbles_pack(n, q, codes);
    *scale = (uint8_t)e;
    return largest;
}

static HL_INLINE float value_of(uint32_t code, uint32_t e) {
    const uint32_t c = code & 7, power = (e - MOST + c) << 23;
    return hl_float(c ? power | (code & 8) << 28 : 0);
}

static HL_INLINE void decode_block(int64_t n, const uint8_t *scale, const uint8_t *codes,
                                   float *y) {
    const uint32_t e = *scale;
    const bool valid = e >= LEAST_SCALE && e <= MOST_SCALE;
    uint8_t q[BLOCK];
    hl_nibbles_unpack(n, codes, q);
    if (valid)
        for (int64_t i = 0; i < n; i++) y[i] = value_of(q[i], e);
    else
        for (int64_t i = 0; i < n; i++) y[i] = e ? hl_float(NOT_A_NUMBER) : 0;
}

#include "codecs/block_codec.h"

const struct hl_codec hl_codec_e3m0 = {.name = "e3m0",
                                       .summary = "0.51 bytes: seven powers of two and 0",
                                       .paper = "arXiv:2501.18512",
                                       .block = BLOCK,
                                       .bytes = bytes,
                                       .encode = encode,
                                       .decode = decode,
                                       .add = add};
