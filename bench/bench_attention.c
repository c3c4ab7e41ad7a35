/* Attention forward + backward: milliseconds per call, median. Usage: bench_attention B T H K D
 * [rounds] [f32|bf16]. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "halley/kernels.h"

static double now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *filled(int64_t n, enum hl_dtype type) {
    void *x = aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) {
        float value = (float)(((size_t)i * 2654435761U >> 8) & 0xffff) / 16384.0F - 2.0F;
        if (type == HL_F32) ((float *)x)[i] = value;
        else ((struct hl_bf16 *)x)[i] = hl_bf16_from_f32(value);
    }
    return x;
}

int main(int argc, char **argv) {
    enum { MOST_ROUNDS = 101 };
    if (argc < 6)
        return fprintf(stderr, "usage: bench_attention B T H K D [rounds] [f32|bf16]\n"), 2;
    int64_t B = atoll(argv[1]), T = atoll(argv[2]), H = atoll(argv[3]), K = atoll(argv[4]),
            D = atoll(argv[5]);
    int rounds = argc > 6 ? atoi(argv[6]) : 11;
    if (rounds < 1 || rounds > MOST_ROUNDS) rounds = 11;
    enum hl_dtype type = argc > 7 && !strcmp(argv[7], "bf16") ? HL_BF16 : HL_F32;
    int64_t *offsets = malloc((size_t)(B + 1) * sizeof *offsets), N = B * T, E = (H + 2 * K) * D;
    for (int64_t b = 0; b <= B; b++) offsets[b] = b * T;
    struct hl_attention a = {B, offsets, H, K, D, 1 / sqrtf((float)D)};
    const struct hl_kernels *k;
    struct hl_diag diag = {0};
    if (hl_kernels_get(type, &k, &diag)) return fprintf(stderr, "%s\n", diag.text), 1;
    hl_denormals_off();
    void *qkv = filled(N * E, type), *dqkv = filled(N * E, type), *out = filled(N * H * D, type),
         *dout = filled(N * H * D, type);
    float *lse = filled(N * H, HL_F32);
    void *scratch = aligned_alloc(64, (k->attention_scratch(&a) + 63) / 64 * 64);
    double forward[MOST_ROUNDS], backward[MOST_ROUNDS];
    double pairs = (double)B * (double)H * (double)T * (double)(T + 1) / 2;
    int repeats = pairs * (double)D * 14 > 1e9 ? 1 : (int)(1e9 / (pairs * (double)D * 14)) + 1;
    for (int r = -1; r < rounds; r++) {
        double t0 = now();
        for (int i = 0; i < repeats; i++) k->attention_fwd(&a, qkv, out, lse, scratch);
        double t1 = now();
        for (int i = 0; i < repeats; i++) k->attention_bwd(&a, qkv, out, lse, dout, dqkv, scratch);
        double t2 = now();
        if (r < 0) continue;
        forward[r] = (t1 - t0) / repeats;
        backward[r] = (t2 - t1) / repeats;
    }
    qsort(forward, (size_t)rounds, sizeof *forward, ascending);
    qsort(backward, (size_t)rounds, sizeof *backward, ascending);
    double f = forward[rounds / 2], b = backward[rounds / 2];
    printf("B %lld T %lld H %lld K %lld D %lld %s %s: forward %.3f ms (%.0f GFLOP/s), backward "
           "%.3f ms (%.0f GFLOP/s), scratch %.1f MiB\n",
           (long long)B, (long long)T, (long long)H, (long long)K, (long long)D,
           type == HL_F32 ? "f32" : "bf16", hl_isa_name(k->isa), f * 1e3,
           pairs * (double)D * 4 / f * 1e-9, b * 1e3, pairs * (double)D * 10 / b * 1e-9,
           (double)k->attention_scratch(&a) / 1048576);
    free(qkv), free(dqkv), free(out), free(dout), free(lse), free(scratch), free(offsets);
    return 0;
}
