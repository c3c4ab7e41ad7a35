/* Bias, GELU and SwiGLU: every instruction set against the reference, the reference against f64. */
#include "rig.h"

enum { WITH_BIAS = 1, WITH_Y = 2, Y_OVER_DY = 4, ADD = 1 };

/* shape: N, C */

static void bias_add_case(struct rig *r, const int64_t *shape, int variant) {
    (void)variant;
    void *x = rig_t(r, shape[0] * shape[1]);
    r->k->bias_add(shape[0], shape[1], x, rig_t(r, shape[1]));
}

static void bias_bwd_case(struct rig *r, const int64_t *shape, int variant) {
    const void *dy = rig_t(r, shape[0] * shape[1]);
    float *db = rig_f(r, shape[1]);
    r->k->bias_bwd(shape[0], shape[1], dy, db, variant & ADD,
                   rig_scratch(r, hl_norm_scratch(shape[0], shape[1])));
}

static void gelu_fwd_case(struct rig *r, const int64_t *shape, int variant) {
    const void *x = rig_array(r, r->k->dtype, shape[0] * shape[1], 0, 3);
    const void *bias = variant & WITH_BIAS ? rig_t(r, shape[1]) : NULL;
    r->k->gelu_fwd(shape[0], shape[1], x, bias, rig_t(r, shape[0] * shape[1]));
}

static void gelu_bwd_case(struct rig *r, const int64_t *shape, int variant) {
    const void *x = rig_array(r, r->k->dtype, shape[0] * shape[1], 0, 3);
    void *d = rig_t(r, shape[0] * shape[1]);
    const void *bias = variant & WITH_BIAS ? rig_t(r, shape[1]) : NULL;
    r->k->gelu_bwd(shape[0], shape[1], x, bias, d,
                   variant & WITH_Y ? rig_t(r, shape[0] * shape[1]) : NULL);
}

static void swiglu_fwd_case(struct rig *r, const int64_t *shape, int variant) {
    (void)variant;
    const void *gu = rig_array(r, r->k->dtype, 2 * shape[0] * shape[1], 0, 3);
    r->k->swiglu_fwd(shape[0], shape[1], gu, rig_t(r, shape[0] * shape[1]));
}

static void swiglu_bwd_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t n = shape[0] * shape[1];
    const void *gu = rig_array(r, r->k->dtype, 2 * n, 0, 3);
    void *dy = rig_t(r, n), *dgu = rig_t(r, 2 * n), *y = NULL;
    if (variant & Y_OVER_DY) y = dy;
    else if (variant & WITH_Y) y = rig_t(r, n);
    r->k->swiglu_bwd(shape[0], shape[1], gu, dy, dgu, y);
}

static const int64_t shapes[][2] = {{0, 8},  {1, 1},   {3, 2},    {3, 17},
                                    {5, 63}, {64, 65}, {65, 127}, {129, 130}};
static const int64_t large[2] = {193, 260};

static void run_all(rig_case *run, int variant, double absolute, bool same_bits) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rig_run(&(struct rig_plan){run, shapes[i], variant, 1e-5, absolute, same_bits});
    rig_run_teams(&(struct rig_plan){run, large, variant, 0, 0, true});
}

static void test_bias(void **state) {
    (void)state;
    run_all(bias_add_case, 0, 0, true);
    run_all(bias_bwd_case, 0, 0, true);
    run_all(bias_bwd_case, ADD, 0, true);
}

static void test_gelu(void **state) {
    (void)state;
    for (int bias = 0; bias <= WITH_BIAS; bias++) {
        run_all(gelu_fwd_case, bias, 2e-6, false);
        run_all(gelu_bwd_case, bias, 4e-6, false);
        run_all(gelu_bwd_case, bias | WITH_Y, 4e-6, false);
    }
}

static void test_swiglu(void **state) {
    (void)state;
    run_all(swiglu_fwd_case, 0, 2e-6, false);
    run_all(swiglu_bwd_case, 0, 4e-6, false);
    run_all(swiglu_bwd_case, WITH_Y, 4e-6, false);
    run_all(swiglu_bwd_case, Y_OVER_DY, 4e-6, false);
}

