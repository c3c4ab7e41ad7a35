/* Products against the specification, for each engine and instruction set: odd shapes, every
 * transpose, wide strides, every pair of types, add; the same bits for every team; failing
 * allocations; no allocation in a steady step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/products.h"

enum { KINDS = 20 }; /* transposes x (f32 add or not, bf16 to f32 add or not, bf16 to bf16) */

static struct hl_product kind_of(int kind, int64_t M, int64_t N, int64_t K, int64_t pad) {
    struct hl_product p = {.M = M, .N = N, .K = K, .ta = kind & 1, .tb = kind & 2};
    p.add = kind / 4 % 2;
    p.in = kind < 8 ? HL_F32 : HL_BF16;
    p.out = kind < 16 ? HL_F32 : HL_BF16;
    p.lda = (p.ta ? M : K) + pad + 1;
    p.ldb = (p.tb ? K : N) + pad + 1;
    p.ldc = N + pad + !N;
    return p;
}

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

static void fill(struct hl_product *p) {
    p->A = filled((p->ta ? p->K : p->M) * p->lda, p->in, 1);
    p->B = filled((p->tb ? p->N : p->K) * p->ldb, p->in, 2);
    p->C = filled(p->M * p->ldc, p->out, 3);
}

static void release(struct hl_product *p) {
    free((void *)(uintptr_t)p->A);
    free((void *)(uintptr_t)p->B);
    free(p->C);
}

static double value(const void *x, enum hl_dtype type, int64_t i) {
    return type == HL_F32 ? (double)((const float *)x)[i]
                          : (double)hl_bf16_to_f32(((const struct hl_bf16 *)x)[i]);
}

static void check(struct hl_products *products, int kind, int64_t M, int64_t N, int64_t K,
                  int64_t pad) {
    struct hl_product p = kind_of(kind, M, N, K, pad), want;
    fill(&p);
    want = p;
    want.C = filled(p.M * p.ldc, p.out, 3);
    hl_product_ref(&want);
    struct hl_diag diag = {0};
    if (hl_product_run(products, &p, &diag)) fail_msg("%s", diag.text);
    double tolerance = p.out == HL_BF16 ? 0.01 : 2e-6 * (1 + sqrt((double)K) * 3);
    for (int64_t i = 0; i < M * p.ldc; i++) {
        double a = value(p.C, p.out, i), b = value(want.C, p.out, i);
        if (i % p.ldc >= N) assert_true(a == b);
        else if (!(fabs(a - b) <= tolerance * (1 + fabs(b))))
            fail_msg("kind %d, %lld x %lld x %lld, %lld: %g, not %g", kind, (long long)M,
                     (long long)N, (long long)K, (long long)i, a, b);
    }
    free(want.C);
    release(&p);
}

/* NULL when this processor lacks the instruction set. */
static struct hl_products *products_of(const char *engine, const char *isa, struct hl_mem *mem) {
    struct hl_products *products = NULL;
    struct hl_diag diag = {0};
    const struct hl_kernels *table;
    assert_int_equal(setenv("HALLEY_PRODUCTS", engine, 1) | setenv("HALLEY_ISA", isa, 1), 0);
    if (hl_kernels_get(HL_F32, &table, &diag)) {
        print_message("SKIP: %s\n", diag.text);
    } else if (hl_products_new(mem, &products, &diag)) fail_msg("%s", diag.text);
    (void)unsetenv("HALLEY_PRODUCTS");
    (void)unsetenv("HALLEY_ISA");
    return products;
}

