/* AdamW against its rule in f64; decay on matrices only; cuts change no bits; the second moment of
 * a constant gradient converges to its square. */
#include "optimizer_fixture.h"

static void test_rule(void **state) {
    (void)state;
    struct rule r;
    rule_init(&r, "adamw");
    double w[ALL], m[ALL] = {0}, v[ALL] = {0};
    for (int i = 0; i < ALL; i++) w[i] = (double)r.master[i];
    for (int64_t step = 1; step <= 10; step++) {
        rule_step(&r, step, 0.02, 0.25f, 0, ALL);
        for (int i = 0; i < ALL; i++) {
            double g = 0.25 * (double)r.grad[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            if (i < MATRIX) w[i] *= 1 - 0.02 * 0.1;
            w[i] -= 0.02 * (m[i] / (1 - pow(0.9, (double)step))) /
                    (sqrt(v[i] / (1 - pow(0.95, (double)step))) + 1e-8);
        }
    }
    for (int i = 0; i < ALL; i++) {
        assert_true(fabs((double)r.master[i] - w[i]) < 2e-6 * (1 + fabs(w[i])));
        assert_int_equal(r.copy[i].bits, hl_bf16_from_f32(r.master[i]).bits);
    }
    rule_free(&r);
}

static void test_constant_gradient(void **state) {
    (void)state;
    struct rule r;
    rule_init(&r, "adamw");
    r.options.adam_beta2 = 0.999;
    for (int64_t step = 1; step <= 20000; step++) rule_step(&r, step, 1e-6, 1.0f, 0, ALL);
    for (int i = 0; i < ALL; i++) {
        double square = (double)r.grad[i] * (double)r.grad[i];
        assert_true(fabs((double)r.slots[1][i] - square) < 1e-3 * square);
    }
    rule_free(&r);
}

/* 1 - beta is formed in f64: 1 - 0.999f would be wrong by 1.3e-5. */
static void test_first_moments(void **state) {
    (void)state;
    struct rule r;
    rule_init(&r, "adamw");
    r.options.adam_beta1 = r.options.adam_beta2 = 0.999;
    rule_step(&r, 1, 1e-6, 1.0f, 0, ALL);
    for (int i = 0; i < ALL; i++) {
        double g = (double)r.grad[i];
        assert_true(fabs((double)r.slots[0][i] - 0.001 * g) < 3e-7 * 0.001 * fabs(g));
        assert_true(fabs((double)r.slots[1][i] - 0.001 * g * g) < 3e-7 * 0.001 * g * g);
    }
    rule_free(&r);
}

static void test_cuts(void **state) {
    (void)state;
    rule_check_cuts("adamw");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule), cmocka_unit_test(test_constant_gradient),
        cmocka_unit_test(test_first_moments), cmocka_unit_test(test_cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
