/* Reference kernels for T = bf16: read as f32, computed in f32, rounded once when stored. */
#include "halley/kernels.h"

#define T struct hl_bf16
static inline float get(const T *x, int64_t i) { return hl_bf16_to_f32(x[i]); }
static inline void put(T *x, int64_t i, float value) { x[i] = hl_bf16_from_f32(value); }

#define FILL_ROWS hl_rows_fill_ref_bf16
#include "kernels/ref/rows.h"