static void check_engine(const char *engine, const char *isa) {
    const int64_t sizes[] = {0, 1, 3, 17, 63, 65, 129};
    struct hl_products *products = products_of(engine, isa, hl_mem_default());
    if (!products) return;
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 7; j++)
            for (int k = 0; k < 7; k++)
                for (int kind = (i + 2 * j + 3 * k) % 7; kind < KINDS; kind += 7)
                    check(products, kind, sizes[i], sizes[j], sizes[k], (i + j + k) % 4 * 5);
    omp_set_num_threads(2);
    for (int kind = 0; kind < KINDS;
         kind++) { /* several blocks of K, groups of columns, pieces of rows */
        check(products, kind, 5, 9, 1000, 3);
        check(products, kind, 40, 700, 30, 0);
        check(products, kind, 1100, 10, 20, 1);
    }
    omp_set_num_threads(1);
    hl_products_free(products);
}

static void test_library(void **state) {
    (void)state;
    check_engine("library", "");
}
static void test_avx512(void **state) {
    (void)state;
    check_engine("own", "avx512");
}
static void test_avx2(void **state) {
    (void)state;
    check_engine("own", "avx2");
}
static void test_avx512bf16(void **state) {
    (void)state;
    check_engine("own", "avx512bf16");
}

/* Rows of A that a tile reads in place, with and without rows left over, and rows that it must not:
 * odd ones, and those whose step is near a multiple of 4 KiB. More than one block of K. */
static void test_rows_in_place(void **state) {
    (void)state;
    const int64_t K_pad[][2] = {{64, 1},   {64, 0},   {1000, 3}, {1600, 101}, {1601, 100},
                                {2046, 1}, {2046, 5}, {1022, 1}, {2048, 1023}};
    const char *isas[] = {"avx512bf16", "avx512", "avx2"};
    for (int e = 0; e < 3; e++) {
        struct hl_products *products = products_of("own", isas[e], hl_mem_default());
        for (int i = 0; products && i < 9; i++)
            for (int kind = 0; kind < KINDS; kind += 2)
                check(products, kind, 8 + i % 3 * 3, 50, K_pad[i][0], K_pad[i][1]);
        hl_products_free(products);
    }
}

/* What AVX512-BF16 promises, one operation after the other. A product of two bf16 fits into f32, so
 * a fused multiply-add is this sum. */
static float sum_of_pairs(const struct hl_product *p, int64_t m, int64_t n, float sum) {
    enum { DEPTH = 1536 };
    const struct hl_bf16 *A = p->A, *B = p->B;
    for (int64_t start = 0; start < p->K; start += DEPTH) {
        float block = 0;
        for (int64_t k = start; k < start + DEPTH && k < p->K; k += 2)
            for (int64_t i = k + 1; i >= k; i--)
                if (i < p->K)
                    block += hl_bf16_to_f32(A[m * p->lda + i]) * hl_bf16_to_f32(B[n * p->ldb + i]);
        sum += block;
    }
    return sum;
}

static void test_pairs(void **state) {
    (void)state;
    struct hl_products *products = products_of("own", "avx512bf16", hl_mem_default());
    const int64_t Ks[] = {1, 2, 33, 200, 1536, 1601, 3300};
    for (int i = 0; products && i < 14; i++) {
        struct hl_product p = kind_of(i < 7 ? 10 : 14, 13, 53, Ks[i % 7], i % 2);
        fill(&p);
        float *C = p.C, *want = malloc(sizeof *want * (size_t)(p.M * p.N));
        for (int64_t j = 0; j < p.M * p.N; j++)
            want[j] = sum_of_pairs(&p, j / p.N, j % p.N, p.add ? C[j / p.N * p.ldc + j % p.N] : 0);
        assert_int_equal(hl_product_run(products, &p, NULL), HL_OK);
        for (int64_t j = 0; j < p.M * p.N; j++)
            assert_true(C[j / p.N * p.ldc + j % p.N] == want[j]);
        free(want);
        release(&p);
    }
    hl_products_free(products);
}

