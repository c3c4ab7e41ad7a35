/* e3m0: blocks of 128, a byte for the exponent, two codes to a byte. */
#include "codec_fixture.h"

static void test_format(void **state) {
    (void)state;
    const struct hl_codec *codec = codec_named("e3m0");
    /* largest 1: powers 1 .. 2^-6; midpoints away from zero; 0 below 2^-7 */
    const float x[] = {1, -0.5f, 0.75f, 0.7499f, 0x1p-6f, -0x1p-7f, 0x0.ffp-7f, -0.0f, -0.375f};
    const uint8_t want[] = {127, 0xe7, 0x67, 0x91, 0x00, 0x0e};
    codec_expect(codec, 9, x, want, sizeof want);
    codec_expect(codec, 2, (const float[]){1.5f, 1.49f}, (const uint8_t[]){128, 0x67}, 2);
    codec_expect(codec, 1, (const float[]){-FLT_MAX}, (const uint8_t[]){254, 0x0f}, 2);
    codec_expect(codec, 1, (const float[]){0x0.ffp-119f}, (const uint8_t[]){0, 0}, 2);
    codec_expect(codec, 1, (const float[]){0x1p-119f}, (const uint8_t[]){8, 7}, 2);
    assert_int_equal(codec->bytes(0), 0);
    assert_int_equal(codec->bytes(128), 65);
    assert_int_equal(codec->bytes(129), 2 + 65);
    assert_int_equal(codec->block, 128);
}

static void test_any_scale(void **state) {
    (void)state;
    const struct hl_codec *codec = codec_named("e3m0");
    for (int e = 0; e < 256; e++)
        for (int code = 0; code < 16; code++) {
            float y;
            codec->decode(1, (const uint8_t[]){(uint8_t)e, (uint8_t)code}, &y);
            const float value = ldexpf(code & 8 ? -1 : 1, e - 127 - 7 + (code & 7));
            if (e == 0 || (e >= 7 && e <= 254 && code % 8 == 0)) assert_true(y == 0);
            else if (e < 7 || e > 254) assert_true(isnan(y));
            else assert_true(y == value);
        }
}

/* The best of all fifteen values, the larger one at midpoints. */
static double nearest(double x, double top) {
    double best = 0;
    for (int c = 1; c <= 7; c++) {
        const double value = copysign(ldexp(top, c - 7), x);
        if (fabs(x - value) <= fabs(x - best)) best = value;
    }
    return best;
}

static void check_block(int64_t n, const float *x, const float *y) {
    double largest = 0, top = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)x[i]));
    if (largest >= 0x1p-119) {
        top = ldexp(1, ilogb(largest));
        if (largest >= 1.5 * top && top < 0x1p127) top *= 2;
    }
    for (int64_t i = 0; i < n; i++)
        if ((double)y[i] != nearest((double)x[i], top))
            fail_msg("%a became %a below %a", (double)x[i], (double)y[i], top);
}

static void test_rounding(void **state) {
    enum { N = 20001 };
    const struct hl_codec *codec = codec_named("e3m0");
    static float y[N];
    static uint8_t codes[N];
    test_any_scale(state);
    for (int kind = 0; kind < CODEC_N_NUMBERS; kind++) {
        float *x = codec_numbers((enum codec_numbers)kind, N, 3);
        assert_int_equal(codec->encode(N, x, codes), HL_OK);
        codec->decode(N, codes, y);
        for (int64_t i = 0; i < N; i += 128) check_block(N - i < 128 ? N - i : 128, x + i, y + i);
        free(x);
    }
    const double error = codec_error(codec);
    assert_true(error > 0.036 && error < 0.039);
}

int main(void) { return codec_main("e3m0", test_format, test_rounding); }
