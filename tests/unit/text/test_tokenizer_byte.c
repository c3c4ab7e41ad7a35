/* The byte tokenizer: any bytes in, the same bytes out, specials only when asked for; each
 * allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "halley/data.h"

enum { END = 256 };

static struct hl_tokenizer *byte_tokenizer(void) {
    struct hl_tokenizer *t = NULL;
    assert_int_equal(hl_tokenizer_open(hl_mem_default(), "byte", &t, NULL), HL_OK);
    return t;
}

static void test_facts(void **state) {
    (void)state;
    struct hl_tokenizer *t = byte_tokenizer();
    assert_int_equal(hl_tokenizer_vocab_size(t), 257);
    assert_int_equal(hl_tokenizer_eos(t), END);
    assert_int_equal(hl_tokenizer_bos(t), END);
    struct hl_tokenizer *again = byte_tokenizer();
    assert_true(hl_tokenizer_hash(t) == hl_tokenizer_hash(again));
    hl_tokenizer_free(again);
    hl_tokenizer_free(t);
}

static void check_round_trip(const struct hl_tokenizer *t, const char *text, size_t n) {
    struct hl_tokens tokens = {.mem = hl_mem_default()};
    struct hl_buf back = {.mem = hl_mem_default()};
    assert_int_equal(hl_tokenizer_encode(t, text, n, true, &tokens, NULL), HL_OK);
    assert_int_equal(tokens.n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(tokens.ids[i], (unsigned char)text[i]);
    assert_int_equal(hl_tokenizer_decode(t, tokens.ids, tokens.n, false, &back, NULL), HL_OK);
    assert_int_equal(back.n, n);
    if (n) assert_memory_equal(back.data, text, n);
    hl_tokens_free(&tokens);
    hl_buf_free(&back);
}

static void test_any_bytes(void **state) {
    (void)state;
    struct hl_tokenizer *t = byte_tokenizer();
    char text[1000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7 + i / 256);
    const size_t sizes[] = {0, 1, 3, 17, 63, 65, 257, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_round_trip(t, text, sizes[i]);
    check_round_trip(t, "\xFF\xFE\0\xC0", 4);
    check_round_trip(t, "<|endoftext", 11);
    hl_tokenizer_free(t);
}

static void test_specials(void **state) {
    (void)state;
    struct hl_tokenizer *t = byte_tokenizer();
    struct hl_tokens tokens = {.mem = hl_mem_default()};
    const char text[] = "a<|endoftext|><|endoftext|>b<|";
    assert_int_equal(hl_tokenizer_encode(t, text, sizeof text - 1, true, &tokens, NULL), HL_OK);
    const int32_t want[] = {'a', END, END, 'b', '<', '|'};
    assert_int_equal(tokens.n, 6);
    assert_memory_equal(tokens.ids, want, sizeof want);

    struct hl_buf out = {.mem = hl_mem_default()};
    assert_int_equal(hl_tokenizer_decode(t, tokens.ids, tokens.n, true, &out, NULL), HL_OK);
    assert_string_equal(out.data, text);
    out.n = 0;
    assert_int_equal(hl_tokenizer_decode(t, tokens.ids, tokens.n, false, &out, NULL), HL_OK);
    assert_string_equal(out.data, "ab<|");

    assert_int_equal(hl_tokenizer_encode(t, text, sizeof text - 1, false, &tokens, NULL), HL_OK);
    assert_int_equal(tokens.n, 6 + sizeof text - 1);
    hl_tokens_free(&tokens);
    hl_buf_free(&out);
    hl_tokenizer_free(t);
}

static void test_ids_out_of_range(void **state) {
    (void)state;
    struct hl_tokenizer *t = byte_tokenizer();
    struct hl_buf out = {.mem = hl_mem_default()};
    struct hl_diag diag;
    const int32_t bad[][2] = {{65, 257}, {65, -1}, {65, INT32_MAX}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(hl_tokenizer_decode(t, bad[i], 2, true, &out, &diag), HL_E_USER);
        assert_non_null(strstr(diag.text, "vocabulary of 257"));
        assert_int_equal(out.n, 0);
    }
    hl_buf_free(&out);
    hl_tokenizer_free(t);
}

static enum hl_status whole_life(struct hl_mem *mem) {
    struct hl_tokenizer *t = NULL;
    struct hl_tokens tokens = {.mem = mem};
    struct hl_buf text = {.mem = mem};
    enum hl_status status = hl_tokenizer_byte(mem, &t, NULL);
    if (status == HL_OK)
        status = hl_tokenizer_encode(t, "one<|endoftext|>two", 19, true, &tokens, NULL);
    if (status == HL_OK) status = hl_tokenizer_decode(t, tokens.ids, tokens.n, true, &text, NULL);
    if (status == HL_OK) status = hl_tokenizer_to_json(t, &text, NULL);
    hl_tokens_free(&tokens);
    hl_buf_free(&text);
    if (t) hl_tokenizer_free(t);
    return status;
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    struct hl_mem_probe probe;
    hl_mem_probe_init(&probe, 0);
    assert_int_equal(whole_life(&probe.mem), HL_OK);
    assert_int_equal(probe.n_live, 0);
    long n = probe.n_taken;
    assert_true(n > 8);
    for (long k = 1; k <= n; k++) {
        hl_mem_probe_init(&probe, k);
        assert_int_equal(whole_life(&probe.mem), HL_E_MEMORY);
        assert_int_equal(probe.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_specials),
        cmocka_unit_test(test_ids_out_of_range),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
