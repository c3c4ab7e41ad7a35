/* int4: whole numbers -7..7 times a scale for 64 elements, symmetric around 0. */
#include "codecs/bits.h"

enum { BLOCK = 64, SCALE_BYTES = 2, CODE_BITS = 4, STEPS = 7 };

static HL_INLINE int32_t encode_block(int64_t n, const float *x, uint8_t *scale, uint8_t *codes) {
    const int32_t largest = hl_largest_magnitude(n, x);
    hl_scale_store(scale, hl_scale_bits(largest, STEPS));
    const float step = hl_scale_load(scale), per_step = step > 0 ? 1 / step : 0;
    uint8_t q[BLOCK];
    for (int64_t i = 0; i < n; i++) q[i] = hl_round_bits(x[i] * per_step) & 15;
    hl_nibbles_pack(n, q, codes);
    return largest;
}

static HL_INLINE void decode_block(int64_t n, const uint8_t *scale, const uint8_t *codes,
                                   float *y) {
    const float step = hl_scale_load(scale);
    uint8_t q[BLOCK];
    hl_nibbles_unpack(n, codes, q);
    for (int64_t i = 0; i < n; i++) y[i] = (float)((q[i] ^ 8) - 8) * step;
}

#include "codecs/block_codec.h"

const struct hl_codec hl_codec_int4 = {.name = "int4",
                                       .summary = "0.53 bytes: 15 levels, a scale for 64",
                                       .block = BLOCK,
                                       .bytes = bytes,
                                       .encode = encode,
                                       .decode = decode,
                                       .add = add};
