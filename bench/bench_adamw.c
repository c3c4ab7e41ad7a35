/* AdamW against a plain copy that moves as many bytes, in turns. Both use the whole team.
 * AdamW reads gradient, m, v and master and writes m, v, master (and the bf16 copy): 28 (30) bytes
 * per parameter. usage: bench_adamw [million parameters, default 32] */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "halley/kernels.h"
#include "pairs.h"

struct bench {
    const struct hl_kernels *k;
    int64_t n, copy_bytes;
    float *grad, *master, *m, *v;
    struct hl_bf16 *narrow;
    char *from, *to;
};

static void run_adamw(void *context) {
    struct bench *b = context;
    const struct hl_adamw p = {.lr = 1e-4,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .epsilon = 1e-8,
                               .weight_decay = 0.1,
                               .correction1 = 1.1,
                               .correction2 = 1.2,
                               .grad_scale = 0.5f};
    b->k->adamw(b->n, &p, b->grad, b->master, b->m, b->v, b->narrow);
}

static void run_copy(void *context) {
    struct bench *b = context;
#pragma omp parallel
    {
        const int64_t n = omp_get_num_threads(), me = omp_get_thread_num();
        const int64_t first = b->copy_bytes / n * me,
                      end = me == n - 1 ? b->copy_bytes : b->copy_bytes / n * (me + 1);
        memcpy(b->to + first, b->from + first, (size_t)(end - first));
    }
}

static void *filled(size_t bytes) {
    char *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p) exit(1);
    memset(p, 0, bytes);
    return p;
}

int main(int argc, char **argv) {
    struct bench b = {.n = (argc > 1 ? atol(argv[1]) : 32) * 1000000};
    const size_t bytes = (size_t)b.n * sizeof(float);
    b.grad = filled(bytes), b.master = filled(bytes), b.m = filled(bytes), b.v = filled(bytes);
    b.from = filled(bytes * 15 / 4), b.to = filled(bytes * 15 / 4);
    for (int64_t i = 0; i < b.n; i++) b.grad[i] = (float)(i % 1001 - 500) * 1e-3f;
    struct hl_bf16 *narrow = filled(bytes / 2);
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++)
        for (int isa = HL_ISA_AVX2; isa <= HL_ISA_AVX512; isa++) {
            if (hl_kernels_of((enum hl_isa)isa, (enum hl_dtype)dtype, &b.k, NULL)) continue;
            b.narrow = dtype == HL_BF16 ? narrow : NULL;
            b.copy_bytes = b.n * (dtype == HL_BF16 ? 15 : 14);
            const struct pairs p = time_pairs(run_adamw, run_copy, &b);
            printf("%-4s %-6s  adamw %5.2f GB/s  copy %5.2f GB/s  ratio %.3f  (quartiles %.3f .. "
                   "%.3f)\n",
                   dtype == HL_BF16 ? "bf16" : "f32", hl_isa_name((enum hl_isa)isa),
                   2e-9 * (double)b.copy_bytes / p.mine, 2e-9 * (double)b.copy_bytes / p.peer,
                   p.ratio, p.ratio_low, p.ratio_high);
        }
    return 0;
}
