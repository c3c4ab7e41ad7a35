/* Row kernels against a plain copy that moves as many bytes, in turns, at the shapes of GPT-2 124M
 * (B 4 x T 256) and of a Llama-like layer. ratio 1 = as fast as memory lets a copy be; below 1 the
 * arithmetic shows. usage: bench_rows [ref|avx2|avx512] */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "halley/kernels.h"
#include "pairs.h"

enum { N = 1024, C = 768, F = 3072, V = 50257, LD = 50304, R = 128, H = 12, D = 64 };

struct bench {
    const struct hl_kernels *k;
    float *x, *y, *z, *w32, *scratch, *statistics, *logits, *fresh;
    void *a, *b, *c, *w;
    int32_t token[N], position[N], target[R];
    char *from, *to;
    size_t copy_bytes;
};

static void run_copy(void *context) {
    struct bench *b = context;
    const int64_t total = (int64_t)b->copy_bytes;
#pragma omp parallel
    {
        const int64_t n = omp_get_num_threads(), me = omp_get_thread_num();
        const int64_t first = total / n * me, end = me == n - 1 ? total : total / n * (me + 1);
        memcpy(b->to + first, b->from + first, (size_t)(end - first));
    }
}

static void run_layernorm_fwd(void *context) {
    struct bench *b = context;
    b->k->layernorm_fwd(N, C, b->x, b->a, b->w, b->x, b->w, b->w, 1e-5f, b->b, b->statistics,
                        b->statistics + N);
}
static void run_layernorm_bwd(void *context) {
    struct bench *b = context;
    b->k->layernorm_bwd(N, C, b->a, b->x, b->w, b->statistics, b->statistics + N, b->y, b->w32,
                        b->w32 + C, true, b->scratch);
}
static void run_rmsnorm_fwd(void *context) {
    struct bench *b = context;
    b->k->rmsnorm_fwd(N, C, b->x, b->a, NULL, b->x, b->w, 1e-5f, b->b, b->statistics);
}
static void run_bias_bwd(void *context) {
    struct bench *b = context;
    b->k->bias_bwd(N, F, b->a, b->w32, true, b->scratch);
}
static void run_gelu_fwd(void *context) {
    struct bench *b = context;
    b->k->gelu_fwd(N, F, b->a, b->w, b->b);
}
static void run_gelu_bwd(void *context) {
    struct bench *b = context;
    b->k->gelu_bwd(N, F, b->a, b->w, b->b, b->c);
}
static void run_swiglu_bwd(void *context) {
    struct bench *b = context;
    b->k->swiglu_bwd(N, F / 2, b->a, b->b, b->c, NULL);
}
static void run_rope(void *context) {
    struct bench *b = context;
    b->k->rope(N, H, H, D, b->a, b->position, b->y, b->y + N * D / 2, false);
}
static void run_embed_fwd(void *context) {
    struct bench *b = context;
    b->k->embed_fwd(N, C, b->token, b->position, b->logits, b->a, b->x);
}
static void run_embed_bwd(void *context) {
    struct bench *b = context;
    b->k->embed_bwd(N, C, b->x, b->token, b->position, b->logits, b->y);
}
static void run_cross_entropy(void *context) {
    struct bench *b = context;
    memcpy(b->logits, b->fresh, (size_t)R * LD * 4);
    b->k->cross_entropy(R, V, LD, b->logits, b->target, b->statistics, true);
}
static void run_copy_logits(void *context) {
    struct bench *b = context;
    memcpy(b->logits, b->fresh, (size_t)R * LD * 4);
    run_copy(context);
}

static void *filled(size_t bytes) {
    float *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p) exit(1);
    memset(p, 0, bytes);
    return p;
}

static void report(struct bench *b, const char *name, timed *f, timed *peer, size_t bytes) {
    b->copy_bytes = bytes / 2;
    const struct pairs p = time_pairs(f, peer, b);
    printf("%-4s %-6s  %-14s %8.3f ms  %6.2f GB/s  copy %6.2f GB/s  ratio %.3f  (%.3f .. %.3f)\n",
           b->k->dtype == HL_BF16 ? "bf16" : "f32", hl_isa_name(b->k->isa), name, 1e3 * p.mine,
           1e-9 * (double)bytes / p.mine, 1e-9 * (double)bytes / p.peer, p.ratio, p.ratio_low,
           p.ratio_high);
}

int main(int argc, char **argv) {
    static struct bench b;
    const size_t n_logits = (size_t)R * LD,
                 biggest = n_logits > (size_t)V * C ? n_logits : (size_t)V * C;
    b.x = filled(N * C * 4), b.y = filled(N * F * 4), b.w32 = filled(2 * F * 4),
    b.scratch = filled((size_t)hl_norm_scratch(N, F) * 4);
    b.statistics = filled(2 * N * 4), b.logits = filled(biggest * 4),
    b.fresh = filled(n_logits * 4);
    b.a = filled(N * F * 4), b.b = filled(N * F * 4), b.c = filled(N * F * 4), b.w = filled(F * 4);
    b.from = filled(n_logits * 4), b.to = filled(n_logits * 4);
    for (size_t i = 0; i < n_logits; i++) b.fresh[i] = (float)(i * 7919 % 1000) * 0.01f - 5;
    for (int32_t i = 0; i < N; i++) b.token[i] = i * 48 % V, b.position[i] = i % 256;
    for (int32_t i = 0; i < R; i++) b.target[i] = i * 301 % V;
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++)
        for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
            if (argc > 1 ? strcmp(argv[1], hl_isa_name((enum hl_isa)isa)) != 0 : isa == HL_ISA_REF)
                continue;
            if (hl_kernels_of((enum hl_isa)isa, (enum hl_dtype)dtype, &b.k, NULL)) continue;
            const size_t t = hl_dtype_bytes((enum hl_dtype)dtype);
            report(&b, "layernorm_fwd", run_layernorm_fwd, run_copy, N * C * (8 + 2 * t));
            report(&b, "layernorm_bwd", run_layernorm_bwd, run_copy, N * C * (12 + t));
            report(&b, "rmsnorm_fwd", run_rmsnorm_fwd, run_copy, N * C * (8 + 2 * t));
            report(&b, "bias_bwd", run_bias_bwd, run_copy, N * F * t);
            report(&b, "gelu_fwd", run_gelu_fwd, run_copy, N * F * 2 * t);
            report(&b, "gelu_bwd", run_gelu_bwd, run_copy, N * F * 4 * t);
            report(&b, "swiglu_bwd", run_swiglu_bwd, run_copy, N * F / 2 * 5 * t);
            report(&b, "rope", run_rope, run_copy, N * 2 * H * D * 2 * t);
            report(&b, "embed_fwd", run_embed_fwd, run_copy, N * C * (4 + 2 * t));
            report(&b, "embed_bwd", run_embed_bwd, run_copy, N * C * 20);
            report(&b, "cross_entropy", run_cross_entropy, run_copy_logits, n_logits * (4 + t));
        }
    return 0;
}
