/* Products against the specification: odd shapes, every transpose, wide strides, every pair of types, add. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/products.h"

static void *filled(int64_t n, enum hl_dtype type, uint64_t key) {
    void *x = malloc((size_t)n * hl_dtype_bytes(type) + 1);
    uint64_t state = key;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        float value = (float)(state >> 40) / 0x1p22F - 2; /* uniform in -2..2 */
        if (type == HL_F32) ((float *)x)[i] = value;
        else ((struct hl_bf16 *)x)[i] = hl_bf16_from_f32(value);
    }
    return x;
}

static double value(const void *x, enum hl_dtype type, int64_t i) {
    return type == HL_F32 ? (double)((const float *)x)[i] : (double)hl_bf16_to_f32(((const struct hl_bf16 *)x)[i]);
}

static void check(struct hl_products *products, struct hl_product p, int64_t pad) {
    int64_t rows_a = p.ta ? p.K : p.M, rows_b = p.tb ? p.N : p.K;
    p.lda = (p.ta ? p.M : p.K) + pad + 1;
    p.ldb = (p.tb ? p.K : p.N) + pad + 1;
    p.ldc = p.N + pad;
    p.A = filled(rows_a * p.lda, p.in, 1);
    p.B = filled(rows_b * p.ldb, p.in, 2);
    struct hl_product want = p;
    int64_t n = p.M * p.ldc;
    p.C = filled(n, p.out, 3);
    want.C = filled(n, p.out, 3);
    hl_product_ref(&want);
    struct hl_diag diag = {0};
    assert_int_equal(hl_product_run(products, &p, &diag), HL_OK);
    double tolerance = p.out == HL_BF16 ? 0.01 : 1e-6 * (1 + sqrt((double)p.K) * 3);
    for (int64_t i = 0; i < n; i++) {
        double a = value(p.C, p.out, i), b = value(want.C, p.out, i);
        if (i % p.ldc >= p.N) assert_true(a == b);
        else if (fabs(a - b) > tolerance * (1 + fabs(b))) fail_msg("%lld x %lld x %lld: %g, not %g", (long long)p.M,
                                                                    (long long)p.N, (long long)p.K, a, b);
    }
    free((void *)p.A);
    free((void *)p.B);
    free(p.C);
    free(want.C);
}

static void each_kind(struct hl_products *products, int64_t M, int64_t N, int64_t K, int64_t pad) {
    for (int kind = 0; kind < 20; kind++) {
        struct hl_product p = {.M = M, .N = N, .K = K, .ta = kind & 1, .tb = kind & 2};
        p.add = kind / 4 % 2;
        p.in = kind < 8 ? HL_F32 : HL_BF16;
        p.out = kind < 16 ? HL_F32 : HL_BF16;
        check(products, p, pad);
    }
}

static void test_against_reference(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 3, 17, 63, 65, 129};
    struct hl_diag diag = {0};
    struct hl_products *products = NULL;
    assert_int_equal(hl_products_new(hl_mem_default(), &products, &diag), HL_OK);
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 7; j++)
            for (int k = 0; k < 7; k++) each_kind(products, sizes[i], sizes[j], sizes[k], (i + j + k) % 3 * 5);
    hl_products_free(products);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
