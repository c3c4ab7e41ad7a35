/* Rates of products over the shapes of GPT-2 124M (1,024 rows) and of a tiny model: our own kernels
 * and the library in turn, medians. Usage: bench_products [rounds] [f32|bf16] [shape]. Threads:
 * OMP_NUM_THREADS. BENCH_CPU=1: processor time divided by the threads instead of elapsed time, for
 * a machine with other work on it; OMP_WAIT_POLICY=passive then keeps waiting out of it. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "halley/kernels.h"

struct shape {
    const char *name;
    int64_t M, N, K;
    bool ta, tb, add, f32_out;
    int times; /* in one step of GPT-2 124M at 1,024 rows */
};

static const struct shape shapes[] = {
    {"qkv fwd", 1024, 2304, 768, false, true, false, false, 12},
    {"proj fwd", 1024, 768, 768, false, true, false, false, 12},
    {"fc fwd", 1024, 3072, 768, false, true, false, false, 12},
    {"mlp fwd", 1024, 768, 3072, false, true, false, false, 12},
    {"head fwd", 256, 50304, 768, false, true, false, true, 4},
    {"qkv dX", 1024, 768, 2304, false, false, false, false, 12},
    {"proj dX", 1024, 768, 768, false, false, false, false, 12},
    {"fc dX", 1024, 768, 3072, false, false, false, false, 12},
    {"mlp dX", 1024, 3072, 768, false, false, false, false, 12},
    {"head dX", 256, 768, 50304, false, false, false, false, 4},
    {"qkv dW", 2304, 768, 1024, true, false, true, true, 12},
    {"proj dW", 768, 768, 1024, true, false, true, true, 12},
    {"fc dW", 3072, 768, 1024, true, false, true, true, 12},
    {"mlp dW", 768, 3072, 1024, true, false, true, true, 12},
    {"head dW", 50304, 768, 256, true, false, true, true, 4},
    {"tiny qkv", 768, 384, 128, false, true, false, false, 0},
    {"tiny proj", 768, 128, 128, false, true, false, false, 0},
    {"tiny fc", 768, 512, 128, false, true, false, false, 0},
    {"tiny mlp", 768, 128, 512, false, true, false, false, 0},
    {"tiny qkv dX", 768, 128, 384, false, false, false, false, 0},
    {"tiny dW", 384, 128, 768, true, false, true, true, 0},
    {"one row", 1, 3072, 768, false, true, false, false, 0},
    {"one row head", 1, 50304, 768, false, true, false, true, 0},
};

static double now(void) {
    struct timespec t;
    bool processor = getenv("BENCH_CPU") != NULL;
    (void)clock_gettime(processor ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    double seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return processor ? seconds / omp_get_max_threads() : seconds;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[n / 2];
}

static void *filled(size_t n, enum hl_dtype type) {
    void *x = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
    for (size_t i = 0; i < n; i++) {
        float value = (float)((i * 2654435761U >> 8) & 0xffff) / 65536.0F - 0.5F;
        if (type == HL_F32) ((float *)x)[i] = value;
        else ((struct hl_bf16 *)x)[i] = hl_bf16_from_f32(value);
    }
    return x;
}

static void stop_at(enum hl_status status, const struct hl_diag *diag) {
    if (!status) return;
    (void)fprintf(stderr, "%s\n", diag->text);
    exit(1);
}

static struct hl_products *engine(const char *name) {
    struct hl_products *products = NULL;
    struct hl_diag diag = {0};
    (void)setenv("HALLEY_PRODUCTS", name, 1);
    stop_at(hl_products_new(hl_mem_default(), &products, &diag), &diag);
    return products;
}

static double seconds(struct hl_products *products, const struct hl_product *p, int repeats) {
    struct hl_diag diag = {0};
    double start = now();
    for (int i = 0; i < repeats; i++) stop_at(hl_product_run(products, p, &diag), &diag);
    return (now() - start) / repeats;
}

enum { MAX_ROUNDS = 101 };

/* Adds this shape's part of a step to total[own, library]. */
static void measure(const struct shape *s, enum hl_dtype type, int rounds, struct hl_products *own,
                    struct hl_products *library, double total[2]) {
    struct hl_product p = {
        .M = s->M, .N = s->N, .K = s->K, .ta = s->ta, .tb = s->tb, .add = s->add, .in = type};
    p.out = s->f32_out ? HL_F32 : type;
    p.lda = s->ta ? s->M : s->K;
    p.ldb = s->tb ? s->K : s->N;
    p.ldc = s->N;
    p.A = filled((size_t)(s->M * s->K), type);
    p.B = filled((size_t)(s->K * s->N), type);
    p.C = filled((size_t)(s->M * s->N), p.out);
    double flops = 2.0 * (double)s->M * (double)s->N * (double)s->K, a[MAX_ROUNDS], b[MAX_ROUNDS],
           r[MAX_ROUNDS];
    int repeats = flops > 1e9 ? 1 : (int)(1e9 / flops);
    (void)seconds(own, &p, 1);
    (void)seconds(library, &p, 1);
    for (int k = 0; k < rounds; k++) {
        a[k] = seconds(own, &p, repeats);
        b[k] = seconds(library, &p, repeats);
        r[k] = b[k] / a[k];
    }
    double ours = median(a, rounds), theirs = median(b, rounds);
    printf("%-14s %7lld %7lld %7lld %12.1f %12.1f %8.2f\n", s->name, (long long)s->M,
           (long long)s->N, (long long)s->K, flops / ours * 1e-9, flops / theirs * 1e-9,
           median(r, rounds));
    total[0] += s->times * ours;
    total[1] += s->times * theirs;
    free((void *)(uintptr_t)p.A);
    free((void *)(uintptr_t)p.B);
    free(p.C);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 9;
    enum hl_dtype type = argc > 2 && !strcmp(argv[2], "bf16") ? HL_BF16 : HL_F32;
    hl_denormals_off();
    struct hl_products *own = engine("own"), *library = engine("library");
    printf("%-14s %7s %7s %7s %12s %12s %8s\n", "GFLOP/s", "M", "N", "K", "own", "library",
           "ratio");
    double total[2] = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (argc < 4 || strstr(shapes[i].name, argv[3]))
            measure(&shapes[i], type, rounds, own, library, total);
    printf("GPT-2 124M, 1,024 rows, forward and backward: own %.0f ms, library %.0f ms\n",
           total[0] * 1e3, total[1] * 1e3);
    hl_products_free(own);
    hl_products_free(library);
    return 0;
}
