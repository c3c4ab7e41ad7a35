/* wp on a quadratic is stable for a < .618 only. The rule itself is compared with PyTorch's curve
 * in tests/suites. */
#include "support/quadratic.h"

static void test_stability(void **state) {
    const struct quadratic q = {1, 1};
    (void)state;
    assert_true(quadratic_is_stable("wp", "wp.warmup_steps=0", 0.60, q));
    assert_false(quadratic_is_stable("wp", "wp.warmup_steps=0", 0.64, q));
}

/* Evaluation sees committed weights, compute the guess. */
static void test_view(void **state) {
    struct quadratic q = {1, 1};
    struct drive d;
    float seen;
    (void)state;
    quadratic_open(&d, "wp", "wp.warmup_steps=0", &q, 0.25);
    for (int t = 0; t < 5; t++) {
        drive_step(&d);
        drive_weights(&d, &seen);
        assert_true((double)seen < quadratic_master(&d)); /* further down */
        drive_view(&d, true);
        drive_weights(&d, &seen);
        assert_true((double)seen == quadratic_master(&d));
    }
    drive_close(&d);
}

/* Warm-up is gradient descent; guesses begin after it, at a gradient that was made twice at the
 * same weights. */
static void test_warm_up_is_synchronous(void **state) {
    struct quadratic q = {1, 1};
    struct drive d;
    double x = 1;
    (void)state;
    quadratic_open(&d, "wp", "wp.warmup_steps=3", &q, 0.25);
    for (int t = 0; t < 5; t++) {
        drive_step(&d);
        x *= t < 4 ? 0.75 : 1;
        if (t == 4) x -= 0.25 * (x / 0.75);
        assert_true(fabs(quadratic_master(&d) - x) < 1e-6);
    }
    drive_close(&d);
}

/* Of an odd number of bf16 weights the last one is saved, too. */
static void test_saved_bf16(void **state) {
    struct quadratic q = {1, 1};
    struct drive d = {.n_blocks = 1,
                      .n = 1,
                      .optimizer = "sgd",
                      .learning_rate = 0.25,
                      .gradient = quadratic_gradient,
                      .context = &q};
    (void)state;
    drive_open(&d, "wp", NULL, HL_BF16, NULL);
    assert_int_equal(drive_saved(&d, "weights_in_work").n, 1);
    drive_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stability), cmocka_unit_test(test_view),
        cmocka_unit_test(test_warm_up_is_synchronous), cmocka_unit_test(test_saved_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
