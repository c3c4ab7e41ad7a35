/* int4: blocks of 64 with a bf16 scale, two codes to a byte. */
#include "scaled_codec.h"

static void test_format(void **state) {
    (void)state;
    const struct hl_codec *codec = codec_named("int4");
    const float x[] = {7, -7, 0.5f, 1.5f, -3.5f, 0.6f, -1}; /* scale 1; halves to even */
    const uint8_t want[] = {0x80, 0x3f, 0x97, 0x20, 0x1c, 0x0f};
    codec_expect(codec, 7, x, want, sizeof want);
    float y[2];
    codec->decode(2, (const uint8_t[]){0x00, 0x40, 0x78}, y); /* scale 2; -8 is never encoded */
    assert_true(y[0] == -16 && y[1] == 14);
    assert_int_equal(codec->bytes(0), 0);
    assert_int_equal(codec->bytes(64), 34);
    assert_int_equal(codec->bytes(65), 4 + 33);
    assert_int_equal(codec->block, 64);
}

static void test_rounding(void **state) {
    (void)state;
    scaled_check(codec_named("int4"), 7);
    const double error = codec_error(codec_named("int4"));
    assert_true(error > 0.011 && error < 0.0122);
}

int main(void) { return codec_main("int4", test_format, test_rounding); }
