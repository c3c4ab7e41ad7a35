/* SGD against its rule: plain, momentum, Nesterov; refusal of Nesterov without momentum. */
#include "optimizer_fixture.h"

static void check_rule(double momentum, bool nesterov) {
    struct rule r;
    rule_init(&r, "sgd");
    r.options.momentum = momentum;
    r.options.nesterov = nesterov;
    double w[ALL], b[ALL];
    for (int i = 0; i < ALL; i++) w[i] = (double)r.master[i];
    for (int64_t step = 1; step <= 5; step++) {
        rule_step(&r, step, 0.05, 0.5f, 0, ALL);
        for (int i = 0; i < ALL; i++) {
            double g = 0.5 * (double)r.grad[i] + (i < MATRIX ? 0.1 * w[i] : 0);
            b[i] = step == 1 ? g : momentum * b[i] + g;
            w[i] -= 0.05 * (nesterov ? g + momentum * b[i] : b[i]);
        }
    }
    for (int i = 0; i < ALL; i++) rule_check_near((double)r.master[i], w[i]);
    rule_free(&r);
}

static void test_rule(void **state) {
    (void)state;
    check_rule(0, false);
    check_rule(0.9, false);
    check_rule(0.9, true);
}

static void test_cuts(void **state) {
    (void)state;
    rule_check_cuts("sgd");
}

static void test_refusal(void **state) {
    (void)state;
    struct rule r;
    struct hl_diag diag;
    rule_init(&r, "sgd");
    r.options.nesterov = true;
    assert_int_equal(r.optimizer->check(&r.options, &diag), HL_OK);
    r.options.momentum = 0;
    assert_int_equal(r.optimizer->check(&r.options, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "momentum"));
    rule_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule), cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_refusal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
