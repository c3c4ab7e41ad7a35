/* Row kernels with AVX-512 for T = f32. */
#include "kernels/x86/vec_avx512.h"

#define T float
#define TYPE_IS_BF16 0
#define FILL_ROWS hl_rows_fill_f32_avx512
#include "kernels/x86/rows.h"
