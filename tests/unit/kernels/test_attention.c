/* Attention: every instruction set against the reference, the reference against a direct softmax in
 * f64 and its finite differences, and the promises: sequences do not touch each other, the team
 * does not change bits, nothing overflows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"

/* The arrays of one call, f32 values alongside when T is bf16. */
struct problem {
    struct hl_attention a;
    enum hl_dtype type;
    int64_t N, E, O; /* rows, width of qkv, width of out */
    void *qkv, *out, *dout, *dqkv;
    float *lse;
};

static double value(const void *x, enum hl_dtype type, int64_t i) {
    return type == HL_F32 ? (double)((const float *)x)[i]
                          : (double)hl_bf16_to_f32(((const struct hl_bf16 *)x)[i]);
}

static void put(void *x, enum hl_dtype type, int64_t i, double v) {
    if (type == HL_F32) ((float *)x)[i] = (float)v;
    else ((struct hl_bf16 *)x)[i] = hl_bf16_from_f32((float)v);
}

static void *filled(int64_t n, enum hl_dtype type, uint64_t key, double factor) {
    void *x = malloc((size_t)n * hl_dtype_bytes(type) + 1);
    uint64_t state = key;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        put(x, type, i, factor * ((double)(state >> 40) / 0x1p22 - 2)); /* uniform in -2..2 */
    }
    return x;
}

static struct problem problem_new(int64_t n_sequences, const int64_t *offsets, int64_t H, int64_t K,
                                  int64_t D, enum hl_dtype type) {
    struct problem p = {.a = {n_sequences, offsets, H, K, D, (float)(1 / sqrt((double)D))},
                        .type = type};
    p.N = offsets[n_sequences];
    p.E = (H + 2 * K) * D;
    p.O = H * D;
    p.qkv = filled(p.N * p.E, type, 5, 1);
    p.dout = filled(p.N * p.O, type, 6, 1);
    p.out = filled(p.N * p.O, type, 7, 1);
    p.dqkv = filled(p.N * p.E, type, 8, 1);
    p.lse = filled(p.N * H, HL_F32, 9, 1);
    return p;
}

static void problem_free(struct problem *p) {
    free(p->qkv), free(p->out), free(p->dout), free(p->dqkv), free(p->lse);
}

/* Bytes past the promised scratch must stay. */
static void run(const struct hl_kernels *k, struct problem *p) {
    size_t bytes = k->attention_scratch(&p->a);
    unsigned char *scratch = malloc(bytes + 64);
    memset(scratch, 0xff, bytes + 64);
    k->attention_fwd(&p->a, p->qkv, p->out, p->lse, scratch);
    k->attention_bwd(&p->a, p->qkv, p->out, p->lse, p->dout, p->dqkv, scratch);
    for (size_t i = 0; i < 64; i++) assert_int_equal(scratch[bytes + i], 0xff);
    free(scratch);
}

/* out [N, H*D] in f64 straight from the definition. */
static void direct(const struct hl_attention *a, const double *qkv, double *out) {
    int64_t H = a->n_heads, K = a->n_kv_heads, D = a->head_dim, E = (H + 2 * K) * D;
    for (int64_t s = 0; s < a->n_sequences; s++)
        for (int64_t i = a->offsets[s]; i < a->offsets[s + 1]; i++)
            for (int64_t h = 0; h < H; h++) {
                int64_t kv = h / (H / K);
                double top = -INFINITY, sum = 0, *o = out + (i * H + h) * D, p[400];
                assert_true(i - a->offsets[s] < 400);
                for (int64_t j = a->offsets[s]; j <= i; j++) {
                    double x = 0;
                    for (int64_t d = 0; d < D; d++)
                        x += qkv[i * E + h * D + d] * qkv[j * E + (H + kv) * D + d];
                    p[j - a->offsets[s]] = x * (double)a->scale;
                    top = fmax(top, p[j - a->offsets[s]]);
                }
                for (int64_t d = 0; d < D; d++) o[d] = 0;
                for (int64_t j = a->offsets[s]; j <= i; j++) {
                    double e = exp(p[j - a->offsets[s]] - top);
                    sum += e;
                    for (int64_t d = 0; d < D; d++) o[d] += e * qkv[j * E + (H + K + kv) * D + d];
                }
                for (int64_t d = 0; d < D; d++) o[d] /= sum;
            }
}

static const struct hl_kernels *table(enum hl_isa isa, enum hl_dtype type) {
    const struct hl_kernels *k = NULL;
    if (hl_kernels_of(isa, type, &k, NULL)) {
        print_message("SKIP: this processor has no %s\n", hl_isa_name(isa));
        return NULL;
    }
    return k;
}

