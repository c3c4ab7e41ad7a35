/* Learning-rate curves: values at both ends and at the joints, monotone parts, never above the
 * maximum nor 0 in warm-up, and a pure function of progress, whatever its unit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "halley/optimizer.h"

static const enum hl_curve all[] = {HL_CURVE_CONSTANT, HL_CURVE_LINEAR, HL_CURVE_COSINE,
                                    HL_CURVE_WSD};
enum { N_CURVES = sizeof all / sizeof *all };

/* 100 steps, 10 of warm-up, WSD falls over the last 20. */
static struct hl_schedule_rate usual(enum hl_curve curve) {
    return (struct hl_schedule_rate){.curve = curve,
                                     .learning_rate = 0.5,
                                     .min_lr_ratio = 0.1,
                                     .warmup = 10,
                                     .total = 100,
                                     .decay = 20};
}

static void assert_near(double a, double b) { assert_true(fabs(a - b) < 1e-12); }

static void test_warm_up(void **state) {
    (void)state;
    for (int c = 0; c < N_CURVES; c++) {
        struct hl_schedule_rate r = usual(all[c]);
        assert_near(hl_learning_rate(&r, 0, 1), 0.05); /* a tenth, not 0 */
        assert_near(hl_learning_rate(&r, 4, 1), 0.25);
        assert_true(hl_learning_rate(&r, 9, 1) == 0.5);
        assert_true(hl_learning_rate(&r, 10, 1) == 0.5);
        r.warmup = 0;
        assert_true(hl_learning_rate(&r, 0, 1) == 0.5);
        r.warmup = 0.5; /* shorter than a step */
        assert_true(hl_learning_rate(&r, 0, 1) == 0.5);
    }
}

static void test_values_after_warm_up(void **state) {
    (void)state;
    struct hl_schedule_rate r = usual(HL_CURVE_CONSTANT);
    assert_true(hl_learning_rate(&r, 99, 1) == 0.5);
    r = usual(HL_CURVE_LINEAR);
    assert_near(hl_learning_rate(&r, 55, 1), 0.05 + 0.45 * 0.5);
    assert_near(hl_learning_rate(&r, 99, 1), 0.05 + 0.45 / 90);
    r = usual(HL_CURVE_COSINE);
    assert_near(hl_learning_rate(&r, 55, 1), 0.05 + 0.45 * 0.5);
    assert_near(hl_learning_rate(&r, 40, 1),
                0.05 + 0.45 * 0.75); /* a third: (1 + cos 60 degrees) / 2 */
    r = usual(HL_CURVE_WSD);
    assert_true(hl_learning_rate(&r, 80, 1) == 0.5);
    assert_near(hl_learning_rate(&r, 90, 1), 0.05 + 0.45 * 0.5);
    for (int c = 1; c < N_CURVES; c++) { /* at the end and after it: the floor */
        r = usual(all[c]);
        assert_near(hl_learning_rate(&r, 100, 1), 0.05);
        assert_near(hl_learning_rate(&r, 1e9, 1), 0.05);
        r.min_lr_ratio = 0;
        assert_near(hl_learning_rate(&r, 100, 1), 0);
        r.min_lr_ratio = 1;
        assert_true(hl_learning_rate(&r, 95, 1) == 0.5);
    }
}

/* Up, then never up again, and always within (0, maximum]; for warm-ups and decays of every length.
 */
static void test_shape(void **state) {
    (void)state;
    static const double lengths[] = {0, 1, 7, 50, 99, 100, 101, 1000};
    enum { N = sizeof lengths / sizeof *lengths };
    for (int c = 0; c < N_CURVES; c++)
        for (int i = 0; i < N * N; i++) {
            struct hl_schedule_rate r = usual(all[c]);
            r.warmup = lengths[i / N];
            r.decay = lengths[i % N];
            double before = 0;
            for (int p = 0; p < 100; p++) {
                double rate = hl_learning_rate(&r, p, 1);
                assert_true(rate > 0 && rate <= 0.5);
                assert_true(p < r.warmup ? rate >= before : p == 0 || rate <= before);
                before = rate;
            }
        }
}

/* A decay that is longer than what warm-up leaves begins where warm-up ends, at the maximum. */
static void test_wsd_joins_warm_up(void **state) {
    (void)state;
    struct hl_schedule_rate r = usual(HL_CURVE_WSD);
    r.warmup = 50;
    r.decay = 80;
    assert_true(hl_learning_rate(&r, 50, 1) == 0.5);
    assert_near(hl_learning_rate(&r, 75, 1), 0.05 + 0.45 * 0.5);
}

/* Counted in steps or in tokens, in any order of asking, one step or four at a time: the same
 * curve. */
static void test_pure_function_of_progress(void **state) {
    (void)state;
    for (int c = 0; c < N_CURVES; c++)
        for (int unit = 1; unit <= 4; unit *= 2) {
            struct hl_schedule_rate steps = usual(all[c]), tokens = usual(all[c]);
            tokens.warmup *= unit, tokens.total *= unit, tokens.decay *= unit;
            for (int p = 99; p >= 0; p--)
                assert_true(hl_learning_rate(&tokens, (double)unit * p, unit) ==
                            hl_learning_rate(&steps, p, 1));
            /* bigger steps ask at every unit-th place; after warm-up they get what small steps get
             * there */
            for (int p = 12; p < 100; p += unit)
                assert_true(hl_learning_rate(&steps, p, unit) == hl_learning_rate(&steps, p, 1));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warm_up),
        cmocka_unit_test(test_values_after_warm_up),
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_wsd_joins_warm_up),
        cmocka_unit_test(test_pure_function_of_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
