/* Sizes and the processor's mode that all kernels share. */
#include "kernels/chunks.h"
#include "kernels/factors.h"

#include <omp.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

int64_t hl_norm_scratch(int64_t N, int64_t C) { return 2 * hl_n_chunks(N) * C; }

void hl_sum_partials(int64_t n_chunks, int64_t C, int64_t stride, float *partial, float *out_C,
                     bool add) {
    for (int64_t i = 1; i < n_chunks; i++)
        for (int64_t c = 0; c < C; c++) partial[c] += partial[i * stride + c];
    for (int64_t c = 0; c < C; c++) {
        const float sum = n_chunks > 0 ? partial[c] : 0;
        out_C[c] = add ? out_C[c] + sum : sum;
    }
}

void hl_my_columns(int64_t C, int64_t *first_out, int64_t *end_out) {
    enum { LINE = 16 };
    const int64_t n_lines = (C + LINE - 1) / LINE;
    const int64_t n_threads = omp_get_num_threads(), me = omp_get_thread_num();
    *first_out = hl_min(C, n_lines * me / n_threads * LINE);
    *end_out = hl_min(C, n_lines * (me + 1) / n_threads * LINE);
}

/* MXCSR: bit 15 flush to zero, bit 6 denormals are zero.  FPCR: bit 24 does both. */
static void denormals_off_here(void) {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 1u << 15 | 1u << 6);
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | 1u << 24));
#endif
}

/* libgomp's threads keep their own mode; libomp gives the team the mode of the thread that forks
 * it, and takes back at the join what was set inside. */
void hl_denormals_off(void) {
    denormals_off_here();
#pragma omp parallel
    denormals_off_here();
}

double hl_sum_over_chunks(int64_t n, const float *x,
                          double (*chunk_sum)(int64_t n, const float *x)) {
    enum { GROUP = 256 }; /* chunks whose sums are kept at once */
    double total = 0, sums[GROUP];
    const int64_t n_chunks = (n + HL_SUM_CHUNK - 1) / HL_SUM_CHUNK;
    for (int64_t base = 0; base < n_chunks; base += GROUP) {
        const int64_t n_sums = hl_min(GROUP, n_chunks - base);
#pragma omp parallel for schedule(static) if (n_sums > 1)
        for (int64_t i = 0; i < n_sums; i++) {
            const int64_t first = (base + i) * HL_SUM_CHUNK;
            sums[i] = chunk_sum(hl_min(HL_SUM_CHUNK, n - first), x + first);
        }
        for (int64_t i = 0; i < n_sums; i++) total += sums[i];
    }
    return total;
}
