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
 * partial  [n_chunks] rows of C floats, `stride` floats apart; the first is used up
 * out_C    overwritten, or added to when add */
void hl_sum_partials(int64_t n_chunks, int64_t C, int64_t stride, float *partial, float *out_C,
                     bool add);

/* The columns of the calling thread of a team that splits C columns: whole cache lines. For work
 * whose result does not depend on the split. */
void hl_my_columns(int64_t C, int64_t *first_out, int64_t *end_out);

#endif