/* Those instructions take denormals as 0 and give none, whatever the thread's mode is. */
static void test_pairs_flush(void **state) {
    (void)state;
    struct hl_products *products = products_of("own", "avx512bf16", hl_mem_default());
    const float cases[][3] = {
        {0x1p-130F, 0x1p100F, 0}, {0x1p-80F, 0x1p-50F, 0}, {0x1p-60F, 0x1p-60F, 0x1p-120F}};
    for (int i = 0; products && i < 3; i++) {
        struct hl_product p = kind_of(10, 9, 17, 1, 0);
        fill(&p);
        for (int64_t m = 0; m < p.M; m++)
            ((struct hl_bf16 *)(uintptr_t)p.A)[m * p.lda] = hl_bf16_from_f32(cases[i][0]);
        for (int64_t n = 0; n < p.N; n++)
            ((struct hl_bf16 *)(uintptr_t)p.B)[n * p.ldb] = hl_bf16_from_f32(cases[i][1]);
        assert_int_equal(hl_product_run(products, &p, NULL), HL_OK);
        for (int64_t j = 0; j < p.M * p.ldc; j++)
            if (j % p.ldc < p.N) assert_true(((const float *)p.C)[j] == cases[i][2]);
        release(&p);
    }
    hl_products_free(products);
}
static void test_default(void **state) {
    (void)state;
    struct hl_products *products = products_of("", "", hl_mem_default()),
                       *ref = products_of("", "ref", hl_mem_default());
    for (int kind = 0; kind < KINDS; kind++) {
        check(products, kind, 33, 50, 70, 2);
        check(ref, kind, 33, 50, 70, 2);
    }
    hl_products_free(products);
    hl_products_free(ref);
    assert_true(strlen(hl_products_describe()) > 3);
}

static void check_teams(const char *isa) {
    const int64_t shapes[][3] = {{70, 600, 900}, {1200, 30, 40}, {2, 500, 300}, {100, 100, 100}};
    struct hl_products *products = products_of("own", isa, hl_mem_default());
    int before = omp_get_max_threads();
    for (int i = 0; products && i < 4 * KINDS; i++) {
        struct hl_product p =
            kind_of(i % KINDS, shapes[i / KINDS][0], shapes[i / KINDS][1], shapes[i / KINDS][2], 0);
        fill(&p);
        size_t bytes = (size_t)(p.M * p.ldc) * hl_dtype_bytes(p.out);
        void *start = malloc(bytes), *one = malloc(bytes);
        memcpy(start, p.C, bytes);
        for (int team = 1; team <= 3; team++) {
            memcpy(p.C, start, bytes);
            omp_set_num_threads(team);
            assert_int_equal(hl_product_run(products, &p, NULL), HL_OK);
            if (team == 1) memcpy(one, p.C, bytes);
            assert_memory_equal(one, p.C, bytes);
        }
        free(start);
        free(one);
        release(&p);
    }
    omp_set_num_threads(before);
    hl_products_free(products);
}

static void test_team_size(void **state) {
    (void)state;
    check_teams("avx512bf16");
    check_teams("avx512");
    check_teams("avx2");
}

/* Each element is the same chain of operations in both. */
static void test_isas_agree(void **state) {
    (void)state;
    struct hl_products *wide = products_of("own", "avx512", hl_mem_default()),
                       *narrow = products_of("own", "avx2", hl_mem_default());
    for (int kind = 0; wide && narrow && kind < KINDS; kind++) {
        struct hl_product p = kind_of(kind, 21, 53, 800, 0);
        size_t bytes = (size_t)(p.M * p.ldc) * hl_dtype_bytes(p.out);
        fill(&p);
        struct hl_product q = p;
        q.C = malloc(bytes);
        memcpy(q.C, p.C, bytes);
        assert_int_equal(hl_product_run(wide, &p, NULL), HL_OK);
        assert_int_equal(hl_product_run(narrow, &q, NULL), HL_OK);
        assert_memory_equal(p.C, q.C, bytes);
        free(q.C);
        release(&p);
    }
    hl_products_free(wide);
    hl_products_free(narrow);
}

