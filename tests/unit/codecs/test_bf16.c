/* bf16: f32's upper half, and no infinity. */
#include "codec_fixture.h"

static void test_format(void **state) {
    (void)state;
    const struct hl_codec *codec = codec_named("bf16");
    /* 1 + 2^-8 and 1 + 3 2^-8 lie halfway: to the even neighbour */
    const float x[] = {1, -2, 1.00390625f, 1.01171875f, FLT_MAX, -FLT_MAX, -0.0f};
    const uint8_t want[] = {0x80, 0x3f, 0x00, 0xc0, 0x80, 0x3f, 0x82,
                            0x3f, 0x7f, 0x7f, 0x7f, 0xff, 0x00, 0x80};
    codec_expect(codec, 7, x, want, sizeof want);
    assert_int_equal(codec->bytes(0), 0);
    assert_int_equal(codec->bytes(1000001), 2000002);
    assert_int_equal(codec->block, 1);
}

static void test_rounding(void **state) {
    (void)state;
    const struct hl_codec *codec = codec_named("bf16");
    for (uint64_t i = 0; i < CODEC_MANY; i++) {
        const float x = codec_number(CODEC_ANY, i);
        struct hl_bf16 got, want = hl_bf16_from_f32(x);
        if (!isfinite(hl_bf16_to_f32(want))) want.bits--;
        assert_int_equal(codec->encode(1, &x, &got), HL_OK);
        assert_int_equal(got.bits, want.bits);
    }
    assert_true(codec_error(codec) < 4e-6);
}

int main(void) { return codec_main("bf16", test_format, test_rounding); }
