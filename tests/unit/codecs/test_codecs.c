/* Codecs by name. */
#include "codec_fixture.h"

static void test_names(void **state) {
    (void)state;
    const struct hl_codec *found = NULL;
    struct hl_diag diag = {0};
    int n = 0;
    for (const struct hl_codec *const *c = hl_codecs(); *c; c++, n++) {
        assert_int_equal(hl_codec_find((*c)->name, &found, &diag), HL_OK);
        assert_ptr_equal(found, *c);
        assert_true(found->summary && found->block >= 1);
    }
    assert_true(n >= 4);
    assert_int_equal(hl_codec_find("int9", &found, &diag), HL_E_USER);
    assert_string_equal(diag.text,
                        "unknown codec 'int9'; did you mean int8; 'halley help codecs' lists them");
    assert_int_equal(hl_codec_find("zstandard", &found, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "no name is near"));
}

/* What rounding takes from small numbers beside large ones arrives in the end. */
static void test_feedback_sends_small_numbers(void **state) {
    (void)state;
    const struct hl_codec *codec = codec_named("int4");
    const float input[2] = {7, 0.25f};
    float residual[2] = {0}, sent[2], plain[2];
    double sum = 0;
    uint8_t codes[8];
    assert_int_equal(codec->encode(2, input, codes), HL_OK);
    codec->decode(2, codes, plain);
    assert_true(plain[1] == 0);
    for (int round = 0; round < 100; round++) {
        assert_int_equal(hl_codec_feedback(codec, 2, input, residual, codes), HL_OK);
        codec->decode(2, codes, sent);
        sum += (double)sent[1];
    }
    assert_true(fabs(sum - 25) <= 0.5);
    assert_int_equal(hl_codec_feedback(codec, 0, input, residual, codes), HL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_feedback_sends_small_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
