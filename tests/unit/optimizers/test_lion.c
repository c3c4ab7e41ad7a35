/* Lion against its rule; every step has the size of the rate. */
#include "optimizer_fixture.h"

static void test_rule(void **state) {
    (void)state;
    struct rule r;
    rule_init(&r, "lion");
    double w[ALL], m[ALL] = {0};
    for (int i = 0; i < ALL; i++) w[i] = (double)r.master[i];
    for (int64_t step = 1; step <= 6; step++) {
        r.grad[step] = -r.grad[step];
        rule_step(&r, step, 0.01, 2.0f, 0, ALL);
        for (int i = 0; i < ALL; i++) {
            double g = 2 * (double)r.grad[i], direction = 0.9 * m[i] + 0.1 * g;
            if (i < MATRIX) w[i] *= 1 - 0.01 * 0.1;
            w[i] -= 0.01 * (double)((direction > 0) - (direction < 0));
            m[i] = 0.99 * m[i] + 0.01 * g;
        }
    }
    for (int i = 0; i < ALL; i++) rule_check_near((double)r.master[i], w[i]);
    rule_free(&r);
}

static void test_cuts(void **state) {
    (void)state;
    rule_check_cuts("lion");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule), cmocka_unit_test(test_cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