static void test_nan(void **state) {
    (void)state;
    const char *engines[] = {"own", "library"};
    for (int i = 0; i < 6; i++) { /* f32, bf16 to f32, bf16 */
        struct hl_products *products = products_of(engines[i % 2], "", hl_mem_default());
        struct hl_product p = kind_of(2 + i / 2 * 8, 20, 30, 40, 0);
        fill(&p);
        if (p.in == HL_F32) ((float *)(uintptr_t)p.A)[3 * p.lda + 7] = NAN;
        else ((struct hl_bf16 *)(uintptr_t)p.A)[3 * p.lda + 7] = hl_bf16_from_f32(NAN);
        assert_int_equal(hl_product_run(products, &p, NULL), HL_OK);
        for (int64_t j = 0; j < 20 * 30; j++)
            assert_int_equal(isnan(value(p.C, p.out, j)) != 0, j / 30 == 3);
        release(&p);
        hl_products_free(products);
    }
}

static void test_steady(void **state) {
    (void)state;
    struct hl_mem_probe probe;
    const char *engines[] = {"own", "library"};
    for (int e = 0; e < 2; e++) {
        hl_mem_probe_init(&probe, 0);
        struct hl_products *products = products_of(engines[e], "", &probe.mem);
        long warm = 0;
        for (int round = 0; round < 3; round++) {
            for (int kind = 0; kind < KINDS; kind++) check(products, kind, 30, 40, 500, 0);
            if (round == 0) warm = probe.n_taken;
        }
        assert_int_equal(probe.n_taken, warm);
        hl_products_free(products);
        assert_int_equal(probe.n_live, 0);
    }
}

/* More shapes than the library's glue keeps. */
static void test_many_shapes(void **state) {
    (void)state;
    struct hl_products *products = products_of("library", "", hl_mem_default());
    for (int round = 0; round < 2; round++)
        for (int64_t n = 1; n <= 70; n++) check(products, 16, 2, n, 4, 0);
    hl_products_free(products);
}

static void test_failing_allocations(void **state) {
    (void)state;
    const char *engines[] = {"own", "library"};
    for (int e = 0; e < 2; e++)
        for (long fail_at = 1;; fail_at++) {
            struct hl_mem_probe probe;
            struct hl_products *products = NULL;
            struct hl_diag diag = {0};
            enum hl_status status;
            hl_mem_probe_init(&probe, fail_at);
            (void)setenv("HALLEY_PRODUCTS", engines[e], 1);
            status = hl_products_new(&probe.mem, &products, &diag);
            for (int kind = 0; !status && kind < KINDS; kind += 9) {
                struct hl_product p = kind_of(kind, 10, 20, 400, 0);
                fill(&p);
                status = hl_product_run(products, &p, &diag);
                release(&p);
            }
            hl_products_free(products);
            assert_int_equal(probe.n_live, 0);
            if (probe.n_taken < fail_at) {
                assert_int_equal(status, HL_OK);
                break;
            }
            assert_int_equal(status, HL_E_MEMORY);
            assert_true(diag.text[0] != 0);
        }
    (void)unsetenv("HALLEY_PRODUCTS");
}

static void test_wrong_engine(void **state) {
    (void)state;
    struct hl_products *products = NULL;
    struct hl_diag diag = {0};
    (void)setenv("HALLEY_PRODUCTS", "abacus", 1);
    assert_int_equal(hl_products_new(hl_mem_default(), &products, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "abacus"));
    (void)unsetenv("HALLEY_PRODUCTS");
    assert_null(products);
}

int main(void) {
    omp_set_num_threads(1); /* thousands of tiny products: a team would only wait for its turn */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512bf16),
        cmocka_unit_test(test_rows_in_place),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_pairs_flush),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_team_size),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_many_shapes),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_wrong_engine),
        cmocka_unit_test(test_isas_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
