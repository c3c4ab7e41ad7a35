/* Quick measurements for doctor. Rates for people, not for comparisons: bench/ measures properly.
 */
#include "doctor_measure.h"

#include <math.h>
#include <string.h>

#include "halley/rng.h"
#include "os/clock.h"
#include "os/parallel.h"

enum { COPY_BYTES = 96 << 20, COPIES = 3, SQUARE = 512, MOST_NS = 150000000 };

struct copy {
    char *to;
    const char *from;
    int n_threads;
};

static void copy_part(void *context, int i) {
    const struct copy *copy = context;
    size_t first = (size_t)COPY_BYTES / 64 * (size_t)i / (size_t)copy->n_threads * 64;
    size_t last = (size_t)COPY_BYTES / 64 * (size_t)(i + 1) / (size_t)copy->n_threads * 64;
    memcpy(copy->to + first, copy->from + first, last - first);
}

double measure_copy(struct hl_mem *mem, int n_threads) {
    double best = 0;
    char *from = hl_alloc(mem, COPY_BYTES, 1), *to = from ? hl_alloc(mem, COPY_BYTES, 1) : NULL;
    struct copy copy = {to, from, n_threads > 256 ? 256 : n_threads};
    for (int i = 0; to && i < COPIES; i++) {
        int64_t start = hl_clock_ns();
        hl_parallel(copy.n_threads, copy_part, &copy);
        double rate = 2.0 * COPY_BYTES / ((double)(hl_clock_ns() - start) * 1e-9);
        if (rate > best) best = rate;
    }
    hl_free(mem, to);
    hl_free(mem, from);
    return best;
}

static struct hl_product product_of(int64_t M, int64_t N, int64_t K, enum hl_dtype in,
                                    const void *A, const void *B, void *C) {
    return (struct hl_product){.M = M,
                               .N = N,
                               .K = K,
                               .tb = true,
                               .in = in,
                               .out = HL_F32,
                               .A = A,
                               .B = B,
                               .C = C,
                               .lda = K,
                               .ldb = K,
                               .ldc = N};
}

double measure_products(struct hl_mem *mem, struct hl_products *products, enum hl_dtype dtype) {
    double best = 0;
    void *A = hl_alloc(mem, (size_t)SQUARE * SQUARE, hl_dtype_bytes(dtype)),
         *B = hl_alloc(mem, (size_t)SQUARE * SQUARE, hl_dtype_bytes(dtype));
    float *C = hl_alloc(mem, (size_t)SQUARE * SQUARE, sizeof *C);
    struct hl_product p = product_of(SQUARE, SQUARE, SQUARE, dtype, A, B, C);
    bool ok = A && B && C;
    for (int64_t begin = hl_clock_ns(); ok && (best == 0 || hl_clock_ns() - begin < MOST_NS);) {
        int64_t start = hl_clock_ns();
        ok = hl_product_run(products, &p, NULL) == HL_OK;
        double rate = 2.0 * SQUARE * SQUARE * SQUARE / ((double)(hl_clock_ns() - start + 1) * 1e-9);
        if (ok && rate > best) best = rate;
    }
    hl_free(mem, C);
    hl_free(mem, B);
    hl_free(mem, A);
    return best;
}

/* Values that bf16 holds exactly, so that one reference serves both types. */
static void fill(float *x, struct hl_bf16 *rounded, int64_t n, uint64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        rounded[i] = hl_bf16_from_f32((float)hl_rng_normal(seed, HL_RNG_INIT, (uint64_t)i));
        x[i] = hl_bf16_to_f32(rounded[i]);
    }
}

static double worst_error(int64_t M, int64_t N, int64_t K, const float *A, const float *B,
                          const float *C) {
    double worst = 0;
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < K; k++) {
                double term = (double)A[m * K + k] * (double)B[n * K + k];
                sum += term;
                size += term * term;
            }
            double error =
                fabs(sum - (double)C[m * N + n]) / (ldexp(1, -24) * sqrt((double)K * size));
            if (!(error <= worst)) worst = isnan(error) ? (double)INFINITY : error;
        }
    return worst;
}

double measure_product_error(struct hl_mem *mem, struct hl_products *products,
                             enum hl_dtype dtype) {
    enum { M = 67, N = 131, K = 259 };
    double worst = -1;
    float *A = hl_alloc(mem, M * K, sizeof *A), *B = hl_alloc(mem, N * K, sizeof *B),
          *C = hl_alloc(mem, M * N, sizeof *C);
    struct hl_bf16 *A16 = hl_alloc(mem, M * K, sizeof *A16),
                   *B16 = hl_alloc(mem, N * K, sizeof *B16);
    if (A && B && C && A16 && B16) {
        fill(A, A16, M * K, 1);
        fill(B, B16, N * K, 2);
        bool f32 = dtype == HL_F32;
        struct hl_product p =
            product_of(M, N, K, dtype, f32 ? (void *)A : A16, f32 ? (void *)B : B16, C);
        if (hl_product_run(products, &p, NULL) == HL_OK) worst = worst_error(M, N, K, A, B, C);
    }
    hl_free(mem, B16);
    hl_free(mem, A16);
    hl_free(mem, C);
    hl_free(mem, B);
    hl_free(mem, A);
    return worst;
}
