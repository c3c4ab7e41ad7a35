/* dpu on a quadratic is stable for a < 1 only; with a warm-up, its first steps are synchronous. The
 * rule itself is compared with PyTorch's curve in tests/suites. */
#include "support/quadratic.h"

static void test_stability(void **state) {
    const struct quadratic q = {1, 1};
    (void)state;
    assert_true(quadratic_is_stable("dpu", "dpu.warmup_steps=0", 0.95, q));
    assert_false(quadratic_is_stable("dpu", "dpu.warmup_steps=0", 1.05, q));
}

/* x(t+1) = x(t) - a x(t-1), in the very numbers. */
static void test_rule(void **state) {
    struct quadratic q = {1, 1};
    struct drive d;
    float x = 1, before = 1;
    (void)state;
    quadratic_open(&d, "dpu", "dpu.warmup_steps=3", &q, 0.25);
    for (int t = 0; t < 20; t++) {
        float g = t <= 3 ? x : before;
        before = x;
        x -= 0.25f * g;
        drive_step(&d);
        assert_true(quadratic_master(&d) == (double)x);
        assert_int_equal(d.n_run, t < 3 ? t + 1 : t + 2);
    }
    drive_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stability),
                                       cmocka_unit_test(test_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
