/* Reference kernels for T = f32. */
#include <stdint.h>

#define T float
static inline float get(const T *x, int64_t i) { return x[i]; }
static inline void put(T *x, int64_t i, float value) { x[i] = value; }

#define FILL_ROWS hl_rows_fill_ref_f32
#include "kernels/ref/rows.h"
