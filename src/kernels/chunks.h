/* How kernels cut their work: fixed chunks of rows, so that sums have the same bits for every team
 * size. */
#ifndef HALLEY_KERNELS_CHUNKS_H
#define HALLEY_KERNELS_CHUNKS_H

#include "halley/kernels.h"

/* Elements below which opening a parallel region costs more than it gives. */
enum { HL_SERIAL_BELOW = 1 << 14 };

static inline int64_t hl_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t hl_n_chunks(int64_t N) { return (N + HL_ROW_CHUNK - 1) / HL_ROW_CHUNK; }

/* Sum the partials of all chunks in ascending order into one row of C columns.
 * partial [n_chunks] rows of C floats, `stride` floats apart; out_C is overwritten, or added to
 * when add. */
static inline void hl_sum_partials(int64_t n_chunks, int64_t C, int64_t stride,
                                   const float *partial, float *out_C, bool add) {
    for (int64_t c = 0; c < C; c++) {
        float sum = 0;
        for (int64_t i = 0; i < n_chunks; i++) sum += partial[i * stride + c];
        out_C[c] = add ? out_C[c] + sum : sum;
    }
}

#endif
