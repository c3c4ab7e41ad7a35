/* Time, numbers to compute with, medians, a copy to compare with. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "os/clock.h"

double bench_now(void) { return (double)hl_clock_ns() * 1e-9; }

void bench_fill(void *x, enum hl_dtype dtype, int64_t n, float scale) {
    for (int64_t i = 0; i < n; i++) {
        float value =
            scale * ((float)(((uint64_t)i * 2654435761U >> 8) & 0xffff) / 32768.0F - 1.0F);
        if (dtype == HL_F32) ((float *)x)[i] = value;
        else ((struct hl_bf16 *)x)[i] = hl_bf16_from_f32(value);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

double bench_copy(void *to, const void *from, size_t bytes) {
    double start = bench_now();
#pragma omp parallel
    {
        size_t n = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num(),
               part = bytes / n / 64 * 64;
        memcpy((char *)to + me * part, (const char *)from + me * part,
               me == n - 1 ? bytes - me * part : part);
    }
    return bench_now() - start;
}
