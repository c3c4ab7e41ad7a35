/* int8: blocks of 128 with a bf16 scale. */
#include "scaled_codec.h"

static void test_format(void **state) {
    (void)state;
    const struct hl_codec *codec = codec_named("int8");
    const float x[] = {127, -127, 1, -2.5f, 0.5f, 0.51f, 1.5f}; /* scale 1; halves to even */
    const uint8_t want[] = {0x80, 0x3f, 127, 129, 1, 254, 0, 1, 2};
    codec_expect(codec, 7, x, want, sizeof want);
    const float none[] = {0x0.ffp-118f, -0.0f}; /* too small for a scale */
    codec_expect(codec, 2, none, (const uint8_t[4]){0}, 4);
    assert_int_equal(codec->bytes(0), 0);
    assert_int_equal(codec->bytes(128), 130);
    assert_int_equal(codec->bytes(129), 133);
    assert_int_equal(codec->block, 128);
}

static void test_rounding(void **state) {
    (void)state;
    scaled_check(codec_named("int8"), 127);
    assert_true(codec_error(codec_named("int8")) < 5e-5);
}

int main(void) { return codec_main("int8", test_format, test_rounding); }