static void check_gradient(const struct hl_kernels *k) {
    const int64_t offsets[] = {0, 1, 6, 6, 9};
    struct problem p = problem_new(4, offsets, 4, 2, 3, HL_F32);
    enum { N = 9, E = 24, O = 12 };
    double x[N * E], y[N * O], up[N * O], down[N * O];
    run(k, &p);
    for (int i = 0; i < N * E; i++) x[i] = value(p.qkv, HL_F32, i);
    direct(&p.a, x, y);
    for (int i = 0; i < N * O; i++) assert_true(fabs(y[i] - value(p.out, HL_F32, i)) < 1e-5);
    for (int i = 0; i < N * E; i++) {
        const double step = 1e-5, old = x[i];
        double want = 0, got = value(p.dqkv, HL_F32, i);
        x[i] = old + step;
        direct(&p.a, x, up);
        x[i] = old - step;
        direct(&p.a, x, down);
        x[i] = old;
        for (int o = 0; o < N * O; o++)
            want += (up[o] - down[o]) / (2 * step) * value(p.dout, HL_F32, o);
        if (fabs(want - got) > 2e-5 * (1 + fabs(want))) fail_msg("%d: %g, not %g", i, got, want);
    }
    problem_free(&p);
}

static void test_gradient(void **state) {
    (void)state;
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *k = table((enum hl_isa)isa, HL_F32);
        if (k) check_gradient(k);
    }
}

static void close_to(const void *got, const void *want, enum hl_dtype type, int64_t n,
                     double tolerance, const char *what, const struct problem *p) {
    for (int64_t i = 0; i < n; i++) {
        double x = value(got, type, i), y = value(want, type, i);
        if (!(fabs(x - y) <= tolerance * (1 + fabs(y))))
            fail_msg("%s[%lld], N %lld H %lld K %lld D %lld: %g, not %g", what, (long long)i,
                     (long long)p->N, (long long)p->a.n_heads, (long long)p->a.n_kv_heads,
                     (long long)p->a.head_dim, x, y);
    }
}

static void check_against_ref(int64_t n_sequences, const int64_t *offsets, int64_t H, int64_t K,
                              int64_t D) {
    for (int type = HL_F32; type <= HL_BF16; type++) {
        const struct hl_kernels *ref = table(HL_ISA_REF, (enum hl_dtype)type);
        struct problem want = problem_new(n_sequences, offsets, H, K, D, (enum hl_dtype)type);
        run(ref, &want);
        for (int isa = HL_ISA_AVX2; isa <= HL_ISA_AVX512; isa++) {
            const struct hl_kernels *k = table((enum hl_isa)isa, (enum hl_dtype)type);
            if (!k) continue;
            struct problem got = problem_new(n_sequences, offsets, H, K, D, (enum hl_dtype)type);
            double tolerance = type == HL_F32 ? 2e-5 : 0.02;
            run(k, &got);
            close_to(got.out, want.out, got.type, got.N * got.O, tolerance, "out", &got);
            close_to(got.lse, want.lse, HL_F32, got.N * H, 1e-5, "lse", &got);
            close_to(got.dqkv, want.dqkv, got.type, got.N * got.E, tolerance, "dqkv", &got);
            problem_free(&got);
        }
        problem_free(&want);
    }
}

static void test_against_reference(void **state) {
    (void)state;
    const int64_t sizes[] = {1, 3, 17, 23, 24, 25, 63, 65, 95, 96, 97, 129, 193};
    const int64_t dims[] = {1, 6, 8, 16, 17, 48, 63, 64, 80};
    int before = omp_get_max_threads();
    omp_set_num_threads(1); /* many tiny calls: a team would only wait for its turn */
    for (int i = 0; i < 13; i++) {
        int64_t offsets[] = {0, sizes[i]};
        for (int j = i % 3; j < 9; j += 3) check_against_ref(1, offsets, 2, 2, dims[j]);
    }
    const int64_t ragged[] = {0, 1, 2, 50, 50, 51, 180, 211};
    check_against_ref(7, ragged, 4, 4, 16);
    check_against_ref(7, ragged, 4, 1, 16);
    check_against_ref(7, ragged, 6, 3, 6);
    check_against_ref(4, ragged, 1, 1, 128);
    check_against_ref(4, ragged, 1, 1, 256);
    omp_set_num_threads(before);
    const int64_t longer[] = {0, 5, 805};
    check_against_ref(2, longer, 2, 1, 8);
}

static void test_team_size(void **state) {
    (void)state;
    const int64_t offsets[] = {0, 3, 150, 151, 260};
    int before = omp_get_max_threads();
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++)
        for (int type = HL_F32; type <= HL_BF16; type++) {
            const struct hl_kernels *k = table((enum hl_isa)isa, (enum hl_dtype)type);
            if (!k) continue;
            struct problem one = problem_new(4, offsets, 4, 2, 24, (enum hl_dtype)type);
            omp_set_num_threads(1);
            run(k, &one);
            for (int team = 2; team <= 3; team++) {
                struct problem many = problem_new(4, offsets, 4, 2, 24, (enum hl_dtype)type);
                omp_set_num_threads(team);
                run(k, &many);
                size_t size = hl_dtype_bytes(many.type);
                assert_memory_equal(one.out, many.out, (size_t)(one.N * one.O) * size);
                assert_memory_equal(one.dqkv, many.dqkv, (size_t)(one.N * one.E) * size);
                assert_memory_equal(one.lse, many.lse, (size_t)(one.N * 4) * sizeof(float));
                problem_free(&many);
            }
            problem_free(&one);
        }
    omp_set_num_threads(before);
}

