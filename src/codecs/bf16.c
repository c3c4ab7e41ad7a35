/* bf16: the upper half of an f32, to nearest, ties to even. Saturates: what would round to infinity
 * becomes the largest bf16. Nothing is shared, a block is only what a loop takes at a time. */
#include "codecs/bits.h"

enum { BLOCK = 64, SCALE_BYTES = 0, CODE_BITS = 16 };

static HL_INLINE uint32_t narrow(float x) {
    enum { LARGEST = 0x7f7fffff };
    const uint32_t magnitude = hl_bits(x) & 0x7fffffffu;
    uint32_t rounded = magnitude + 0x7fffu + (magnitude >> 16 & 1u);
    rounded = rounded < LARGEST ? rounded : LARGEST;
    return (rounded | (hl_bits(x) & 0x80000000u)) >> 16;
}

static HL_INLINE int32_t encode_block(int64_t n, const float *x, uint8_t *scale, uint8_t *codes) {
    (void)scale;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t code = narrow(x[i]);
        codes[2 * i] = (uint8_t)code;
        codes[2 * i + 1] = (uint8_t)(code >> 8);
    }
    return hl_largest_magnitude(n, x);
}

static HL_INLINE void decode_block(int64_t n, const uint8_t *scale, const uint8_t *codes,
                                   float *y) {
    (void)scale;
    for (int64_t i = 0; i < n; i++)
        y[i] = hl_float((uint32_t)codes[2 * i] << 16 | (uint32_t)codes[2 * i + 1] << 24);
}

#include "codecs/block_codec.h"

const struct hl_codec hl_codec_bf16 = {.name = "bf16",
                                       .summary = "2 bytes: f32's range, 7 bits of mantissa",
                                       .block = 1,
                                       .bytes = bytes,
                                       .encode = encode,
                                       .decode = decode,
                                       .add = add};
