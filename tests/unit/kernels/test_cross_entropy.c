/* Softmax and loss: every instruction set against the reference, the reference against f64, odd
 * rows. */
#include "rig.h"

enum { GRAD = 1, NO_TARGETS = 2, LARGE_LOGITS = 4 };

/* shape: R, V, ld. The logits' array holds floats before and T after; it is compared as what it is.
 */
static void cross_entropy_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t R = shape[0], V = shape[1], ld = shape[2];
    float *logits = rig_array(r, HL_F32, R * ld, 0, variant & LARGE_LOGITS ? 60 : 2);
    int32_t target[256];
    assert_true(R <= 256);
    for (int64_t i = 0; i < R; i++)
        target[i] = i % 5 == 3 || variant & NO_TARGETS ? -1 - (int32_t)i : (int32_t)(i * 31 % V);
    float *loss = rig_f(r, R);
    r->k->cross_entropy(R, V, ld, logits, target, loss, variant & GRAD);
    if (!(variant & GRAD)) return;
    struct rig_array *a = &r->arrays[0];
    if (r->k->dtype == HL_BF16) { /* the second half of each row holds what is left of the logits */
        for (int64_t i = 0; i < R; i++)
            memset(a->data + (i * ld + (ld + 1) / 2) * 4, 0, (size_t)(ld / 2) * 4);
        if (ld % 2)
            for (int64_t i = 0; i < R; i++) memset(a->data + i * ld * 4 + ld * 2, 0, 2);
        a->dtype = HL_BF16, a->n *= 2;
    }
    for (int64_t i = 0; i < R; i++)
        for (int64_t v = V; v < ld; v++)
            assert_true(rig_get(a, i * ld * (r->k->dtype == HL_BF16 ? 2 : 1) + v) == 0);
}

static const int64_t shapes[][3] = {{0, 3, 4},       {1, 1, 1},      {2, 2, 3},     {3, 17, 17},
                                    {5, 63, 64},     {4, 65, 80},    {7, 127, 127}, {6, 1023, 1024},
                                    {3, 1025, 1025}, {5, 2111, 2112}};
static const int64_t large[3] = {9, 5000, 5056};

static void run_all(int variant) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rig_run(&(struct rig_plan){cross_entropy_case, shapes[i], variant, 2e-5, 4e-6, false});
    rig_run_teams(&(struct rig_plan){cross_entropy_case, large, variant, 0, 0, true});
}

static void test_every_isa(void **state) {
    (void)state;
    run_all(0);
    run_all(GRAD);
    run_all(GRAD | NO_TARGETS);
    run_all(GRAD | LARGE_LOGITS);
}

static void test_poison(void **state) {
    (void)state;
    const int64_t shape[3] = {2, 2111, 2112};
    for (int64_t at = 0; at < 4 * 2112; at += 1027)
        for (int i = 0; i < 3; i++)
            rig_run_poisoned(&(struct rig_plan){cross_entropy_case, shape, GRAD, 2e-5, 4e-6, false},
                             0, at % (2 * 2112), (float[]){NAN, INFINITY, -INFINITY}[i]);
}

/* All logits of a row -inf: nothing can be said, and NaN says so. Some -inf: probability 0. */
static void test_minus_infinity(void **state) {
    (void)state;
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *k = rig_kernels((enum hl_isa)isa, HL_F32);
        if (!k) continue;
        enum { V = 40 };
        float z[2 * V], loss[2];
        const int32_t target[2] = {1, 1};
        for (int i = 0; i < 2 * V; i++) z[i] = -INFINITY;
        z[V + 1] = 1, z[V + 2] = 1;
        k->cross_entropy(2, V, V, z, target, loss, true);
        assert_true(isnan(loss[0]) && isnan(z[0]));
        assert_true(fabsf(loss[1] - 0.6931472f) < 1e-6f);
        assert_true(z[V] == 0 && fabsf(z[V + 1] + 0.5f) < 1e-6f && fabsf(z[V + 2] - 0.5f) < 1e-6f);
    }
}

/* Loss from the definition in f64, gradient by differences of it. */
static double loss64(int V, const double *z, int target) {
    double sum = 0;
    for (int i = 0; i < V; i++) sum += exp(z[i] - z[target]);
    return log(sum);
}

static void test_slopes(void **state) {
    (void)state;
    enum { V = 11, TARGET = 4 };
    float z[V], loss;
    double z64[V];
    for (int i = 0; i < V; i++) z64[i] = (double)(z[i] = 2 * rig_random((uint64_t)i));
    rig_kernels(HL_ISA_REF, HL_F32)->cross_entropy(1, V, V, z, &(int32_t){TARGET}, &loss, true);
    assert_true(fabs((double)loss - loss64(V, z64, TARGET)) < 1e-6);
    for (int i = 0; i < V; i++) {
        const double old = z64[i], step = 1e-5;
        z64[i] = old + step;
        const double up = loss64(V, z64, TARGET);
        z64[i] = old - step;
        const double down = loss64(V, z64, TARGET);
        z64[i] = old;
        assert_true(fabs((double)z[i] - (up - down) / (2 * step)) < 1e-6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_isa), cmocka_unit_test(test_poison),
        cmocka_unit_test(test_minus_infinity), cmocka_unit_test(test_slopes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
