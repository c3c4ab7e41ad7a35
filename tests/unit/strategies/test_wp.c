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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stability),
                                       cmocka_unit_test(test_view)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
