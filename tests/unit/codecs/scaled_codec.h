/* Every element of a codec with a bf16 scale for a block is the nearest multiple of that scale. */
#ifndef HALLEY_TESTS_SCALED_CODEC_H
#define HALLEY_TESTS_SCALED_CODEC_H

#include "codec_fixture.h"

static inline void scaled_check_block(int64_t n, const float *x, const float *y, double step,
                                      int steps) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)x[i]));
    if (largest < 0x1p-118) assert_true(step == 0);
    else assert_true(fabs(step - largest / steps) <= 0x1p-8 * step);
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)x[i], b = (double)y[i];
        if (step == 0) assert_true(b == 0);
        else if (fabs(a - b) > 0.5 * step * (1 + 0x1p-14) || fabs(b) > steps * step ||
                 fmod(b, step) != 0)
            fail_msg("%a became %a, scale %a", a, b, step);
    }
}

static inline void scaled_check(const struct hl_codec *codec, int steps) {
    enum { N = 20001 };
    static float y[N];
    static uint8_t codes[2 * N];
    for (int kind = 0; kind < CODEC_N_NUMBERS; kind++) {
        float *x = codec_numbers((enum codec_numbers)kind, N, 3);
        assert_true(codec->bytes(N) <= sizeof codes);
        assert_int_equal(codec->encode(N, x, codes), HL_OK);
        codec->decode(N, codes, y);
        for (int64_t i = 0; i < N; i += codec->block) {
            const uint8_t *scale = codes + i / codec->block * 2;
            const float step =
                hl_bf16_to_f32((struct hl_bf16){(uint16_t)(scale[0] | scale[1] << 8)});
            const int64_t n = N - i < codec->block ? N - i : codec->block;
            scaled_check_block(n, x + i, y + i, (double)step, steps);
        }
        free(x);
    }
}

#endif
