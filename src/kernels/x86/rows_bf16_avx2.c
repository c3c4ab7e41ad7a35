/* Row kernels with AVX2 for T = bf16. */
#include "kernels/x86/vec_avx2.h"

#define T struct hl_bf16
#define TYPE_IS_BF16 1
#define FILL_ROWS hl_rows_fill_bf16_avx2
#include "kernels/x86/rows.h"
