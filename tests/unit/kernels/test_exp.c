/* The vectorised exp against libm in f64, over all floats by a stride that meets every exponent,
 * and at the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "halley/kernels.h"

#if defined(__x86_64__)
#include "kernels/x86/exp.h"

typedef void exp_array(int64_t n, const float *x, float *y);

static bool has(enum hl_isa isa) {
    const struct hl_kernels *k;
    return hl_kernels_of(isa, HL_F32, &k, NULL) == HL_OK;
}

/* Distance in units in the last place of the exact result; below FLT_MIN in units of the smallest
 * denormal. */
static double ulps(float got, double exact) {
    const double unit = fmax(ldexp(1, ilogb(exact) - 23), ldexp(1, -149));
    return fabs((double)got - exact) / unit;
}

static double worst(exp_array *f) {
    enum { BATCH = 4096 };
    float x[BATCH], y[BATCH];
    double most = 0;
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
        int n = 0;
        for (; n < BATCH && bits <= UINT32_MAX; bits += 1009) {
            const uint32_t low = (uint32_t)bits;
            memcpy(&x[n], &low, sizeof low);
            if (fabsf(x[n]) <= 104) n++;
        }
        f(n, x, y);
        for (int i = 0; i < n; i++) {
            const double exact = exp((double)x[i]);
            if (exact > (double)FLT_MAX) assert_true(y[i] > FLT_MAX);
            else most = fmax(most, ulps(y[i], exact));
        }
    }
    return most;
}

static void check(exp_array *f, const char *name) {
    const double most = worst(f);
    print_message("%s: largest error %.3f ulp\n", name, most);
    assert_true(most < 1.01);
    const float x[] = {0,     -0.0f,  NAN,         INFINITY, -INFINITY, 88,  -88,
                       1e30f, -1e30f, FLT_MIN / 4, 88.73f,   -103.9f,   -104};
    float y[sizeof x / sizeof *x];
    f(sizeof x / sizeof *x, x, y);
    assert_true(y[0] == 1 && y[1] == 1);
    assert_true(isnan(y[2]));
    assert_true(isinf(y[3]) && y[4] == 0);
    assert_true(ulps(y[5], exp(88)) < 1.01 && ulps(y[6], exp(-88)) < 1.01);
    assert_true(isinf(y[7]) && y[8] == 0 && y[9] == 1);
    assert_true(isinf(y[10]) && y[11] > 0 && y[12] == 0);
}

static void test_avx2(void **state) {
    (void)state;
    if (!has(HL_ISA_AVX2)) skip();
    check(hl_exp_avx2, "avx2");
}

static void test_avx512(void **state) {
    (void)state;
    if (!has(HL_ISA_AVX512)) skip();
    check(hl_exp_avx512, "avx512");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_avx2), cmocka_unit_test(test_avx512)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) { puts("SKIP: no x86 processor"); }
#endif
