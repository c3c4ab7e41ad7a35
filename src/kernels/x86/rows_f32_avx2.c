/* Row kernels with AVX2 for T = f32. */
#include "kernels/x86/vec_avx2.h"

#define T float
#define TYPE_IS_BF16 0
#define FILL_ROWS hl_rows_fill_f32_avx2
#include "kernels/x86/rows.h"