static void test_poison(void **state) {
    (void)state;
    const int64_t shape[2] = {3, 21};
    rig_run_poisons(&(struct rig_plan){bias_add_case, shape, 0, 0, 0, false}, 2);
    rig_run_poisons(&(struct rig_plan){bias_bwd_case, shape, ADD, 0, 0, false}, 2);
    rig_run_poisons(&(struct rig_plan){gelu_fwd_case, shape, WITH_BIAS, 1e-5, 2e-6, false}, 2);
    rig_run_poisons(&(struct rig_plan){gelu_bwd_case, shape, WITH_BIAS, 1e-5, 4e-6, false}, 3);
    rig_run_poisons(&(struct rig_plan){swiglu_fwd_case, shape, 0, 1e-5, 2e-6, false}, 1);
    rig_run_poisons(&(struct rig_plan){swiglu_bwd_case, shape, WITH_Y, 1e-5, 4e-6, false}, 2);
}

/* Rows of two chunks: overwritten, then added to. */
static void test_bias_sums(void **state) {
    (void)state;
    enum { ROWS = HL_ROW_CHUNK + 3 };
    float dy[ROWS * 2], db[2] = {NAN, NAN}, scratch[2 * 2 * 2];
    for (int i = 0; i < ROWS; i++) dy[2 * i] = (float)i, dy[2 * i + 1] = 1;
    const struct hl_kernels *k = rig_kernels(HL_ISA_REF, HL_F32);
    assert_int_equal(hl_norm_scratch(ROWS, 2), sizeof scratch / sizeof *scratch);
    k->bias_bwd(ROWS, 2, dy, db, false, scratch);
    assert_true(db[0] == ROWS * (ROWS - 1) / 2 && db[1] == ROWS);
    k->bias_bwd(ROWS, 2, dy, db, true, scratch);
    assert_true(db[0] == ROWS * (ROWS - 1) && db[1] == 2 * ROWS);
}

/* ---- the reference against the definitions in f64, values and slopes ---- */

static double gelu64(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}
static double silu64(double x) { return x / (1 + exp(-x)); }
static double slope(double (*f)(double), double x) { return (f(x + 1e-6) - f(x - 1e-6)) / 2e-6; }

enum { F = 401 };

static void test_gelu_values(void **state) {
    (void)state;
    float x[F], y[F], d[F];
    for (int i = 0; i < F; i++) x[i] = -10 + 0.05f * (float)i, d[i] = 1;
    const struct hl_kernels *k = rig_kernels(HL_ISA_REF, HL_F32);
    k->gelu_fwd(1, F, x, NULL, y);
    k->gelu_bwd(1, F, x, NULL, d, NULL);
    for (int i = 0; i < F; i++) {
        assert_true(fabs((double)y[i] - gelu64((double)x[i])) < 1e-6);
        assert_true(fabs((double)d[i] - slope(gelu64, (double)x[i])) < 1e-6);
    }
}

static void test_swiglu_values(void **state) {
    (void)state;
    float gu[2 * F], y[F], dy[F], dgu[2 * F];
    for (int i = 0; i < F; i++)
        gu[i] = -10 + 0.05f * (float)i, gu[F + i] = rig_random((uint64_t)i), dy[i] = 1;
    const struct hl_kernels *k = rig_kernels(HL_ISA_REF, HL_F32);
    k->swiglu_fwd(1, F, gu, y);
    k->swiglu_bwd(1, F, gu, dy, dgu, NULL);
    for (int i = 0; i < F; i++) {
        const double g = (double)gu[i], u = (double)gu[F + i];
        assert_true(fabs((double)y[i] - silu64(g) * u) < 4e-6);
        assert_true(fabs((double)dgu[i] - slope(silu64, g) * u) < 4e-6);
        assert_true(fabs((double)dgu[F + i] - silu64(g)) < 4e-6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bias_sums),     cmocka_unit_test(test_bias),
        cmocka_unit_test(test_gelu),          cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_poison),        cmocka_unit_test(test_gelu_values),
        cmocka_unit_test(test_swiglu_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