static void test_sequences_apart(void **state) {
    (void)state;
    const int64_t offsets[] = {0, 30, 101, 140};
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *k = table((enum hl_isa)isa, HL_F32);
        if (!k) continue;
        struct problem a = problem_new(3, offsets, 2, 1, 20, HL_F32),
                       b = problem_new(3, offsets, 2, 1, 20, HL_F32);
        for (int64_t i = 30 * b.E; i < 101 * b.E; i++) put(b.qkv, HL_F32, i, NAN);
        run(k, &a);
        run(k, &b);
        assert_memory_equal(a.out, b.out, (size_t)(30 * a.O) * 4);
        assert_memory_equal(a.dqkv, b.dqkv, (size_t)(30 * a.E) * 4);
        assert_memory_equal((float *)a.out + 101 * a.O, (float *)b.out + 101 * a.O,
                            (size_t)(39 * a.O) * 4);
        assert_memory_equal((float *)a.dqkv + 101 * a.E, (float *)b.dqkv + 101 * a.E,
                            (size_t)(39 * a.E) * 4);
        for (int64_t i = 30 * a.O; i < 101 * a.O; i++) assert_true(isnan(value(b.out, HL_F32, i)));
        for (int64_t i = 30 * a.E; i < 101 * a.E; i++) assert_true(isnan(value(b.dqkv, HL_F32, i)));
        problem_free(&a);
        problem_free(&b);
    }
}

static void test_large_scores(void **state) {
    (void)state;
    const int64_t offsets[] = {0, 120};
    double *x = malloc(sizeof(double) * 120 * 24), *y = malloc(sizeof(double) * 120 * 8);
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *k = table((enum hl_isa)isa, HL_F32);
        if (!k) continue;
        struct problem p = problem_new(1, offsets, 1, 1, 8, HL_F32);
        for (int64_t i = 0; i < p.N * p.E; i++) {
            if (i % 24 < 16) put(p.qkv, HL_F32, i, 60 * round(value(p.qkv, HL_F32, i)));
            x[i] = value(p.qkv, HL_F32, i);
        }
        p.a.scale = 1;
        run(k, &p);
        direct(&p.a, x, y);
        for (int64_t i = 0; i < p.N * p.O; i++)
            assert_true(fabs(value(p.out, HL_F32, i) - y[i]) < 1e-4);
        for (int64_t i = 0; i < p.N * p.E; i++) assert_true(isfinite(value(p.dqkv, HL_F32, i)));
        problem_free(&p);
    }
    free(x);
    free(y);
}

static void test_nan(void **state) {
    (void)state;
    const int64_t offsets[] = {0, 60};
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *k = table((enum hl_isa)isa, HL_F32);
        if (!k) continue;
        struct problem p = problem_new(1, offsets, 1, 1, 8, HL_F32);
        put(p.qkv, HL_F32, 40 * 24 + 9, NAN); /* a key */
        put(p.qkv, HL_F32, 7 * 24 + 2, NAN);  /* a query */
        run(k, &p);
        for (int64_t i = 0; i < 60; i++)
            assert_int_equal(isnan(value(p.out, HL_F32, i * 8)) != 0, i == 7 || i >= 40);
        problem_free(&p);
    }
}

/* The last row of a sequence, computed from a cache. */
static void test_decode(void **state) {
    (void)state;
    const int64_t lengths[] = {1, 2, 15, 16, 17, 100}, dims[] = {6, 16, 33, 64};
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++)
        for (int type = HL_F32; type <= HL_BF16; type++)
            for (int i = 0; i < 24; i++) {
                const struct hl_kernels *k = table((enum hl_isa)isa, (enum hl_dtype)type);
                if (!k) continue;
                int64_t offsets[] = {0, lengths[i % 6]}, n = offsets[1], D = dims[i / 6], H = 4,
                        K = 2;
                struct problem p = problem_new(1, offsets, H, K, D, (enum hl_dtype)type);
                size_t size = hl_dtype_bytes(p.type);
                char *cache = malloc((size_t)(n * 2 * K * D) * size),
                     *out = malloc((size_t)p.O * size);
                float *scratch = malloc(sizeof(float) * (size_t)(n * H));
                for (int64_t r = 0; r < n; r++)
                    memcpy(cache + (size_t)(r * 2 * K * D) * size,
                           (char *)p.qkv + (size_t)(r * p.E + H * D) * size,
                           (size_t)(2 * K * D) * size);
                run(k, &p);
                k->attention_decode(n, H, K, D, p.a.scale,
                                    (char *)p.qkv + (size_t)((n - 1) * p.E) * size, cache, out,
                                    scratch);
                close_to(out, (char *)p.out + (size_t)((n - 1) * p.O) * size, p.type, p.O,
                         type == HL_F32 ? 1e-5 : 0.01, "decode", &p);
                free(cache), free(out), free(scratch);
                problem_free(&p);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient),     cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_team_size),    cmocka_unit_test(test_sequences_apart),
        cmocka_unit_test(test_large_scores), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
