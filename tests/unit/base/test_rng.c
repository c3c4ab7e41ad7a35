/* Philox against the published known answers; the permutation is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "halley/rng.h"

/* Random123's kat_vectors for philox4x32 with 10 rounds. */
static void test_known_answers(void **state) {
    (void)state;
    uint32_t zero[4] = {0}, key0[2] = {0}, out[4];
    hl_philox4x32(zero, key0, out);
    const uint32_t want0[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(out, want0, sizeof out);
    uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u}, key1[2] = {~0u, ~0u};
    hl_philox4x32(ones, key1, out);
    const uint32_t want1[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    assert_memory_equal(out, want1, sizeof out);
}

static void test_permutation(void **state) {
    (void)state;
    static unsigned char seen[5000];
    for (uint64_t n = 1; n <= 5000; n = n * 3 + 1)
        for (uint64_t key = 0; key < 3; key++) {
            for (uint64_t i = 0; i < n; i++) seen[i] = 0;
            for (uint64_t i = 0; i < n; i++) {
                uint64_t x = hl_permute(i, n, key);
                assert_true(x < n);
                assert_int_equal(seen[x]++, 0);
                assert_int_equal(hl_permute_back(x, n, key), i);
            }
        }
}

static void test_moments(void **state) {
    (void)state;
    double sum = 0, squares = 0;
    enum { N = 100000 };
    for (uint64_t i = 0; i < N; i++) {
        double x = hl_rng_normal(7, HL_RNG_INIT, i);
        sum += x;
        squares += x * x;
    }
    assert_true(sum / N < 0.02 && sum / N > -0.02);
    assert_true(squares / N < 1.02 && squares / N > 0.98);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_answers),
                                       cmocka_unit_test(test_permutation),
                                       cmocka_unit_test(test_moments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
