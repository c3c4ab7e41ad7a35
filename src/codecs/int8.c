/* int8: whole numbers -127..127 times a scale for 128 elements, symmetric around 0. */
#include "codecs/bits.h"

enum { BLOCK = 128, SCALE_BYTES = 2, CODE_BITS = 8, STEPS = 127 };

static HL_INLINE int32_t encode_block(int64_t n, const float *x, uint8_t *scale, uint8_t *codes) {
    const int32_t largest = hl_largest_magnitude(n, x);
    hl_scale_store(scale, hl_scale_bits(largest, STEPS));
    const float step = hl_scale_load(scale), per_step = step > 0 ? 1 / step : 0;
    for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)hl_round_bits(x[i] * per_step);
    return largest;
}

static HL_INLINE void decode_block(int64_t n, const uint8_t *scale, const uint8_t *codes,
                                   float *y) {
    const float step = hl_scale_load(scale);
    for (int64_t i = 0; i < n; i++) y[i] = (float)(int8_t)codes[i] * step;
}

#include "codecs/block_codec.h"

const struct hl_codec hl_codec_int8 = {.name = "int8",
                                       .summary = "1.02 bytes: 255 levels, a scale for 128",
                                       .block = BLOCK,
                                       .bytes = bytes,
                                       .encode = encode,
                                       .decode = decode,
                                       .add = add};
